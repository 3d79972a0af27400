// runtime/ops/index.cpp -- reading and writing at places that int32 tensors name. Places below
// zero count from the end; one outside of its axis is an IndexError when the op runs, before
// anything is written.
// Rules:
//   index I1 one int32 tensor per axis, axes distinct
//   I2 the index tensors broadcast together
//   index I3 value has the shape that index_get gives, and x's dtype
//   gather G1 index is int32 of x's rank
//   G2 besides the axis, index is not longer than x
//   scatter G3 source has the shape of index and x's dtype
//   scatter_reduce G4 mode is max, min or prod; real numbers
//   mask M1 the mask is bool of x's shape
//   one_hot O1 an integer tensor, at least one class
//   nms N1 boxes f32[n, 4] and scores f32[n]
#include "runtime/ops/index.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/core/device.h"
#include "runtime/core/host_view.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/boxes.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/loop.h"
#include "runtime/ops/refit.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Ints = std::vector<int64_t>;

// Shape of x at the index tensors call.inputs[first...]; checks I1 and I2.
Shape indexed_shape(const OpCall& call, size_t first) {
    const Shape& x = call.inputs[0].shape;
    const Ints& axes = call.integers("axes");
    const size_t count = call.inputs.size() - std::min(first, call.inputs.size());
    if (axes.empty() || axes.size() != count)
        refuse(call, cat(count, " index tensors for axes ", to_string(Attr{axes})));
    uint32_t mask = 0;
    Shape places;
    for (size_t k = 0; k < axes.size(); ++k) {
        const Type& index = call.inputs[first + k];
        if (axes[k] < 0 || axes[k] >= x.rank() || (mask >> axes[k] & 1u))
            refuse(call, cat("axes ", to_string(Attr{axes}), " are distinct and below ", x.rank()));
        if (index.dtype != DType::i32)
            refuse(call, cat("index ", k, " is ", to_string(index), ", not int32"),
                   "cast it to int32", ErrorKind::type);
        mask |= 1u << axes[k];
        const auto both = broadcast(places, index.shape);
        if (!both)
            refuse(call,
                   cat("index ", k, " of shape ", to_string(index.shape),
                       " does not broadcast with ", to_string(places)),
                   {}, ErrorKind::index);
        places = *both;
    }
    bool adjacent = true;
    for (size_t k = 1; k < axes.size(); ++k) adjacent = adjacent && axes[k] == axes[k - 1] + 1;
    Shape shape;
    if (adjacent)
        for (int i = 0; i < axes[0]; ++i) shape.push_back(x[i]);
    for (const int64_t extent : places) shape.push_back(extent);
    for (int i = adjacent ? static_cast<int>(axes.back()) + 1 : 0; i < x.rank(); ++i)
        if (!(mask >> i & 1u)) shape.push_back(x[i]);
    return shape;
}

// Attribute 0 has the axis, or the axes, along which an operand of places indexes.
int64_t indexed_extent(const OpCall& call, size_t operand) {
    const Shape& x = call.inputs[0].shape;
    if (const auto* axes = std::get_if<Ints>(&call.attrs[0]))
        return x[static_cast<int>((*axes)[operand - (call.inputs.size() - axes->size())])];
    return x[normalize_axis(std::get<int64_t>(call.attrs[0]), x.rank(), call.op.name)];
}

std::vector<Type> infer_index_get(const OpCall& call) {
    return {{call.inputs[0].dtype, indexed_shape(call, 1)}};
}

std::vector<Type> infer_index_write(const OpCall& call) {
    const Type &x = call.inputs[0], &value = call.inputs[1];
    const Shape shape = indexed_shape(call, 2);
    if (!(value.shape == shape) || value.dtype != x.dtype)
        refuse(call,
               cat("the selected elements need a value of ", to_string(Type{x.dtype, shape}),
                   ", not ", to_string(value)),
               "broadcast and cast the value first");
    if (call.op.name == "index_add" && x.dtype == DType::b8)
        refuse(call, "bool tensors cannot be added", "cast to int32", ErrorKind::type);
    return {{x.dtype, x.shape}};
}

TensorRef apply_indexed(std::string_view name, Tensors leading, std::span<const TensorRef> indices,
                        const Ints& axes) {
    leading.insert(leading.end(), indices.begin(), indices.end());
    return build::op_n(name, leading, {axes})[0];
}

