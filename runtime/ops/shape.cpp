// runtime/ops/shape.cpp -- ops that move elements and compute nothing: views, broadcasting, slices,
// concatenation, padding; constants; parts of complex numbers.
// Rules:
//   reshape R1 equal element counts
//   broadcast_to B1 trailing extents equal or 1
//   transpose T1 perm names every axis once
//   slice L1 one begin, end, step per axis
//   slice L2 begin lies inside the axis
//   slice_set L3 value has the region's shape and dtype
//   concat C1 equal ranks
//   C2 equal extents besides the axis
//   pad P1 one width per axis, none negative
//   pad P2 reflect: widths below the extent, edge: not empty
#include "runtime/ops/builders.h"
#include "runtime/ops/refit.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Ints = std::vector<int64_t>;

Ints extents_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

std::vector<Type> infer_reshape(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Shape shape{std::span<const int64_t>(call.integers("shape"))};
    if (shape.numel() != x.numel())
        refuse(call,
               cat(to_string(x.shape), " has ", x.numel(), " elements and ", to_string(shape),
                   " has ", shape.numel()),
               "choose a shape with as many elements, or one extent of -1");
    return {{x.dtype, shape}};
}

std::vector<Type> infer_broadcast_to(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Shape shape{std::span<const int64_t>(call.integers("shape"))};
    const auto both = broadcast(x.shape, shape);
    if (!both || !(*both == shape))
        refuse(call,
               cat("each trailing extent of ", to_string(x.shape), " is 1 or that of ",
                   to_string(shape)),
               "insert axes of extent 1 with reshape", ErrorKind::runtime);
    return {{x.dtype, shape}};
}

std::vector<Type> infer_transpose(const OpCall& call) {
    const Type& x = call.inputs[0];
    const Ints& perm = call.integers("perm");
    uint32_t seen = 0;
    Shape shape;
    for (const int64_t axis : perm) {
        if (axis < 0 || axis >= x.rank() || (seen >> axis & 1u)) break;
        seen |= 1u << axis;
        shape.push_back(x.shape[static_cast<int>(axis)]);
    }
    if (shape.rank() != x.rank() || static_cast<int>(perm.size()) != x.rank())
        refuse(call, cat(to_string(Attr{perm}), " must name each of ", x.rank(), " axes once"));
    return {{x.dtype, shape}};
}

// Extents of the region that begin, end and step select; checks L1 and L2.
Shape region(const OpCall& call, const Shape& of) {
    const Ints &begin = call.integers("begin"), &end = call.integers("end"),
               &step = call.integers("step");
    const auto rank = static_cast<size_t>(of.rank());
    if (begin.size() != rank || end.size() != rank || step.size() != rank)
        refuse(call, cat("begin, end and step have one value for each of ", rank, " axes"));
    Shape shape;
    for (size_t i = 0; i < rank; ++i) {
        const int64_t extent = of[static_cast<int>(i)];
        if (step[i] == 0)
            refuse(call, cat("the step of axis ", i, " is 0"),
                   "use a step of at least 1 or at most -1");
        const int64_t span = step[i] > 0 ? end[i] - begin[i] : begin[i] - end[i],
                      size = step[i] > 0 ? step[i] : -step[i];
        const int64_t count = span <= 0 ? 0 : (span + size - 1) / size,
                      last = begin[i] + (count - 1) * step[i];
        if (count > 0 && (begin[i] < 0 || begin[i] >= extent || last < 0 || last >= extent))
            refuse(
                call,
                cat(begin[i], ":", end[i], ":", step[i], " leaves axis ", i, " of extent ", extent),
                {}, ErrorKind::index);
        shape.push_back(count);
    }
    return shape;
}

Attrs region_attrs(const OpCall& call) {
    return {call.integers("begin"), call.integers("end"), call.integers("step")};
}

std::vector<Type> infer_slice(const OpCall& call) {
    return {{call.inputs[0].dtype, region(call, call.inputs[0].shape), call.inputs[0].layout}};
}

std::vector<Type> infer_slice_set(const OpCall& call) {
    const Type &x = call.inputs[0], &value = call.inputs[1];
    const Shape shape = region(call, x.shape);
    if (!(value.shape == shape) || value.dtype != x.dtype)
        refuse(call,
               cat("the region needs a value of ", to_string(Type{x.dtype, shape}), ", not ",
                   to_string(value)),
               "broadcast and cast the value first");
    return {{x.dtype, x.shape}};
}

