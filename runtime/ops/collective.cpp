// runtime/ops/collective.cpp -- what the processes of a group compute together, and messages
// between two of them (runtime/core/communicator.h).
//
// The parts of all processes lie side by side along a first axis: [size, ...]. The root is the
// group's first process; where only the root has a result, other processes have nothing but the
// number for `after`, through which gradients reach them.
// Rules:
//   O1 complex numbers have no largest or smallest one
//   P1 the first axis has an extent for each process of the group
#include <algorithm>

#include "runtime/ops/builders.h"
#include "runtime/ops/ordered.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Infer = std::vector<Type> (*)(const OpCall&);
using Grad = Grads (*)(const GradCall&);

const AttrSpec kGroup{"group", AttrKind::text}, kSize{"size", AttrKind::integer},
    kIsRoot{"is_root", AttrKind::integer}, kPeer{"peer", AttrKind::integer},
    kIsTransient{"is_transient", AttrKind::integer, Attr(int64_t{0})};

const Type kToken{DType::f32, {}};

int64_t members_of(const OpCall& call) {
    const int64_t size = call.integer("size");
    if (size < 1) refuse(call, cat("a group has at least one process, not ", size));
    return size;
}
Shape stacked(int64_t size, const Shape& shape) {
    Shape result{size};
    for (const int64_t extent : shape) result.push_back(extent);
    return result;
}
Shape part_of(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (x.rank() == 0 || x.shape[0] != members_of(call))
        refuse(call, cat("the group has ", call.integer("size"),
                         " processes, and the first axis of ", to_string(x), " as many parts"));
    return Shape{x.shape.extents().subspan(1)};
}

std::vector<Type> infer_same(const OpCall& call) {
    return {{call.inputs[0].dtype, call.inputs[0].shape}, kToken};
}
std::vector<Type> infer_extremum(const OpCall& call) {
    if (call.inputs[0].dtype == DType::c64) refuse(call, "complex numbers have no order");
    return infer_same(call);
}
std::vector<Type> infer_at_root(const OpCall& call) {
    if (!call.flag("is_root")) return {kToken};
    return infer_same(call);
}
std::vector<Type> infer_stacked(const OpCall& call) {
    const Type& x = call.inputs[0];
    return {{x.dtype, stacked(members_of(call), x.shape)}, kToken};
}
std::vector<Type> infer_stacked_at_root(const OpCall& call) {
    if (!call.flag("is_root")) return {kToken};
    return infer_stacked(call);
}
std::vector<Type> infer_own_part(const OpCall& call) {
    return {{call.inputs[0].dtype, part_of(call)}, kToken};
}
std::vector<Type> infer_parts(const OpCall& call) {
    part_of(call);
    return infer_same(call);
}
std::vector<Type> infer_send(const OpCall&) { return {kToken}; }
std::vector<Type> infer_receive(const OpCall& call) {
    return {{call.dtype("dtype"), Shape{std::span<const int64_t>(call.integers("shape"))}}, kToken};
}

// The first result of an op on one tensor, with those attributes of the call that the op knows by
// name.
TensorRef call(std::string_view name, const TensorRef& x, const GradCall& g) {
    const OpDef& op = find_op(name);
    Attrs attrs;
    for (const AttrSpec& spec : op.attrs) {
        const auto found = std::ranges::find(g.call.op.attrs, spec.name, &AttrSpec::name);
        attrs.push_back(found == g.call.op.attrs.end()
                            ? *spec.fallback
                            : g.call.attrs[static_cast<size_t>(found - g.call.op.attrs.begin())]);
    }
    return apply(op, attrs, {&x, 1})[0];
}
// The gradient of the result; if this process has or uses none, a replacement.
TensorRef gradient(const GradCall& g, const Type& type) {
    if (g.outputs.size() > 1 && g.out_grads[0]) return g.out_grads[0];
    return build::full(type.shape, 0, type.dtype, g.inputs[0]->device());
}
TensorRef gradient(const GradCall& g) {
    return gradient(g, {g.outputs[0]->dtype(), g.outputs[0]->shape()});
}
bool is_root(const GradCall& g) { return g.call.flag("is_root"); }

