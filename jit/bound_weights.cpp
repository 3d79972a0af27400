#include "jit/bound_weights.h"

#include <mutex>

#include "jit/passes/passes.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/stream.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

// By value: "relayout("p7") f32[8, 8](#12)". Tensors are told apart by their ids.
std::vector<std::string> keys_of(const Graph& prologue, std::span<const TensorRef> inputs) {
    std::vector<std::string> keys(prologue.value_count());
    for (const Node& node : prologue.nodes()) {
        std::string key;
        if (node.kind == NodeKind::op) {
            key = node.op->name + "(";
            for (const runtime::Attr& attr : node.attrs) key += runtime::to_string(attr) + ",";
            for (ValueId input : node.inputs) key += keys[at(input)] + ",";
            key += ")";
        } else if (node.kind == NodeKind::input) {
            const TensorRef& given = inputs[static_cast<size_t>(node.slot)];
            key = runtime::cat("#", given ? given->data_id() : 0);
        } else if (const TensorRef& constant = node.constant; constant->type().bytes() <= 64) {
            key = "=" + std::string(constant->as<char>(), constant->type().bytes());
        } else {
            key = runtime::cat("#", constant->id());
        }
        for (size_t i = 0; i < node.outputs.size(); ++i)
            keys[at(node.outputs[i])] =
                runtime::cat(i, " ", to_string(prologue.type(node.outputs[i])), " ", key);
    }
    return keys;
}

}  // namespace

BoundWeights::Values BoundWeights::get(const Graph& prologue, std::span<const TensorRef> inputs) {
    const std::vector<std::string> keys = keys_of(prologue, inputs);
    Values values;
    Graph missing = prologue;
    missing.outputs.clear();
    std::unique_lock lock(mutex_);
    for (ValueId output : prologue.outputs) {
        const auto found = known_.find(keys[at(output)]);
        values.outputs.push_back(found == known_.end() ? nullptr : found->second);
        if (!values.outputs.back()) missing.outputs.push_back(output);
    }
    lock.unlock();
    if (missing.outputs.empty()) return values;
    const std::vector<TensorRef> fresh = interpret(drop_dead(std::move(missing)), inputs);
    runtime::Stream& stream = prologue.device().stream();
    stream.synchronize();  // later calls use it: it must not be lost
    for (const TensorRef& tensor : fresh) {
        stream.refuse_lost(tensor->storage()->ready());
        runtime::Rematerializer::instance().keep(*tensor);
    }
    auto next = fresh.begin();
    lock.lock();
    for (size_t i = 0; i < values.outputs.size(); ++i) {
        if (values.outputs[i]) continue;
        // Another program may have computed it meanwhile.
        const auto [known, is_new] = known_.emplace(keys[at(prologue.outputs[i])], *next++);
        values.outputs[i] = known->second;
        if (is_new) values.fresh_bytes += known->second->type().bytes();
    }
    return values;
}

TensorRef BoundWeights::readable_on(runtime::Device& device, const TensorRef& constant) {
    const std::string key = runtime::cat(device.name(), " #", constant->id());
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    TensorRef there = runtime::readable_on(device, constant);
    if (there == constant) return there;
    const std::lock_guard lock(mutex_);
    return known_.emplace(key, std::move(there)).first->second;  // perhaps another program's
}

void BoundWeights::release_unused() {
    std::vector<TensorRef> unused;  // go after the lock
    const std::lock_guard lock(mutex_);
    for (auto known = known_.begin(); known != known_.end();) {
        if (known->second->use_count() > 1) {
            ++known;
            continue;
        }
        unused.push_back(std::move(known->second));
        known = known_.erase(known);
    }
}

}  // namespace megjit::jit