Grads grad_index_get(const GradCall& g) {
    const Ints& axes = g.call.integers("axes");
    Grads grads(g.inputs.size());
    const TensorRef zeros = build::zeros_like(g.inputs[0]);
    grads[0] = apply_indexed("index_add", {zeros, g.out_grads[0]}, g.inputs.subspan(1), axes);
    return grads;
}

// 0, 1, 2... in the given shape.
TensorRef counted(const Shape& shape, Device& device) {
    const TensorRef ones = build::full(Shape{shape.numel()}, 1, DType::i32, device);
    return build::reshape(build::op("cumsum", {ones}, {int64_t{0}, int64_t{1}, int64_t{0}}), shape);
}

// A place that was written several times passes its gradient to the last writer alone.
Grads grad_index_set(const GradCall& g) {
    const Ints& axes = g.call.integers("axes");
    const TensorRef &dy = g.out_grads[0], &value = g.inputs[1];
    const auto indices = g.inputs.subspan(2);
    Grads grads(g.inputs.size());
    const TensorRef zeros = build::full(value->shape(), 0, dy->dtype(), dy->device());
    if (g.needs[0]) grads[0] = apply_indexed("index_set", {dy, zeros}, indices, axes);
    if (g.needs[1]) {
        const TensorRef own = counted(value->shape(), dy->device());
        const TensorRef last = apply_indexed(
            "index_set", {build::full(dy->shape(), -1, DType::i32, dy->device()), own}, indices,
            axes);
        const TensorRef wins =
            build::op("equal", {apply_indexed("index_get", {last}, indices, axes), own});
        grads[1] = build::where(wins, apply_indexed("index_get", {dy}, indices, axes), zeros);
    }
    return grads;
}

Grads grad_index_add(const GradCall& g) {
    Grads grads(g.inputs.size());
    grads[0] = g.out_grads[0];
    if (g.needs[1])
        grads[1] = apply_indexed("index_get", {g.out_grads[0]}, g.inputs.subspan(2),
                                 g.call.integers("axes"));
    return grads;
}

// --- along one axis -------------------------------------------------------------------------

void check_gather(const OpCall& call) {
    const Type &x = call.inputs[0], &index = call.inputs[1];
    const std::string& name = call.op.name;
    const int axis = normalize_axis(call.integer("axis"), x.rank(), name);
    if (index.dtype != DType::i32 || index.rank() != x.rank())
        refuse(call, cat("index is int32 of rank ", x.rank(), ", not ", to_string(index)),
               "reshape and cast the index");
    for (int i = 0; i < x.rank(); ++i)
        if (i != axis && index.shape[i] > x.shape[i])
            refuse(call, cat("axis ", i, " has extent ", index.shape[i], " in index and only ",
                             x.shape[i], " in x"));
}

std::vector<Type> infer_gather(const OpCall& call) {
    check_gather(call);
    return {{call.inputs[0].dtype, call.inputs[1].shape}};
}

std::vector<Type> infer_scatter(const OpCall& call) {
    check_gather(call);
    const Type &x = call.inputs[0], &index = call.inputs[1], &source = call.inputs[2];
    if (!(source.shape == index.shape) || source.dtype != x.dtype)
        refuse(call, cat("source is ", to_string(Type{x.dtype, index.shape}), ", not ",
                         to_string(source)));
    if (call.op.name == "scatter_add" && x.dtype == DType::b8)
        refuse(call, "bool tensors cannot be added", "cast to int32", ErrorKind::type);
    return {{x.dtype, x.shape}};
}

std::vector<Type> infer_scatter_reduce(const OpCall& call) {
    const std::string& mode = call.text("mode");
    if (mode != "max" && mode != "min" && mode != "prod")
        refuse(call, cat("mode is \"max\", \"min\" or \"prod\", not \"", mode, '"'),
               "scatter_add computes sums");
    const DType dtype = call.inputs[0].dtype;
    if (dtype == DType::b8 || dtype == DType::c64)
        refuse(call, cat(info(dtype).name, " tensors are neither ordered nor multiplied"),
               "cast to int32 or float32", ErrorKind::type);
    return infer_scatter(call);
}

Grads grad_gather(const GradCall& g) {
    const TensorRef zeros = build::zeros_like(g.inputs[0]);
    return {
        build::op("scatter_add", {zeros, g.inputs[1], g.out_grads[0]}, {g.call.integer("axis")}),
        {}};
}

