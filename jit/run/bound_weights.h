// jit/run/bound_weights.h -- BoundWeights: what the prologues of a traced function's programs have
// computed and packed, and its constants on a device. Versions of several shapes pack the same
// weights alike: each is kept once, as long as a program holds it.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "jit/step/graph.h"
#include "runtime/host/mutex.h"

namespace megjit::jit {

// A fixed weight as a program packs it: how it comes about, and its bytes.
struct PackedWeight {
    std::string key;
    TensorRef bytes;
};

// The packed weights of a file, by keys that mean the same in every process: ops, attributes,
// types with lasting names of layouts, and constants by their place in the file.
class PackedWeights {
public:
    PackedWeights(std::span<const PackedWeight> weights, std::span<const TensorRef> constants);
    // Null where the file does not have it.
    TensorRef find(const std::string& key, const Type& type) const;
    // "constant 7", or by value what passes have computed.
    std::string name_of(const runtime::Tensor& constant) const;

private:
    std::unordered_map<std::string, TensorRef> bytes_;  // by key
    std::unordered_map<uint64_t, size_t> places_;  // of constants, by id
};

class BoundWeights {
public:
    explicit BoundWeights(std::shared_ptr<const PackedWeights> packed = nullptr)
        : packed_(std::move(packed)) {}

    struct Values {
        std::vector<TensorRef> outputs;  // of the prologue, each with its data
        size_t fresh_bytes = 0;  // of outputs that no program held before
    };
    // What the prologue gives for these tensors, by slot: a tensor never changes.
    Values get(const Graph& prologue, std::span<const TensorRef> inputs);

    // What it has of constants on the host, for a file.
    std::vector<PackedWeight> for_file() const;

    // The constant itself where the device can read it, else a copy on the device.
    TensorRef readable_on(runtime::Device& device, const TensorRef& constant);

    void release_unused();  // drops what no program holds any more

private:
    struct Known {
        TensorRef value;
        std::string lasting_key;  // "": of this process alone
    };
    void compute(const Graph& prologue, std::span<const TensorRef> inputs,
                 std::vector<TensorRef>& outputs) const;

    const std::shared_ptr<const PackedWeights> packed_;
    mutable runtime::Mutex mutex_{"the bound weights of a function"};
    std::unordered_map<std::string, Known> known_;  // by what it is computed from, and how
};

}  // namespace megjit::jit