Grads grad_sum(const GradCall& g) { return {call("all_reduce_sum", gradient(g), g)}; }
// The gradient goes to every process where the extremum was found.
Grads grad_extremum(const GradCall& g) {
    const TensorRef found = build::op("equal", {g.inputs[0], g.outputs[0]});
    return {build::mul(call("all_reduce_sum", gradient(g), g),
                       build::cast(found, g.inputs[0]->dtype()))};
}
Grads grad_reduce(const GradCall& g) {
    return {call("broadcast_from_root", gradient(g, g.call.inputs[0]), g)};
}
Grads grad_broadcast(const GradCall& g) {
    const TensorRef sum = call("reduce_sum_to_root", gradient(g), g);
    return {is_root(g) ? sum : TensorRef()};
}
Grads grad_gathered(const GradCall& g) {
    Type all = g.call.inputs[0];
    all.shape = stacked(g.call.integer("size"), all.shape);
    return {call("scatter_from_root", gradient(g, all), g)};
}
Grads grad_scattered(const GradCall& g) {
    const TensorRef all = call("gather_to_root", gradient(g), g);
    return {is_root(g) ? all : TensorRef()};
}
Grads grad_all_gather(const GradCall& g) { return {call("reduce_scatter_sum", gradient(g), g)}; }
Grads grad_reduce_scatter(const GradCall& g) { return {call("all_gather", gradient(g), g)}; }
Grads grad_all_to_all(const GradCall& g) { return {call("all_to_all", gradient(g), g)}; }
Grads grad_send(const GradCall& g) {
    const Type& x = g.call.inputs[0];
    const Attrs attrs{g.call.text("group"), g.call.integer("peer"),
                      std::vector<int64_t>(x.shape.begin(), x.shape.end()),
                      std::string(info(x.dtype).name)};
    return {build::op("receive_from", {gradient(g, kToken)}, attrs)};
}
Grads grad_receive(const GradCall& g) {
    call("send_to", gradient(g), g);
    return {TensorRef()};
}

// A second run is never worthwhile, and other threads of the program go on meanwhile.
Cost cost_of_network(const OpCall& call, std::span<const Type> outputs) {
    return {1e9, bytes_of(call, outputs)};
}

OpDef collective(std::string name, std::string doc, std::vector<AttrSpec> attrs, Infer infer,
                 Grad grad, Keeps keeps = Keeps::nothing) {
    attrs.insert(attrs.begin(), kGroup);
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x", {"after", OperandKind::after}},
            .variadic = true,
            .attrs = std::move(attrs),
            .takes_64_bits = true,
            .infer = infer,
            .grad = grad,
            .keeps = keeps,
            .cost = cost_of_network};
}

}  // namespace

bool is_transient(const OpDef& op, const Attrs& attrs) {
    return !op.attrs.empty() && op.attrs.back().name == kIsTransient.name &&
           std::get<int64_t>(attrs.back());
}

std::vector<OpDef> collective_ops() {
    return {
        collective("all_reduce_sum", "Sum over the processes, in each of them.", {}, infer_same,
                   grad_sum),
        collective("all_reduce_prod", "Product over the processes, in each of them.", {},
                   infer_same, nullptr),
        collective("all_reduce_max", "Largest value over the processes, in each of them.", {},
                   infer_extremum, grad_extremum, Keeps::both),
        collective("all_reduce_min", "Smallest value over the processes, in each of them.", {},
                   infer_extremum, grad_extremum, Keeps::both),
        collective("reduce_sum_to_root", "Sum over the processes, in the root.", {kIsRoot},
                   infer_at_root, grad_reduce),
        collective("broadcast_from_root", "The root's x, in each process.", {kIsRoot}, infer_same,
                   grad_broadcast),
        collective("all_gather",
                   "[size, ...]: each process's x, in each of them. is_transient: a graph lets go "
                   "of the result, and gathers it again, as the pass rematerialize says.",
                   {kSize, kIsTransient}, infer_stacked, grad_all_gather),
        collective("reduce_scatter_sum", "The sum over the processes of the part of this one.",
                   {kSize}, infer_own_part, grad_reduce_scatter),
        collective("gather_to_root", "[size, ...]: each process's x, in the root.",
                   {kSize, kIsRoot}, infer_stacked_at_root, grad_gathered),
        collective("scatter_from_root", "This process's part of the root's x.", {kSize, kIsRoot},
                   infer_own_part, grad_scattered),
        collective("all_to_all", "The part for this process of each process's x.", {kSize},
                   infer_parts, grad_all_to_all),
        collective("send_to", "x goes to the process `peer` of the group.", {kPeer}, infer_send,
                   grad_send),
        collective("receive_from",
                   "What the process `peer` of the group sends; of x only the gradient's way.",
                   {kPeer, {"shape", AttrKind::integers}, {"dtype", AttrKind::text}}, infer_receive,
                   grad_receive),
    };
}

}  // namespace megjit::runtime
