#include "jit/run/bound_weights.h"

#include <mutex>

#include "codegen/cache_file.h"
#include "runtime/core/rematerializer.h"
#include "runtime/core/stream.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;

constexpr size_t kMostBytesAsText = 64;

std::string bytes_of(const runtime::Tensor& tensor) {
    return {tensor.as<char>(), tensor.type().bytes()};
}

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
            key = cat("#", given ? given->data_id() : 0);
        } else if (node.constant->type().bytes() <= kMostBytesAsText) {
            key = "=" + bytes_of(*node.constant);
        } else {
            key = cat("#", node.constant->id());
        }
        for (size_t i = 0; i < node.outputs.size(); ++i)
            keys[at(node.outputs[i])] =
                cat(i, " ", to_string(prologue.type(node.outputs[i])), " ", key);
    }
    return keys;
}

// Returns keys that are the same in every process; "" where there is no such key.
std::vector<std::string> lasting_keys_of(const Graph& prologue, const PackedWeights& packed) {
    std::vector<std::string> keys(prologue.value_count());
    for (const Node& node : prologue.nodes()) {
        std::string key;
        if (node.kind == NodeKind::constant) key = packed.name_of(*node.constant);
        if (node.kind == NodeKind::op) {
            key = node.op->name + "(";
            if (node.op != &ops::relayout())  // its attribute is the type's layout
                for (const runtime::Attr& attr : node.attrs) key += runtime::to_string(attr) + ",";
            for (ValueId input : node.inputs) {
                if (keys[at(input)].empty()) key.clear();
                if (!key.empty()) key += keys[at(input)] + ",";
            }
        }
        for (size_t i = 0; i < node.outputs.size(); ++i) {
            Type type = prologue.type(node.outputs[i]);
            const std::string layout = lasting_name(type.layout);
            type.layout = runtime::Layout::row_major;
            if (!key.empty() && !layout.empty())
                keys[at(node.outputs[i])] = cat(i, " ", to_string(type), "@", layout, " ", key);
        }
    }
    return keys;
}

}  // namespace

// ---- of a file

PackedWeights::PackedWeights(std::span<const PackedWeight> weights,
                             std::span<const TensorRef> constants) {
    for (const PackedWeight& weight : weights) bytes_.emplace(weight.key, weight.bytes);
    for (const TensorRef& constant : constants) places_.emplace(constant->id(), places_.size());
}

TensorRef PackedWeights::find(const std::string& key, const Type& type) const {
    const auto found = bytes_.find(key);
    return key.empty() || found == bytes_.end() || found->second->type().bytes() != type.bytes()
               ? nullptr
               : runtime::make_tensor(type, found->second->storage());
}

std::string PackedWeights::name_of(const runtime::Tensor& constant) const {
    if (const auto place = places_.find(constant.id()); place != places_.end())
        return cat("constant ", place->second);
    const std::string bytes = bytes_of(constant);
    return cat("value ", bytes.size(), " ", codegen::hash(bytes, 0), " ", codegen::hash(bytes, 1));
}

// ---- the weights of programs

BoundWeights::Values BoundWeights::get(const Graph& prologue, std::span<const TensorRef> inputs) {
    const std::vector<std::string> keys = keys_of(prologue, inputs);
    std::vector<std::string> lasting_keys(prologue.value_count());
    if (packed_ && prologue.device().is_host()) lasting_keys = lasting_keys_of(prologue, *packed_);
    Values values;
    bool is_complete = true;
    std::unique_lock lock(mutex_);
    for (ValueId output : prologue.outputs) {
        const auto found = known_.find(keys[at(output)]);
        TensorRef value = found == known_.end() ? nullptr : found->second.value;
        if (!value && packed_)
            value = packed_->find(lasting_keys[at(output)], prologue.type(output));
        is_complete = is_complete && value;
        values.outputs.push_back(std::move(value));
    }
    lock.unlock();
    if (!is_complete) compute(prologue, inputs, values.outputs);
    lock.lock();
    for (size_t i = 0; i < values.outputs.size(); ++i) {
        // Another program may have computed the value meanwhile.
        const size_t output = at(prologue.outputs[i]);
        const auto [known, is_new] =
            known_.try_emplace(keys[output], values.outputs[i], lasting_keys[output]);
        values.outputs[i] = known->second.value;
        if (is_new && values.outputs[i]->storage()->is_owned())
            values.fresh_bytes += values.outputs[i]->type().bytes();
    }
    return values;
}

// Computes those outputs that are null.
void BoundWeights::compute(const Graph& prologue, std::span<const TensorRef> inputs,
                           std::vector<TensorRef>& outputs) const {
    Graph missing = prologue;
    missing.outputs.clear();
    for (size_t i = 0; i < outputs.size(); ++i)
        if (!outputs[i]) missing.outputs.push_back(prologue.outputs[i]);
    const std::vector<TensorRef> fresh = interpret(drop_dead(std::move(missing)), inputs);
    runtime::Stream& stream = prologue.device().stream();
    stream.synchronize();  // later calls use the values: none may be lost
    auto next = fresh.begin();
    for (TensorRef& output : outputs) {
        if (output) continue;
        output = *next++;
        stream.refuse_lost(output->storage()->ready());
        runtime::Rematerializer::instance().keep(*output);
    }
}

std::vector<PackedWeight> BoundWeights::for_file() const {
    std::vector<PackedWeight> weights;
    const std::lock_guard lock(mutex_);
    for (const auto& [key, known] : known_)
        if (!known.lasting_key.empty()) {
            const Type type{.dtype = runtime::DType::u8,
                            .shape = {static_cast<int64_t>(known.value->type().bytes())}};
            weights.push_back(
                {known.lasting_key, runtime::make_tensor(type, known.value->storage())});
        }
    return weights;
}

TensorRef BoundWeights::readable_on(runtime::Device& device, const TensorRef& constant) {
    const std::string key = cat(device.name(), " #", constant->id());
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = known_.find(key); found != known_.end()) return found->second.value;
    }
    TensorRef there = runtime::readable_on(device, constant);
    if (there == constant) return there;
    const std::lock_guard lock(mutex_);
    return known_.try_emplace(key, std::move(there), "").first->second.value;  // perhaps another's
}

void BoundWeights::release_unused() {
    std::vector<TensorRef> unused;  // go after the lock
    const std::lock_guard lock(mutex_);
    for (auto known = known_.begin(); known != known_.end();) {
        if (known->second.value->use_count() > 1) {
            ++known;
            continue;
        }
        unused.push_back(std::move(known->second.value));
        known = known_.erase(known);
    }
}

}  // namespace megjit::jit
