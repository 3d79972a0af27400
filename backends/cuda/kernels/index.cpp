// backends/cuda/kernels/index.cpp -- index_get, index_set, index_add, gather, scatter, scatter_add,
// scatter_reduce, and the ops that need only places.
#include <algorithm>
#include <array>

#include "backends/cuda/kernels/texts.h"
#include "backends/cuda/kernels/word_sort.h"
#include "runtime/ops/index.h"

namespace megjit::cuda {
namespace {

// laid out as in the kernels
struct Access {
    int64_t extent[8] = {}, stride[8] = {};
    int64_t places_extent[8] = {}, from[8][8] = {};
    int64_t rest_extent[8] = {}, rest_stride[8] = {};
    int64_t places = 1, rests = 1, run = 1, pre_stride = 0;
    const void* index[8] = {};
};

// What kernels are compiled for, and what the host needs for errors of places.
struct Plan {
    Access access = {};
    std::string op = {};
    std::array<int64_t, 8> axes = {};
    size_t first = 0;  // the first operand that is an index
    int indices = 1, places_rank = 0, rest_rank = 0;
    bool along = false;  // true for gather and scatter
    int64_t cells = 0, count = 0;  // cells of x; elements of the value, with runs in units
    int64_t x_elements = 0;

    Access with(void* const* in) const {
        Access a = access;
        for (int i = 0; i < indices; ++i) a.index[i] = in[first + static_cast<size_t>(i)];
        return a;
    }
    // Returns this plan in units: `elements_each` elements are `units_each` of them.
    Plan in_units(int64_t elements_each, int64_t units_each) const {
        Plan plan = *this;
        plan.access.run = access.run / elements_each * units_each;
        plan.count = count / elements_each * units_each;
        return plan;
    }
    Tell tell() const {
        return [op = op, axes = axes, access = access](const Fault& fault) {
            const auto bits = static_cast<uint64_t>(fault.value);
            const size_t operand = 7 - (bits >> 60);
            runtime::refuse_place(op, static_cast<int32_t>(bits), axes[operand],
                                  access.extent[operand]);
        };
    }
    int64_t largest() const { return std::max({count, access.places, x_elements}); }
    // combine: what the kernel "combine" computes of two values.
    SourceKernel kernel(Gpu& gpu, const char* entry, std::string unit, std::string type,
                        std::string combine = "plus") const {
        return SourceKernel(gpu, with_prelude(texts::index), entry,
                            {{"INDEX", index_type(largest())},
                             {"INDICES", cat(indices)},
                             {"PLACES_RANK", cat(places_rank)},
                             {"REST_RANK", cat(rest_rank)},
                             {"ALONG", along ? "1" : "0"},
                             {"UNIT", std::move(unit)},
                             {"COMBINE", std::move(combine)},
                             {"T", std::move(type)}});
    }
};

// Plans index_get, index_set and index_add.
Plan plan_indices(const OpCall& call, size_t first) {
    const Shape& x = call.inputs[0].shape;
    const auto strides = x.row_major_strides();
    const auto& axes = call.integers("axes");
    Plan plan{.op = call.op.name,
              .first = first,
              .indices = static_cast<int>(axes.size()),
              .cells = 1,
              .x_elements = x.numel()};
    Access& a = plan.access;
    Shape places;
    for (size_t k = first; k < call.inputs.size(); ++k)
        places = *runtime::broadcast(places, call.inputs[k].shape);
    a.places = places.numel();
    plan.places_rank = places.rank();
    const int last = static_cast<int>(*std::ranges::max_element(axes));
    for (int i = last + 1; i < x.rank(); ++i) a.run *= x[i];
    const auto in_runs = [&](int axis) {
        return strides[static_cast<size_t>(axis)] / std::max<int64_t>(1, a.run);
    };
    bool adjacent = true;
    uint32_t mask = 0;
    for (size_t k = 0; k < axes.size(); ++k) {
        const int axis = static_cast<int>(axes[k]);
        plan.axes[k] = axis;
        a.extent[k] = x[axis];
        a.stride[k] = in_runs(axis);
        plan.cells *= x[axis];
        const Shape& index = call.inputs[first + k].shape;
        const auto from = index.row_major_strides();
        for (int i = 0; i < places.rank(); ++i) {
            a.places_extent[i] = places[i];
            const int j = i - (places.rank() - index.rank());
            a.from[k][i] = j < 0 || index[j] == 1 ? 0 : from[static_cast<size_t>(j)];
        }
        mask |= 1u << axis;
        adjacent = adjacent && (k == 0 || axes[k] == axes[k - 1] + 1);
    }
    int64_t pre = 1;
    for (int i = 0; i < last; ++i) {
        if (mask >> i & 1u) continue;
        if (adjacent) {
            pre *= x[i];
            a.pre_stride = in_runs(i);
        } else {
            a.rest_extent[plan.rest_rank] = x[i];
            a.rest_stride[plan.rest_rank++] = in_runs(i);
            a.rests *= x[i];
        }
    }
    plan.count = pre * a.places * a.rests * a.run;
    return plan;
}

// Plans gather, scatter, scatter_add and scatter_reduce: each element of the index is a place of
// its own.
Plan plan_along(const OpCall& call) {
    const Shape &x = call.inputs[0].shape, &index = call.inputs[1].shape;
    const int axis =
        x.rank() ? runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name) : 0;
    Plan plan{.op = call.op.name,
              .axes = {axis},
              .first = 1,
              .places_rank = x.rank(),
              .along = true,
              .cells = x.numel(),
              .count = index.numel(),
              .x_elements = x.numel()};
    Access& a = plan.access;
    a.places = index.numel();
    const auto strides = x.row_major_strides();
    for (int i = 0; i < x.rank(); ++i) {
        a.places_extent[i] = index[i];
        a.from[0][i] = i == axis ? 0 : strides[static_cast<size_t>(i)];
    }
    a.extent[0] = x[axis];
    a.stride[0] = strides[static_cast<size_t>(axis)];
    return plan;
}

Plan plan_of(const OpCall& call, size_t first) {
    return call.op.name.starts_with("index_") ? plan_indices(call, first) : plan_along(call);
}

// Kernels that only move elements, in units as wide as a run, and the addresses, allow.
class Movers {
public:
    Movers(Gpu& gpu, const Plan& plan, const char* entry, int64_t element) {
        const int64_t unit = widest_unit({plan.access.run * element});
        add(gpu, plan, entry, element, std::max(unit, element));
        if (unit > element) add(gpu, plan, entry, element, element);
    }
    struct Way {
        int64_t unit = 1;
        Plan plan;
        SourceKernel kernel;
    };
    const Way& way(const void* x, const void* y) const {
        const bool aligned = (address_of(x) | address_of(y)) % ways_[0].unit == 0;
        return aligned ? ways_[0] : ways_.back();
    }

private:
    void add(Gpu& gpu, const Plan& plan, const char* entry, int64_t element, int64_t unit) {
        Plan in_units = plan.in_units(unit / element, 1);
        SourceKernel kernel = in_units.kernel(gpu, entry, unit_type(unit), "float");
        ways_.push_back({unit, std::move(in_units), std::move(kernel)});
    }
    std::vector<Way> ways_;
};

Prepared prepare_get(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    if (outputs[0].numel() == 0) return nothing_to_do();
    const Movers movers(device.gpu(), plan_of(call, 1), "get", size_of(outputs[0]));
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void*) {
        const Movers::Way& way = movers.way(in[0], out[0]);
        with_index(way.plan.largest(), [&]<class Index>(Index) {
            const Address fault = stream.fault_of_next(way.plan.tell());
            way.kernel.launch(stream, blocks_for(way.plan.count), way.plan.with(in),
                              static_cast<Index>(way.plan.count), in[0], out[0], fault);
        });
    });
}