Grads grad_scatter(const GradCall& g) {
    const TensorRef &dy = g.out_grads[0], &index = g.inputs[1];
    const Attrs axis = {g.call.integer("axis")};
    const TensorRef zeros = build::full(index->shape(), 0, dy->dtype(), dy->device());
    Grads grads(3);
    if (g.needs[0]) grads[0] = build::op("scatter", {dy, index, zeros}, axis);
    if (g.needs[2]) {
        const TensorRef own = counted(index->shape(), dy->device());
        const TensorRef last = build::op(
            "scatter", {build::full(dy->shape(), -1, DType::i32, dy->device()), index, own}, axis);
        const TensorRef wins = build::op("equal", {build::op("gather", {last, index}, axis), own});
        grads[2] = build::where(wins, build::op("gather", {dy, index}, axis), zeros);
    }
    return grads;
}

// For indices with one place on each line along the axis: marks these places by comparing
// coordinates, which costs little in a kernel that computes the line anyhow. Null when the index
// has another form.
TensorRef place_on_each_line(const OpCall& call, const TensorRef& index) {
    const Shape& x = call.inputs[0].shape;
    const int axis = normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    for (int i = 0; i < x.rank(); ++i)
        if (call.inputs[1].shape[i] != (i == axis ? 1 : x[i])) return {};
    const TensorRef place =
        build::op("checked_index", {index}, {int64_t{axis}, x[axis], call.op.name});
    return build::op(
        "equal", {build::op("coordinates", {}, {Ints(x.begin(), x.end()), int64_t{axis}}), place});
}

std::vector<TensorRef> expand_gather(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef &x = inputs[0], here = place_on_each_line(call, inputs[1]);
    if (!here || x->dtype() == DType::b8 || x->dtype() == DType::c64) return {};
    const int64_t axis = normalize_axis(call.integer("axis"), x->type().rank(), call.op.name);
    return {build::reduce_sum(build::where(here, x, build::number(0, x)), {axis}, true)};
}

std::vector<TensorRef> expand_scatter_add(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef &x = inputs[0], here = place_on_each_line(call, inputs[1]);
    if (!here || x->dtype() == DType::c64) return {};
    return {build::add(x, build::where(here, inputs[2], build::number(0, x)))};
}

std::vector<Type> infer_checked_index(const OpCall& call) {
    if (call.inputs[0].dtype != DType::i32) refuse(call, "the index is int32", "cast the index");
    return {{DType::i32, call.inputs[0].shape}};
}

std::vector<Type> infer_coordinates(const OpCall& call) {
    const Shape shape(std::span<const int64_t>(call.integers("shape")));
    const int axis = normalize_axis(call.integer("axis"), shape.rank(), call.op.name);
    check_places_fit(call, shape[axis]);
    return {{DType::i32, shape}};
}

Grads grad_scatter_add(const GradCall& g) {
    Grads grads(3);
    grads[0] = g.out_grads[0];
    if (g.needs[2])
        grads[2] = build::op("gather", {g.out_grads[0], g.inputs[1]}, {g.call.integer("axis")});
    return grads;
}

struct GradientParts {
    TensorRef x, source;  // one value for each element of x, and one for each of the source
};

// Equal extrema of a place share its gradient, the element of x among them.
GradientParts parts_of_extrema(const GradCall& g) {
    const Attrs axis = {g.call.integer("axis")};
    const TensorRef &x = g.inputs[0], &index = g.inputs[1], &source = g.inputs[2],
                    &y = g.outputs[0];
    const TensorRef x_wins = build::op("equal", {x, y}),
                    source_wins =
                        build::op("equal", {source, build::op("gather", {y, index}, axis)});
    const TensorRef winners = build::op(
        "scatter_add",
        {build::cast(x_wins, x->dtype()), index, build::cast(source_wins, x->dtype())}, axis);
    const TensorRef part = build::div(g.out_grads[0], winners);
    const TensorRef none = build::number(0, part);
    return {build::where(x_wins, part, none),
            build::where(source_wins, build::op("gather", {part, index}, axis), none)};
}

// Returns the product of all other factors of a place. product: of those that are not 0.
TensorRef other_factors(const TensorRef& factor, const TensorRef& product,
                        const TensorRef& zero_count) {
    const TensorRef zero = build::number(0, product), one = build::number(1, product);
    const TensorRef is_zero = build::op("equal", {factor, zero});
    const TensorRef safe = build::where(is_zero, one, factor);
    const TensorRef at_zero = build::where(build::op("equal", {zero_count, one}), product, zero),
                    elsewhere = build::where(build::op("equal", {zero_count, zero}),
                                             build::div(product, safe), zero);
    return build::where(is_zero, at_zero, elsewhere);
}