std::vector<Type> infer_concat(const OpCall& call) {
    const Type& first = call.inputs[0];
    const int axis = normalize_axis(call.integer("axis"), first.rank(), call.op.name);
    Shape shape = first.shape;
    for (size_t k = 1; k < call.inputs.size(); ++k) {
        const Shape& other = call.inputs[k].shape;
        if (other.rank() != first.rank())
            refuse(call,
                   cat("part 0 has rank ", first.rank(), ", part ", k, " has rank ", other.rank()));
        for (int i = 0; i < first.rank(); ++i)
            if (i != axis && other[i] != shape[i])
                refuse(call,
                       cat("axis ", i, " has extent ", shape[i], " in part 0 and ", other[i],
                           " in part ", k),
                       cat("only axis ", axis, " may differ"));
        shape[axis] += other[axis];
    }
    return {{first.dtype, shape, first.layout}};
}

Grads grad_concat(const GradCall& g) {
    const int axis =
        normalize_axis(g.call.integer("axis"), g.inputs[0]->shape().rank(), g.call.op.name);
    const auto at = static_cast<size_t>(axis);
    Grads grads(g.inputs.size());
    Ints begin(static_cast<size_t>(g.inputs[0]->shape().rank()), 0),
        end = extents_of(g.outputs[0]->shape());
    const Ints step(begin.size(), 1);
    end[at] = 0;
    for (size_t k = 0; k < grads.size(); ++k) {
        begin[at] = end[at];
        end[at] += g.inputs[k]->shape()[axis];
        if (g.needs[k]) grads[k] = build::op("slice", {g.out_grads[0]}, {begin, end, step});
    }
    return grads;
}

// Returns the extents without the padding (sign -1) or with it (sign 1); checks P1 and P2.
Shape padded(const OpCall& call, const Shape& of, int sign) {
    const Ints &before = call.integers("before"), &after = call.integers("after");
    const std::string& mode = call.text("mode");
    if (mode != "constant" && mode != "edge" && mode != "reflect")
        refuse(call, cat("the mode is \"", mode, "\""),
               "use \"constant\", \"edge\" or \"reflect\"");
    if (before.size() != static_cast<size_t>(of.rank()) || after.size() != before.size())
        refuse(call, cat("before and after have one width for each of ", of.rank(), " axes"));
    Shape shape = of;
    for (int i = 0; i < of.rank(); ++i) {
        const int64_t low = before[static_cast<size_t>(i)], high = after[static_cast<size_t>(i)];
        if (low < 0 || high < 0)
            refuse(call, cat("the widths of axis ", i, " are ", low, " and ", high),
                   "use slice to make a tensor smaller");
        shape[i] += sign * (low + high);
        const int64_t inner = sign > 0 ? of[i] : shape[i];
        if ((low > 0 || high > 0) &&
            ((mode == "edge" && inner < 1) || (mode == "reflect" && std::max(low, high) >= inner)))
            refuse(call, cat("mode ", mode, " cannot make ", std::max(low, high),
                             " elements from extent ", inner, " of axis ", i));
    }
    return shape;
}

std::vector<Type> infer_pad(const OpCall& call) {
    const Type& x = call.inputs[0];
    return {{x.dtype, padded(call, x.shape, 1), x.layout}};
}
std::vector<Type> infer_pad_grad(const OpCall& call) {
    if (!is_floating(call.inputs[0].dtype)) refuse(call, "a gradient has a floating dtype");
    return {{call.inputs[0].dtype, padded(call, call.inputs[0].shape, -1)}};
}

Grads grad_pad(const GradCall& g) {
    const Ints &before = g.call.integers("before"), &after = g.call.integers("after");
    const std::string& mode = g.call.text("mode");
    if (mode != "constant") return {build::op("pad_grad", {g.out_grads[0]}, {before, after, mode})};
    Ints end = extents_of(g.inputs[0]->shape());
    for (size_t i = 0; i < end.size(); ++i) end[i] += before[i];
    return {build::op("slice", {g.out_grads[0]}, {before, end, Ints(end.size(), 1)})};
}

std::vector<Type> infer_full(const OpCall& call) {
    return {{call.dtype("dtype"), Shape{std::span<const int64_t>(call.integers("shape"))}}};
}

std::vector<Type> infer_complex(const OpCall& call) {
    const Type &re = call.inputs[0], &im = call.inputs[1];
    if (re.dtype != DType::f32 || im.dtype != DType::f32 || !(re.shape == im.shape))
        refuse(call, "both parts are float32 of one shape", "cast and broadcast them first");
    return {{DType::c64, re.shape}};
}
std::vector<Type> infer_part(const OpCall& call) {
    if (call.inputs[0].dtype != DType::c64)
        refuse(call, "the tensor is not complex", {}, ErrorKind::type);
    return {{DType::f32, call.inputs[0].shape}};
}

TensorRef zero_part(const TensorRef& like) {
    return build::full(like->shape(), 0, DType::f32, like->device());
}