// The workspace of ops that write begins with the result of the check of places: the first word
// says whether one was wrong.
constexpr size_t kBadBytes = 256;

void check_sizes(const Plan& plan) {
    if (plan.cells >= UINT32_MAX || plan.access.places >= UINT32_MAX)
        throw runtime::DeviceError(
            cat(plan.op, ": a GPU writes at less than 2^32 places of less than 2^32"));
}

Prepared prepare_set(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const bool is_indexed = call.op.name == "index_set";
    const Plan plan = plan_of(call, 2);
    const size_t value = is_indexed ? 1 : 2, bytes = outputs[0].bytes();
    if (plan.count == 0) return copy_of(outputs[0]);
    check_sizes(plan);
    const SourceKernel find = plan.kernel(device.gpu(), "find_last", "u32", "float");
    const Movers movers(device.gpu(), plan, "set", size_of(outputs[0]));
    const size_t cleared = kBadBytes + static_cast<size_t>(plan.cells) * sizeof(uint32_t);
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void* work) {
        void* const last = at(work, kBadBytes);
        stream.clear(reinterpret_cast<Address>(work), cleared);
        with_index(plan.largest(), [&]<class Index>(Index) {
            const Address fault = stream.fault_of_next(plan.tell());
            find.launch(stream, blocks_for(plan.access.places), plan.with(in),
                        static_cast<Index>(plan.access.places), last, work, fault);
        });
        if (in[0] != out[0]) stream.copy(out[0], in[0], bytes);
        const Movers::Way& way = movers.way(in[value], out[0]);
        with_index(way.plan.largest(), [&]<class Index>(Index) {
            way.kernel.launch(stream, blocks_for(way.plan.count), way.plan.with(in),
                              static_cast<Index>(way.plan.count), last, work, in[value], out[0]);
        });
    }, cleared, true);
}