GradientParts parts_of_product(const GradCall& g) {
    const Attrs axis = {g.call.integer("axis")};
    const TensorRef &x = g.inputs[0], &index = g.inputs[1], &source = g.inputs[2];
    const auto zeros_of = [](const TensorRef& of) {
        return build::op("equal", {of, build::number(0, of)});
    };
    const auto safe = [&](const TensorRef& of) {
        return build::where(zeros_of(of), build::number(1, of), of);
    };
    const TensorRef product =
                        build::op("scatter_reduce", {safe(x), index, safe(source)}, g.call.attrs),
                    count = build::op("scatter_add",
                                      {build::cast(zeros_of(x), x->dtype()), index,
                                       build::cast(zeros_of(source), x->dtype())},
                                      axis);
    const auto gathered = [&](const TensorRef& of) {
        return build::op("gather", {of, index}, axis);
    };
    return {build::mul(g.out_grads[0], other_factors(x, product, count)),
            build::mul(gathered(g.out_grads[0]),
                       other_factors(source, gathered(product), gathered(count)))};
}

Grads grad_scatter_reduce(const GradCall& g) {
    const GradientParts parts =
        g.call.text("mode") == "prod" ? parts_of_product(g) : parts_of_extrema(g);
    return {parts.x, {}, parts.source};
}

// --- by a mask ------------------------------------------------------------------------------

constexpr int64_t kChunk = 65536;

// The places of each chunk's true elements in the result; the last entry is their count.
Ints true_offsets(const uint8_t* mask, int64_t n) {
    const int64_t chunks = (n + kChunk - 1) / kChunk;
    Ints offsets(static_cast<size_t>(chunks) + 1, 0);
    parallel_for(chunks, 4, 1, [&](int64_t lo, int64_t hi) {
        for (int64_t c = lo; c < hi; ++c)
            offsets[static_cast<size_t>(c) + 1] =
                std::count_if(mask + c * kChunk, mask + std::min(n, (c + 1) * kChunk),
                              [](uint8_t b) { return b != 0; });
    });
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    return offsets;
}

// Calls emit(rank among the true elements, flat index) for each true element.
template <class Emit>
void for_each_true(const uint8_t* mask, int64_t n, const Ints& offsets, const Emit& emit) {
    parallel_for(static_cast<int64_t>(offsets.size()) - 1, 2, 1, [&](int64_t lo, int64_t hi) {
        for (int64_t c = lo; c < hi; ++c) {
            int64_t k = offsets[static_cast<size_t>(c)];
            for (int64_t i = c * kChunk; i < std::min(n, (c + 1) * kChunk); ++i)
                if (mask[i]) emit(k++, i);
        }
    });
}

void tell_trace(const OpCall& call, size_t bytes) {
    if (Tracer* trace = context().tracer) trace->on_results_of_data(call.op.name, bytes);
}

std::vector<TensorRef> run_mask_select(const OpCall& call, std::span<const TensorRef> inputs) {
    const Type &x = call.inputs[0], &mask = call.inputs[1];
    if (mask.dtype != DType::b8 || !(mask.shape == x.shape))
        refuse(call,
               cat("the mask is ", to_string(Type{DType::b8, x.shape}), ", not ", to_string(mask)),
               "broadcast the mask, or compare to make it bool");
    check_places_fit(call, x.numel());
    const HostView data(inputs[0]), flag_data(inputs[1]);
    const auto* flags = flag_data.as<uint8_t>();
    const Ints offsets = true_offsets(flags, x.numel());
    const Shape shape{offsets.back()};
    tell_trace(call, Type{x.dtype, shape}.bytes() + Type{DType::i32, shape}.bytes());
    Device& device = inputs[0]->device();
    Device& made_on = device.is_host() ? device : host_device();
    const TensorRef values = empty_tensor(made_on, {x.dtype, shape}),
                    places = empty_tensor(made_on, {DType::i32, shape});
    const size_t bytes = size_of(x.dtype);
    const char* from = data.as<char>();
    char* to = values->as<char>();
    auto* at = places->as<int32_t>();
    for_each_true(flags, x.numel(), offsets, [=](int64_t k, int64_t i) {
        at[k] = static_cast<int32_t>(i);
        std::memcpy(to + static_cast<size_t>(k) * bytes, from + static_cast<size_t>(i) * bytes,
                    bytes);
    });
    return {copied_to(values, device), copied_to(places, device)};
}