std::vector<Type> infer_fixed_batch(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (x.rank() == 0 || x.shape[0] != call.integer("batch"))
        refuse(call,
               cat("the recorded function takes the batch of ", call.integer("batch"),
                   " as a number, at ", call.text("line")),
               "write x.shape[0] or -1 there, and : for all rows, or dump once for each batch");
    return {x};
}

Tensors expand_shape_of(const OpCall& call, std::span<const TensorRef> inputs) {
    Tensors extents;
    for (int64_t extent : call.inputs[0].shape)
        extents.push_back(
            build::full({1}, static_cast<double>(extent), DType::i32, inputs[0]->device()));
    if (extents.empty()) return {build::full({0}, 0, DType::i32, inputs[0]->device())};
    return build::op_n("concat", extents, {int64_t{0}});
}

std::vector<AttrSpec> region_specs() {
    return {
        {"begin", AttrKind::integers}, {"end", AttrKind::integers}, {"step", AttrKind::integers}};
}

std::vector<OpDef> moving_ops() {
    return {
        {.name = "reshape",
         .dumped_as = "Reshape",
         .doc = "The same elements in row-major order under another shape; shares memory.",
         .inputs = {"x"},
         .attrs = {{"shape", AttrKind::integers}},
         .infer = infer_reshape,
         .grad = [](const GradCall& g) -> Grads {
        return {build::reshape(g.out_grads[0], g.inputs[0]->shape())};
    },
         .keeps = Keeps::nothing,
         .is_view = true,
         .refit = refit_reshape,
         .access = Access::reshaped,
         .cost = [](const OpCall&, std::span<const Type>) { return Cost{}; }},
        {.name = "broadcast_to",
         .dumped_as = "Broadcast",
         .doc = "Repeats axes of extent 1, and new leading axes, up to `shape`.",
         .inputs = {"x"},
         .attrs = {{"shape", AttrKind::integers}},
         .infer = infer_broadcast_to,
         .grad = [](const GradCall& g) -> Grads {
        return {build::reduce_to(g.out_grads[0], g.inputs[0]->shape())};
    },
         .keeps = Keeps::nothing,
         .refit = refit_broadcast,
         .access = Access::broadcast,
         .cost = moves},
        {.name = "transpose",
         .dumped_as = "Dimshuffle",
         .doc = "Axis i of the result is axis perm[i] of x.",
         .inputs = {"x"},
         .attrs = {{"perm", AttrKind::integers}},
         .infer = infer_transpose,
         .grad = [](const GradCall& g) -> Grads {
        const Ints& perm = g.call.integers("perm");
        Ints inverse(perm.size());
        for (size_t i = 0; i < perm.size(); ++i)
            inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
        return {build::transpose(g.out_grads[0], inverse)};
    },
         .keeps = Keeps::nothing,
         .access = Access::permuted,
         .cost = moves},
        {.name = "slice",
         .dumped_as = "Subtensor",
         .doc =
             "x[begin:end:step] on every axis. Bounds are normalised: 0 <= begin < extent, end exclusive and -1 where a negative step runs to the front.",
         .inputs = {"x"},
         .attrs = region_specs(),
         .takes_64_bits = true,
         .infer = infer_slice,
         .grad = [](const GradCall& g) -> Grads {
        const TensorRef zeros = build::zeros_like(g.inputs[0]);
        return {build::op("slice_set", {zeros, g.out_grads[0]}, region_attrs(g.call))};
    },
         .keeps = Keeps::nothing,
         .refit = refit_region,
         .follows_layout = true,
         .cost = moves},
        {.name = "slice_set",
         .dumped_as = "SetSubtensor",
         .doc = "x with x[begin:end:step] replaced by value.",
         .inputs = {"x", "value"},
         .attrs = region_specs(),
         .takes_64_bits = true,
         .infer = infer_slice_set,
         .grad = [](const GradCall& g) -> Grads {
        const TensorRef& dy = g.out_grads[0];
        Grads grads(2);
        if (g.needs[0])
            grads[0] = build::op(
                "slice_set", {dy, build::full(g.inputs[1]->shape(), 0, dy->dtype(), dy->device())},
                region_attrs(g.call));
        if (g.needs[1]) grads[1] = build::op("slice", {dy}, region_attrs(g.call));
        return grads;
    },
         .keeps = Keeps::nothing,
         .refit = refit_region,
         .cost = moves},
    };
}

