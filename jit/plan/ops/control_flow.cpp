#include "jit/plan/ops/control_flow.h"

#include <algorithm>
#include <map>

#include "jit/plan/ops/control_flow_ops.h"
#include "runtime/core/random.h"
#include "runtime/host/error.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/loop.h"

namespace megjit::jit {
namespace {

namespace build = runtime::build;
using runtime::Tensors;

// Gives, for each random key that the body has drawn, the keys of all trips, in the order in which
// trips that run one after the other draw them.
Tensors keys_of_trips(std::span<const TensorRef> keys, int64_t trips, bool is_reverse) {
    std::map<runtime::RandomState*, int64_t> drawn;
    const auto count = [](const TensorRef& key) { return key->type().numel() / 4; };
    for (const TensorRef& key : keys) drawn[runtime::state_of(*key)] += count(key);
    std::map<runtime::RandomState*, std::pair<TensorRef, int64_t>>
        blocks;  // and the next of a trip
    for (const auto& [state, of_trip] : drawn) {
        state->take_back(static_cast<uint64_t>(of_trip));
        const TensorRef block = state->keys(trips * of_trip, &keys[0]->device());
        blocks[state] = {build::reshape(block, {trips, of_trip, 4}), 0};
    }
    Tensors result;
    for (const TensorRef& key : keys) {
        auto& [block, next] = blocks[runtime::state_of(*key)];
        const bool flips = is_reverse && trips > 0;
        const build::Axes begin{flips ? trips - 1 : 0, next, 0},
            end{flips ? -1 : trips, next + count(key), 4}, step{flips ? -1 : 1, 1, 1};
        const TensorRef of_key = runtime::apply(ops::slice(), {begin, end, step}, {&block, 1})[0];
        result.push_back(build::reshape(of_key, stacked(key->type(), trips).shape));
        next += count(key);
    }
    return result;
}

Type element_of(const Type& all) {
    return {all.dtype, runtime::Shape(all.shape.extents().subspan(1))};
}

bool is_key(const TensorRef& tensor) { return runtime::state_of(*tensor); }

// The tensors that either body has captured, each once.
Tensors captured_by(const BodyRecorder& a, const BodyRecorder& b) {
    Tensors all = a.captured();
    for (const TensorRef& tensor : b.captured())
        if (std::ranges::find(all, tensor) == all.end()) all.push_back(tensor);
    return all;
}

}  // namespace

Tensors scan(const BodyRecorder& body, const Tensors& carry, const Tensors& slices, int64_t trips,
             bool is_reverse) {
    Tensors captured = body.captured();
    const auto others = std::ranges::stable_partition(captured, is_key);
    const Tensors keys(captured.begin(), others.begin());
    Tensors inputs = carry;
    append(inputs, slices);
    append(inputs, keys_of_trips(keys, trips, is_reverse));
    inputs.insert(inputs.end(), others.begin(), others.end());
    return apply_scan(
        {print(body.graph(captured)), static_cast<int64_t>(carry.size()),
         static_cast<int64_t>(slices.size() + keys.size()), trips, int64_t{is_reverse}, int64_t{0}},
        inputs);
}

Tensors scan(const runtime::OpCall& call, std::span<const TensorRef> inputs) {
    const runtime::Loop loop = call.op.loop(call, inputs);
    runtime::Device& device = inputs[0]->device();
    BodyRecorder body(runtime::cat("a step of ", call.op.name));
    Tensors carries, slices;
    for (const TensorRef& carry : loop.carries)
        carries.push_back(body.add_input(carry->type(), device));
    for (const TensorRef& x : loop.slices)
        slices.push_back(body.add_input(element_of(x->type()), device));
    body.finish(loop.step(carries, slices));
    const Tensors made = scan(body, loop.carries, loop.slices, loop.steps(), loop.is_reverse);
    const auto last = std::span(made).first(carries.size());
    return loop.results(last, std::span(made).subspan(carries.size()));
}

Tensors while_loop(const BodyRecorder& condition, const BodyRecorder& body, const Tensors& carry) {
    const Tensors captured = captured_by(condition, body);
    if (std::ranges::any_of(captured, is_key))
        runtime::user_error(
            {.what = "while_loop: its body draws random numbers in a trace",
             .why = "nobody knows how many trips there are, and each needs its own",
             .fix = "say how many there may be, while_loop(..., max_trips=n), or use scan"},
            runtime::ErrorKind::runtime);
    Tensors inputs = carry;
    append(inputs, captured);
    return runtime::apply(ops::while_loop(),
                          {print(condition.graph(captured)), print(body.graph(captured))}, inputs);
}

Tensors cond(const TensorRef& predicate, const BodyRecorder& if_true,
             const BodyRecorder& if_false) {
    Tensors inputs = captured_by(if_true, if_false);
    const Attrs attrs{print(if_true.graph(inputs)), print(if_false.graph(inputs))};
    inputs.insert(inputs.begin(), predicate);
    return runtime::apply(ops::cond(), attrs, inputs);
}

}  // namespace megjit::jit