TensorRef places_up_to(int64_t n, Device& device) {
    return apply(find_op("coordinates"), {Ints{n}, int64_t{0}}, {}, &device)[0];
}

// The places where a mask is true, in a vector as long as the mask, and their count.
struct Selection {
    TensorRef places, count;
};
Selection selection_of(const TensorRef& mask) {
    const int64_t n = mask->shape().numel();
    Device& device = mask->device();
    const TensorRef flags = build::cast(build::reshape(mask, Shape{n}), DType::i32),
                    ranks = build::op("cumsum", {flags}, {int64_t{0}, int64_t{1}, int64_t{0}}),
                    own = places_up_to(n, device);
    // False elements are written to the place after all others, which is cut off.
    const TensorRef places =
        build::op("scatter",
                  {build::full(Shape{n + 1}, 0, DType::i32, device),
                   build::where(build::op("greater", {flags, build::number(0, flags)}), ranks,
                                build::number(static_cast<double>(n), ranks)),
                   own},
                  {int64_t{0}});
    return {build::slice(places, 0, 0, n), build::reduce_sum(flags, {0}, false)};
}

Tensors bounded_mask_select(const OpCall&, std::span<const TensorRef> inputs) {
    const auto [places, count] = selection_of(inputs[1]);
    const TensorRef x = build::reshape(inputs[0], places->shape());
    return {build::op("gather", {x, places}, {int64_t{0}}), places, count};
}

Grads grad_mask_select(const GradCall& g) {
    if (!g.out_grads[0]) return Grads(2);
    const Shape& shape = g.inputs[0]->shape();
    const TensorRef zeros =
        build::full(Shape{shape.numel()}, 0, g.inputs[0]->dtype(), g.inputs[0]->device());
    return {
        build::reshape(apply_indexed("index_add", {zeros, g.out_grads[0]}, {&g.outputs[1], 1}, {0}),
                       shape),
        {}};
}

std::vector<TensorRef> run_nonzero(const OpCall& call, std::span<const TensorRef> inputs) {
    const Type& mask = call.inputs[0];
    if (mask.dtype != DType::b8)
        refuse(call, cat("the mask is bool, not ", info(mask.dtype).name), "compare with 0",
               ErrorKind::type);
    for (const int64_t extent : mask.shape) check_places_fit(call, extent);
    const HostView data(inputs[0]);
    const auto* flags = data.as<uint8_t>();
    const Ints offsets = true_offsets(flags, mask.numel());
    const int rank = mask.rank();
    Device& device = inputs[0]->device();
    const Type type{DType::i32, Shape{offsets.back(), rank}};
    tell_trace(call, type.bytes());
    const TensorRef places = empty_tensor(device.is_host() ? device : host_device(), type);
    auto* at = places->as<int32_t>();
    for_each_true(flags, mask.numel(), offsets, [=, &mask](int64_t k, int64_t i) {
        for (int axis = rank - 1; axis >= 0; --axis) {
            at[k * rank + axis] = static_cast<int32_t>(i % mask.shape[axis]);
            i /= mask.shape[axis];
        }
    });
    return {copied_to(places, device)};
}

Tensors bounded_nonzero(const OpCall&, std::span<const TensorRef> inputs) {
    const Shape& shape = inputs[0]->shape();
    const auto [places, count] = selection_of(inputs[0]);
    Tensors columns;
    TensorRef left = places;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        const TensorRef extent =
            build::number(static_cast<double>(std::max<int64_t>(shape[axis], 1)), left);
        columns.push_back(
            build::reshape(build::op("mod", {left, extent}), Shape{shape.numel(), 1}));
        left = build::op("floor_div", {left, extent});
    }
    std::ranges::reverse(columns);
    const TensorRef found = columns.empty()
                                ? build::full(Shape{1, 0}, 0, DType::i32, places->device())
                                : build::op_n("concat", columns, {int64_t{1}})[0];
    return {found, count};
}

// --- boxes ----------------------------------------------------------------------------------

void check_boxes(const OpCall& call) {
    const Type& boxes = call.inputs[0];
    if (boxes.dtype != DType::f32 || boxes.rank() != 2 || boxes.shape[1] != 4)
        refuse(call, cat("boxes are f32[n, 4], not ", to_string(boxes)), "cast them to float32");
}

