#include "runtime/ops/window.h"

#include <algorithm>
#include <cstdint>

namespace megjit::runtime {
namespace {

// Extents above this would overflow the arithmetic of a window.
constexpr int64_t kHighest = int64_t{1} << 30;

}  // namespace

bool has_attr(const OpCall& call, std::string_view name) {
    return std::any_of(call.op.attrs.begin(), call.op.attrs.end(),
                       [&](const AttrSpec& spec) { return spec.name == name; });
}

void refuse(const OpCall& call, std::string why, std::string fix, ErrorKind kind) {
    std::string types;
    for (const Type& input : call.inputs)
        types += (types.empty() ? "" : " and ") + to_string(input);
    user_error({.what = cat(call.op.name, ": cannot take ", types),
                .why = std::move(why),
                .fix = std::move(fix)},
               kind);
}

void check_places_fit(const OpCall& call, int64_t extent) {
    if (extent > INT32_MAX)
        refuse(call, cat("places are int32, and there are ", extent, ", more than 2^31 - 1"),
               "cut the tensor into parts");
}

std::array<int64_t, 3> per_axis(const OpCall& call, std::string_view name, int dims,
                                int64_t lowest) {
    const std::vector<int64_t>& values = call.integers(name);
    if (values.size() != 1 && values.size() != static_cast<size_t>(dims))
        refuse(call, cat(name, " has ", values.size(), " values for ", dims, " spatial axes"),
               cat("give one value, or ", dims));
    std::array<int64_t, 3> result{};
    for (int axis = 0; axis < dims; ++axis) {
        result[axis] = values[values.size() == 1 ? 0 : axis];
        if (result[axis] < lowest || result[axis] > kHighest)
            refuse(call,
                   cat(name, " is ", result[axis], ", outside of ", lowest, " to ", kHighest));
    }
    return result;
}

int spatial_dims(const OpCall& call, const Type& x) {
    if (!is_floating(x.dtype))
        refuse(call, cat("the dtype is floating, not ", info(x.dtype).name), "cast to float32",
               ErrorKind::type);
    if (x.rank() < 3 || x.rank() > 5)
        refuse(
            call,
            cat("tensors are [n, c, spatial...] with 1 to 3 spatial axes, not of rank ", x.rank()),
            "reshape, or add axes of extent 1");
    return x.rank() - 2;
}

Window window_of(const OpCall& call, int dims) {
    Window window{.dims = dims};
    if (has_attr(call, "kernel")) window.kernel = per_axis(call, "kernel", dims, 1);
    window.stride = per_axis(call, "stride", dims, 1);
    window.padding = per_axis(call, "padding", dims, 0);
    if (has_attr(call, "dilation")) window.dilation = per_axis(call, "dilation", dims, 1);
    return window;
}

double conv_flops(const Type& y, const Type& w) {
    double flops = 2.0 * static_cast<double>(y.numel());
    for (int axis = 1; axis < w.rank(); ++axis) flops *= static_cast<double>(w.shape[axis]);
    return flops;
}

double bytes_of(const OpCall& call, std::span<const Type> outputs) {
    double bytes = 0;
    for (const Type& type : call.inputs) bytes += static_cast<double>(type.bytes());
    for (const Type& type : outputs) bytes += static_cast<double>(type.bytes());
    return bytes;
}

}  // namespace megjit::runtime
