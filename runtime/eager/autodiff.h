// runtime/eager/autodiff.h -- Tape: what a GradManager records and how it runs backward.
// In: applications seen by dispatch. Out: gradients, computed by ops that go through dispatch
// again, so that outer tapes and traces see them.
#pragma once

#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/eager/dispatch.h"
#include "runtime/eager/gradient_sums.h"

namespace megjit::runtime {

// Backward of something that is not an op (autodiff.Function): out-gradients to in-gradients.
using CustomBackward = std::function<Tensors(std::span<const TensorRef> out_grads)>;

// Differentiates an op through its expansion, to any order.
Grads gradients_of_expansion(const GradCall& g);

class Tape {
public:
    // Gradients may be asked for this tensor, as it is now.
    void watch(const TensorRef& tensor);
    bool watches(const Tensor& tensor) const { return watched_.contains(tensor.id()); }
    bool tracks(const Tensor& tensor) const;  // is it watched, or computed from a watched tensor?

    // Called by dispatch for every application while this tape is open.
    void record(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                std::span<const TensorRef> outputs);
    void record_custom(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                       CustomBackward backward);

    // Gradients of the watched `wanted` (null: y does not depend on it); the history is freed.
    // While this runs, only the tapes outside of this one stay open. `groups`, by position in
    // `wanted`: the processes over which a gradient is added up ("": none; the list may be
    // shorter).
    Tensors backward(std::span<const TensorRef> ys, std::span<const TensorRef> dys,
                     std::span<const TensorRef> wanted, std::span<const std::string> groups = {});
    void clear();
    // A closed tape records nothing, even where a saved list of open tapes still names it.
    bool is_closed = false;
    // Tapes that were opened together do not record each other's backward.
    uint64_t group = 0;

private:
    std::vector<WantedSum> sums_of(std::span<const TensorRef> wanted,
                                   std::span<const std::string> groups) const;
    struct TapedOp {
        const OpDef* op = nullptr;
        Attrs attrs = {};
        Tensors inputs = {}, outputs = {};  // without data where the op does not keep them
        std::vector<uint64_t> in_ids = {};  // 0: not tracked
        std::vector<uint64_t> out_ids = {};
        CustomBackward custom = {};
    };
    std::unordered_set<uint64_t> made_;  // ids of the outputs of entries_
    std::unordered_map<uint64_t, TensorRef> watched_;
    std::vector<TapedOp> entries_;
};

}  // namespace megjit::runtime