std::vector<TensorRef> run_nms(const OpCall& call, std::span<const TensorRef> inputs) {
    const Type &boxes = call.inputs[0], &scores = call.inputs[1];
    check_boxes(call);
    if (scores.dtype != DType::f32 || scores.rank() != 1 || scores.shape[0] != boxes.shape[0])
        refuse(call, "scores are f32[n], one for each box");
    const auto limit = call.integer("max_output");
    const auto threshold = static_cast<float>(call.real("iou_thresh"));
    const HostView box_data(inputs[0]), score_data(inputs[1]);
    const Box* box = box_data.as<Box>();
    const float* score = score_data.as<float>();
    std::vector<int32_t> order(static_cast<size_t>(boxes.shape[0])), kept;
    std::iota(order.begin(), order.end(), 0);
    const auto key = [=](int32_t i) {
        return score[i] == score[i] ? score[i] : -std::numeric_limits<float>::infinity();
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return key(a) > key(b); });
    for (const int32_t i : order) {
        if (limit > 0 && static_cast<int64_t>(kept.size()) >= limit) break;
        if (std::none_of(kept.begin(), kept.end(),
                         [&](int32_t k) { return overlap(box[k], box[i]) > threshold; }))
            kept.push_back(i);
    }
    const Type type{DType::i32, Shape{static_cast<int64_t>(kept.size())}};
    tell_trace(call, type.bytes());
    return {tensor_from_host(inputs[0]->device(), type, kept.data())};
}

std::vector<Type> infer_nms_kept(const OpCall& call) {
    check_boxes(call);
    return {{DType::b8, Shape{call.inputs[0].shape[0]}}};
}

// A box stays unless an earlier box that stays overlaps it.
Loop loop_nms_kept(const OpCall& call, std::span<const TensorRef> inputs) {
    const TensorRef& boxes = inputs[0];
    const int64_t n = boxes->shape()[0];
    const auto edge = [](const TensorRef& of, int64_t k) {  // [m, 4] -> [m]
        return build::reshape(build::slice(of, 1, k, k + 1), Shape{of->shape()[0]});
    };
    const auto step = [=, thresh = call.real("iou_thresh")](std::span<const TensorRef> carries,
                                                            std::span<const TensorRef> slices) {
        const TensorRef one = build::reshape(slices[0], Shape{1, 4}), &at = slices[1];
        const auto within = [&](int64_t low) {
            return build::op(
                "maximum",
                {build::sub(build::op("minimum", {edge(boxes, low + 2), edge(one, low + 2)}),
                            build::op("maximum", {edge(boxes, low), edge(one, low)})),
                 build::number(0, boxes)});
        };
        const auto area = [&](const TensorRef& of) {
            return build::mul(build::sub(edge(of, 2), edge(of, 0)),
                              build::sub(edge(of, 3), edge(of, 1)));
        };
        const TensorRef both = build::mul(within(0), within(1)),
                        either = build::sub(build::add(area(boxes), area(one)), both),
                        zero = build::number(0, both);
        const TensorRef covered = build::op(
            "greater",
            {build::where(build::op("greater", {either, zero}), build::div(both, either), zero),
             build::number(thresh, both)});
        const TensorRef by_kept = build::op("logical_and", {covered, carries[0]}),
                        is_covered = build::op("reduce_max", {by_kept}, {Ints{0}, int64_t{1}}),
                        is_it = build::op("equal", {places_up_to(n, boxes->device()), at});
        return Tensors{
            build::op("logical_or",
                      {carries[0],
                       build::op("logical_and", {is_it, build::op("logical_not", {is_covered})})})};
    };
    return {.carries = {build::full(Shape{n}, 0, DType::b8, boxes->device())},
            .slices = {boxes, places_up_to(n, boxes->device())},
            .returned = 1,
            .step = step};
}