// Returns the function of index.cu that combines the values of one place.
std::string combine_of(const OpCall& call) {
    if (call.op.name != "scatter_reduce") return "plus";
    const std::string& mode = call.text("mode");
    return mode == "max" ? "larger" : mode == "min" ? "smaller" : "times";
}

Prepared prepare_combine(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const bool is_indexed = call.op.name == "index_add",
               is_complex = outputs[0].dtype == DType::c64;
    const size_t value = is_indexed ? 1 : 2, bytes = outputs[0].bytes();
    const Plan elements = plan_of(call, 2), plan = elements.in_units(1, is_complex ? 2 : 1);
    if (plan.count == 0) return copy_of(outputs[0]);
    check_sizes(plan);
    const std::string type = is_complex ? "float" : storage_type(outputs[0].dtype);
    const SourceKernel find = plan.kernel(device.gpu(), "find_words", "u32", type),
                       combine =
                           plan.kernel(device.gpu(), "combine", "u32", type, combine_of(call));
    const WordSort sort(device.gpu(), 1, plan.access.places);
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void* work) {
        void* const words = at(work, kBadBytes);
        stream.clear(reinterpret_cast<Address>(work), sizeof(uint32_t));
        with_index(plan.largest(), [&]<class Index>(Index) {
            const Access access = plan.with(in);
            const Address fault = stream.fault_of_next(plan.tell());
            find.launch(stream, blocks_for(plan.access.places), access,
                        static_cast<Index>(plan.access.places), words, work, fault);
            const void* const sorted = sort(stream, words);
            if (in[0] != out[0]) stream.copy(out[0], in[0], bytes);
            combine.launch(stream, blocks_for(plan.count), access, static_cast<Index>(plan.count),
                           sorted, work, in[value], out[0]);
        });
    }, kBadBytes + sort.bytes(), true);
}

// --- of places alone ----------------------------------------------------------------------------

SourceKernel labels_kernel(Gpu& gpu, const char* entry, int64_t count) {
    return SourceKernel(gpu, with_prelude(texts::labels), entry,
                        {{"INDEX", index_type(count)}, {"EXTENT", "1"}});
}

