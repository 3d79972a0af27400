// runtime/ops/sort.cpp -- order along one axis: sort, topk, and cumulative sums.
// Rules:
//   S1 the dtype has an order (not complex)
//   topk K1 1 <= k <= extent of the axis
#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

#include <cmath>

namespace megjit::runtime {
namespace {

int axis_of(const OpCall& call) {
    return normalize_axis(call.integer("axis"), call.inputs[0].rank(), call.op.name);
}

std::vector<Type> infer_sort(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (x.dtype == DType::c64) refuse(call, "complex numbers have no order", {}, ErrorKind::type);
    Shape shape = x.shape;
    const int axis = axis_of(call);
    check_places_fit(call, shape[axis]);
    if (call.op.name == "topk") {
        const int64_t k = call.integer("k");
        if (k < 1 || k > shape[axis])
            refuse(call, cat("k is ", k, " and axis ", axis, " has extent ", shape[axis]),
                   "choose k within the extent");
        shape[axis] = k;
    }
    return {{x.dtype, shape}, {DType::i32, shape}};
}

std::vector<Type> infer_cumsum(const OpCall& call) {
    axis_of(call);
    const Type& x = call.inputs[0];
    return {{x.dtype == DType::b8 ? DType::i32 : x.dtype, x.shape}};
}

// Each element goes back to the place that it came from.
Grads grad_sort(const GradCall& g) {
    if (!g.out_grads[0]) return Grads(1);
    const TensorRef zeros = build::zeros_like(g.inputs[0]);
    return {build::op("scatter", {zeros, g.outputs[1], g.out_grads[0]}, {g.call.integer("axis")})};
}

Cost cost_sort(const OpCall& call, std::span<const Type> outputs) {
    const auto n = static_cast<double>(call.inputs[0].numel());
    return {n * std::log2(n + 2), bytes_of(call, outputs)};
}

}  // namespace

std::vector<OpDef> sort_ops() {
    return {
        {.name = "sort",
         .dumped_as = "Argsort",
         .doc =
             "Values in order along an axis and their int32 indices; equal elements keep their order, NaN counts as the largest.",
         .inputs = {"x"},
         .attrs = {{"axis", AttrKind::integer, Attr{int64_t{-1}}},
                   {"descending", AttrKind::integer, Attr{int64_t{0}}}},
         .takes_64_bits = true,
         .infer = infer_sort,
         .grad = grad_sort,
         .keeps = Keeps::outputs,
         .cost = cost_sort},
        {.name = "topk",
         .dumped_as = "TopK",
         .doc =
             "The k smallest (descending: largest) elements along an axis in order, and their int32 indices.",
         .inputs = {"x"},
         .attrs = {{"k", AttrKind::integer},
                   {"axis", AttrKind::integer, Attr{int64_t{-1}}},
                   {"descending", AttrKind::integer, Attr{int64_t{0}}}},
         .takes_64_bits = true,
         .infer = infer_sort,
         .grad = grad_sort,
         .keeps = Keeps::outputs,
         .cost = cost_sort},
        {.name = "cumsum",
         .dumped_as = "Cumsum",
         .doc =
             "Sums of all elements up to each one along an axis (exclusive: without it; reverse: from the end). bool counts in int32.",
         .inputs = {"x"},
         .attrs = {{"axis", AttrKind::integer},
                   {"exclusive", AttrKind::integer, Attr{int64_t{0}}},
                   {"reverse", AttrKind::integer, Attr{int64_t{0}}}},
         .takes_64_bits = true,
         .infer = infer_cumsum,
         .grad = [](const GradCall& g) -> Grads {
        return {build::op("cumsum", {g.out_grads[0]},
                          {g.call.integer("axis"), g.call.integer("exclusive"),
                           int64_t{!g.call.flag("reverse")}})};
    },
         .keeps = Keeps::nothing},
    };
}

}  // namespace megjit::runtime