Tensors bounded_nms(const OpCall& call, std::span<const TensorRef> inputs) {
    const int64_t n = call.inputs[0].shape[0], wanted = call.integer("max_output");
    const int64_t limit = wanted > 0 ? std::min(wanted, n) : n;
    const TensorRef& scores = inputs[1];
    const TensorRef known =
        build::where(build::op("equal", {scores, scores}), scores,
                     build::number(-std::numeric_limits<double>::infinity(), scores));
    const TensorRef order = build::op_n("sort", {&known, 1}, {int64_t{0}, int64_t{1}})[1];
    const TensorRef sorted = apply_indexed("index_get", {inputs[0]}, {&order, 1}, {0});
    const auto [places, count] =
        selection_of(build::op("nms_kept", {sorted}, {call.real("iou_thresh")}));
    return {build::slice(build::op("gather", {order, places}, {int64_t{0}}), 0, 0, limit),
            build::op("minimum", {count, build::number(static_cast<double>(limit), count)})};
}

std::vector<Type> infer_one_hot(const OpCall& call) {
    const Type& x = call.inputs[0];
    const int64_t classes = call.integer("num_classes");
    if (info(x.dtype).category != Category::integer || classes < 1)
        refuse(call,
               cat("an integer tensor and at least one class, not ", info(x.dtype).name, " and ",
                   classes),
               "cast the labels to int32");
    Shape shape = x.shape;
    shape.push_back(classes);
    return {{call.dtype("dtype"), shape}};
}

std::vector<OpDef> by_index() {
    const std::vector<AttrSpec> axes = {{"axes", AttrKind::integers}},
                                axis = {{"axis", AttrKind::integer}};
    return {
        {.name = "index_get",
         .dumped_as = "IndexingMultiAxisVec",
         .doc =
             "x at index tensors on `axes`, whole along the others, as NumPy's advanced indexing: the axes of the result of indexing stand where the indexed axes stood if these are adjacent, else in front.",
         .inputs = {"x", {"index", OperandKind::places}},
         .variadic = true,
         .attrs = axes,
         .infer = infer_index_get,
         .grad = grad_index_get,
         .keeps = Keeps::inputs,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .refit = refit_indexed,
         .access = Access::picked,
         .cost = moves},
        {.name = "index_set",
         .dumped_as = "IndexingSetMultiAxisVec",
         .doc =
             "x with `value` written at those indices; of several writes to one element the last wins.",
         .inputs = {"x", "value", {"index", OperandKind::places}},
         .variadic = true,
         .attrs = axes,
         .infer = infer_index_write,
         .grad = grad_index_set,
         .keeps = Keeps::inputs,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .refit = refit_indexed,
         .access = Access::written,
         .cost = moves},
        {.name = "index_add",
         .dumped_as = "IndexingIncrMultiAxisVec",
         .doc =
             "x with `value` added at those indices, once for each time an index is repeated, always in the same order.",
         .inputs = {"x", "value", {"index", OperandKind::places}},
         .variadic = true,
         .attrs = axes,
         .infer = infer_index_write,
         .grad = grad_index_add,
         .keeps = Keeps::inputs,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .refit = refit_indexed,
         .access = Access::written},
        {.name = "gather",
         .dumped_as = "IndexingOneHot",
         .doc = "y[i, j] = x[index[i, j], j] for axis 0, and so on for others.",
         .inputs = {"x", {"index", OperandKind::places}},
         .attrs = axis,
         .infer = infer_gather,
         .grad = grad_gather,
         .keeps = Keeps::inputs,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .expand = expand_gather,
         .refit = refit_indexed,
         .access = Access::picked,
         .cost = moves},
        {.name = "scatter",
         .dumped_as = "IndexingSetOneHot",
         .doc =
             "x with source written at x[index[i, j], j] for axis 0, and so on for others; the last write wins.",
         .inputs = {"x", {"index", OperandKind::places}, "source"},
         .attrs = axis,
         .infer = infer_scatter,
         .grad = grad_scatter,
         .keeps = Keeps::inputs,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .refit = refit_indexed,
         .access = Access::written,
         .cost = moves},
        {.name = "scatter_add",
         .doc =
             "x with source added at x[index[i, j], j] for axis 0, and so on for others, always in the same order.",
         .inputs = {"x", {"index", OperandKind::places}, "source"},
         .attrs = axis,
         .infer = infer_scatter,
         .grad = grad_scatter_add,
         .keeps = Keeps::inputs,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .expand = expand_scatter_add,
         .refit = refit_indexed,
         .access = Access::written},
        {.name = "scatter_reduce",
         .doc =
             "x with the largest (mode max), the smallest (min) or the product (prod) of x and all sources that go to x[index[i, j], j] for axis 0, and so on for others. NaN wins, equal extrema share the gradient, and the gradient of a product is right where factors are 0.",
         .inputs = {"x", {"index", OperandKind::places}, "source"},
         .attrs = {{"axis", AttrKind::integer}, {"mode", AttrKind::text}},
         .infer = infer_scatter_reduce,
         .grad = grad_scatter_reduce,
         .keeps = Keeps::both,
         .checks_values = true,
         .extent_of_places = indexed_extent,
         .refit = refit_indexed,
         .access = Access::written},
        {.name = "checked_index",
         .doc =
             "The index with negative values counted from the end. A value out of range is an IndexError that names axis and op.",
         .inputs = {{"index", OperandKind::places}},
         .attrs = {{"axis", AttrKind::integer},
                   {"extent", AttrKind::integer},
                   {"op", AttrKind::text}},
         .infer = infer_checked_index,
         .keeps = Keeps::nothing,
         .checks_values = true,
         .only_checks = true,
         .extent_of_places = [](const OpCall& call, size_t) { return call.integer("extent"); },
         .cost = moves},
        {.name = "checked_label",
         .doc = "The labels. One outside of [0, classes) is an IndexError that names it and op.",
         .inputs = {"label"},
         .attrs = {{"classes", AttrKind::integer}, {"op", AttrKind::text}},
         .infer = infer_checked_index,
         .keeps = Keeps::nothing,
         .checks_values = true,
         .only_checks = true,
         .cost = moves},
        {.name = "coordinates",
         .doc = "int32: each element's place along the axis.",
         .attrs = {{"shape", AttrKind::integers}, {"axis", AttrKind::integer}},
         .infer = infer_coordinates,
         .keeps = Keeps::nothing,
         .cost = moves},
    };
}