Prepared prepare_checked_index(CudaDevice& device, const OpCall& call,
                               std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel(), axis = call.integer("axis"),
                  extent = call.integer("extent");
    const SourceKernel check = labels_kernel(device.gpu(), "check", n);
    return executable(
        [=, op = call.text("op")](CudaStream& stream, void* const* in, void* const* out, void*) {
        if (n == 0) return;
        const Address fault = stream.fault_of_next([=](const Fault& wrong) {
            runtime::refuse_place(op, static_cast<int32_t>(wrong.value), axis, extent);
        });
        with_index(n, [&](auto count) {
            check.launch(stream, blocks_for(n), -extent, extent, count, in[0], out[0], fault);
        });
    }, 0, true);
}

Prepared prepare_checked_label(CudaDevice& device, const OpCall& call,
                               std::span<const Type> outputs) {
    const int64_t n = outputs[0].numel(), classes = call.integer("classes");
    const SourceKernel check = labels_kernel(device.gpu(), "check", n);
    return executable(
        [=, op = call.text("op")](CudaStream& stream, void* const* in, void* const* out, void*) {
        if (n == 0) return;
        const Address fault = stream.fault_of_next([=](const Fault& wrong) {
            runtime::refuse_label(op, static_cast<int32_t>(wrong.value), classes);
        });
        with_index(n, [&](auto count) {
            check.launch(stream, blocks_for(n), int64_t{0}, classes, count, in[0], out[0], fault);
        });
    }, 0, true);
}

Prepared prepare_coordinates(CudaDevice& device, const OpCall& call,
                             std::span<const Type> outputs) {
    const Type& y = outputs[0];
    const int64_t n = y.numel();
    const Split s =
        split_at(y.shape, runtime::normalize_axis(call.integer("axis"), y.rank(), call.op.name));
    const SourceKernel coordinates = labels_kernel(device.gpu(), "coordinates", n);
    return executable([=](CudaStream& stream, void* const*, void* const* out, void*) {
        with_index(n, [&](auto count) {
            coordinates.launch(stream, blocks_for(n), s.length, s.inner, count, out[0]);
        });
    });
}

Prepared prepare_one_hot(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    if (y.numel() == 0) return nothing_to_do();
    const int64_t n = y.numel(), classes = call.integer("num_classes"), unit = size_of(y);
    const SourceKernel kernel(device.gpu(), with_prelude(texts::labels), "one_hot",
                              {{"INDEX", index_type(n)},
                               {"EXTENT", "0"},
                               {"LABEL", storage_type(call.inputs[0].dtype)},
                               {"T", unit_type(unit)}});
    const uint64_t one = element_bits(y.dtype, 1);
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void*) {
        const Address fault = stream.fault_of_next([=](const Fault& wrong) {
            runtime::refuse_label("one_hot", static_cast<int32_t>(wrong.value), classes);
        });
        with_index(n, [&](auto count) {
            with_unit({one}, unit, [&](auto on) {
                kernel.launch(stream, blocks_for(n), classes, count, in[0], on, decltype(on){},
                              out[0], fault);
            });
        });
    });
}

// A pass adds this op; updates of parameters read its result (jit/plan/passes/guard_updates.cpp).
Prepared prepare_has_failed(CudaDevice&, const OpCall&, std::span<const Type>) {
    return executable([](CudaStream& stream, void* const*, void* const* out, void*) {
        stream.tell_failure(out[0]);
    });
}

}  // namespace

void register_index_kernels() {
    register_kernel("index_get", prepare_get);
    register_kernel("gather", prepare_get);
    register_kernel("index_set", prepare_set);
    register_kernel("scatter", prepare_set);
    register_kernel("index_add", prepare_combine);
    register_kernel("scatter_add", prepare_combine);
    register_kernel("scatter_reduce", prepare_combine);
    register_kernel("checked_index", prepare_checked_index);
    register_kernel("checked_label", prepare_checked_label);
    register_kernel("coordinates", prepare_coordinates);
    register_kernel("one_hot", prepare_one_hot);
    register_kernel("has_failed", prepare_has_failed);
}

}  // namespace megjit::cuda