std::vector<OpDef> making_ops() {
    return {
        {.name = "concat",
         .dumped_as = "Concat",
         .doc = "Joins tensors along one axis.",
         .inputs = {"xs"},
         .variadic = true,
         .attrs = {{"axis", AttrKind::integer}},
         .promotion = Promotion::arithmetic,
         .takes_64_bits = true,
         .infer = infer_concat,
         .grad = grad_concat,
         .keeps = Keeps::nothing,
         .follows_layout = true,
         .cost = moves},
        {.name = "pad",
         .dumped_as = "Padding",
         .doc =
             "Widens every axis: with `value` (constant), the border element (edge), or mirrored without the border (reflect).",
         .inputs = {"x"},
         .attrs = {{"before", AttrKind::integers},
                   {"after", AttrKind::integers},
                   {"mode", AttrKind::text, Attr{std::string("constant")}},
                   {"value", AttrKind::real, Attr{0.0}}},
         .takes_64_bits = true,
         .infer = infer_pad,
         .grad = grad_pad,
         .keeps = Keeps::nothing,
         .follows_layout = true,
         .cost = moves},
        {.name = "pad_grad",
         .doc =
             "Adds each padded element to the one that it came from: gradient of pad, modes edge and reflect.",
         .inputs = {"dy"},
         .attrs = {{"before", AttrKind::integers},
                   {"after", AttrKind::integers},
                   {"mode", AttrKind::text}},
         .takes_64_bits = true,
         .infer = infer_pad_grad,
         .grad = [](const GradCall& g) -> Grads {
        return {build::op(
            "pad", {g.out_grads[0]},
            {g.call.integers("before"), g.call.integers("after"), g.call.text("mode"), 0.0})};
    },
         .keeps = Keeps::nothing,
         .cost = moves},
        // No other op has its result on another device than its operand.
        {.name = "copy_to",
         .doc = "x on another device, by name.",
         .inputs = {"x"},
         .attrs = {{"device", AttrKind::text}},
         .takes_64_bits = true,
         .grad = [](const GradCall& g) -> Grads {
        return {
            build::op("copy_to", {g.out_grads[0]}, {std::string(g.inputs[0]->device().name())})};
    },
         .keeps = Keeps::nothing,
         .direct = [](const OpCall& call, std::span<const TensorRef> inputs) -> Tensors {
        const TensorRef there = copied_to(inputs[0], find_device(call.text("device")));
        return {make_tensor(there->type(), there->storage())};
    },
         .follows_layout = true},
        {.name = "full",
         .dumped_as = "Fill",
         .doc = "A tensor of one value.",
         .attrs = {{"shape", AttrKind::integers},
                   {"value", AttrKind::real},
                   {"dtype", AttrKind::text, Attr{std::string("float32")}}},
         .infer = infer_full,
         .keeps = Keeps::nothing,
         .cost = moves},
        {.name = "fixed_batch",
         .doc =
             "x, whose leading extent stays what it was: the program took it for a number, at `line`.",
         .inputs = {"x"},
         .attrs = {{"batch", AttrKind::integer}, {"line", AttrKind::text}},
         .takes_64_bits = true,
         .infer = infer_fixed_batch,
         .grad = [](const GradCall& g) -> Grads { return {g.out_grads[0]}; },
         .keeps = Keeps::nothing,
         .is_view = true,
         .expand = [](const OpCall&, std::span<const TensorRef> inputs) -> Tensors {
        return {inputs[0]};
    }},
        {.name = "shape_of",
         .dumped_as = "GetVarShape",
         .doc = "The extents of x, int32.",
         .inputs = {"x"},
         .takes_64_bits = true,
         .infer = [](const OpCall& call) -> std::vector<Type> {
        return {{DType::i32, {call.inputs[0].rank()}}};
    },
         .keeps = Keeps::nothing,
         .expand = expand_shape_of},
        {.name = "complex",
         .doc = "real + i imag.",
         .inputs = {"real", "imag"},
         .infer = infer_complex,
         .grad = [](const GradCall& g) -> Grads {
        return {build::op("real", {g.out_grads[0]}), build::op("imag", {g.out_grads[0]})};
    },
         .keeps = Keeps::nothing,
         .cost = moves},
        {.name = "real",
         .doc = "Real part of a complex tensor.",
         .inputs = {"x"},
         .infer = infer_part,
         .grad = [](const GradCall& g) -> Grads {
        return {build::op("complex", {g.out_grads[0], zero_part(g.out_grads[0])})};
    },
         .keeps = Keeps::nothing,
         .cost = moves},
        {.name = "imag",
         .doc = "Imaginary part of a complex tensor.",
         .inputs = {"x"},
         .infer = infer_part,
         .grad = [](const GradCall& g) -> Grads {
        return {build::op("complex", {zero_part(g.out_grads[0]), g.out_grads[0]})};
    },
         .keeps = Keeps::nothing,
         .cost = moves},
    };
}

}  // namespace

std::vector<OpDef> shape_ops() {
    std::vector<OpDef> ops = moving_ops();
    for (OpDef& op : making_ops()) ops.push_back(std::move(op));
    return ops;
}

}  // namespace megjit::runtime