std::vector<OpDef> by_value() {
    return {
        {.name = "mask_select",
         .doc =
             "The elements of x where mask is true, and their int32 indices in row-major order, counted in the flattened tensor.",
         .inputs = {"x", {"mask", OperandKind::mask}},
         .takes_64_bits = true,
         .grad = grad_mask_select,
         .direct = run_mask_select,
         .bounded = bounded_mask_select},
        {.name = "nonzero",
         .doc = "int32 coordinates [n, rank] of the true elements, in row-major order.",
         .inputs = {{"mask", OperandKind::mask}},
         .direct = run_nonzero,
         .bounded = bounded_nonzero},
        {.name = "nms",
         .doc =
             "int32 indices of the boxes (x0, y0, x1, y1) that stay when, by falling score, each box removes those that overlap it by more than iou_thresh. max_output 0: no limit.",
         .inputs = {"boxes", "scores"},
         .attrs = {{"iou_thresh", AttrKind::real},
                   {"max_output", AttrKind::integer, Attr{int64_t{0}}}},
         .direct = run_nms,
         .bounded = bounded_nms},
        {.name = "nms_kept",
         .doc =
             "bool: the boxes (x0, y0, x1, y1) that no box before them overlaps by more than iou_thresh, but for boxes that do not stay themselves.",
         .inputs = {"boxes"},
         .attrs = {{"iou_thresh", AttrKind::real}},
         .infer = infer_nms_kept,
         .loop = loop_nms_kept},
        {.name = "one_hot",
         .doc =
             "1 at x along a new last axis of num_classes, else 0. A label outside of [0, num_classes) is an IndexError.",
         .inputs = {"x"},
         .attrs = {{"num_classes", AttrKind::integer},
                   {"dtype", AttrKind::text, Attr{std::string("int32")}}},
         .takes_64_bits = true,
         .infer = infer_one_hot,
         .keeps = Keeps::nothing,
         .checks_values = true,
         .cost = moves},
    };
}

}  // namespace

void refuse_place(std::string_view op, int64_t value, int64_t axis, int64_t extent) {
    user_error({.what = cat(op, ": index ", value, " is out of range for axis ", axis,
                            " of extent ", extent),
                .why = extent ? cat("valid indices are ", -extent, " to ", extent - 1)
                              : "the axis is empty"},
               ErrorKind::index);
}

void refuse_label(std::string_view op, int64_t label, int64_t classes) {
    user_error({.what = cat(op, ": label ", label, " is out of range for ", classes, " classes"),
                .why = cat("valid labels are 0 to ", classes - 1)},
               ErrorKind::index);
}

std::vector<OpDef> index_ops() {
    std::vector<OpDef> ops = by_index();
    for (OpDef& op : by_value()) ops.push_back(std::move(op));
    return ops;
}

}  // namespace megjit::runtime
