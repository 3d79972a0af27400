// jit/plan/ops/control_flow_ops.h -- what the files of scan, while_loop and cond know of each
// other.
#pragma once

#include <memory>
#include <vector>

#include "jit/step/subgraph.h"
#include "runtime/eager/dispatch.h"

namespace megjit::jit {

// Attributes of scan, in their order.
enum ScanAttr : uint8_t { kBody, kCarries, kSlices, kTrips, kReverse, kKeeps };

// A call of scan.
struct ScanCall {
    explicit ScanCall(const runtime::OpCall& call);
    size_t captured() const { return carries + slices; }  // the first of them among the inputs
    std::shared_ptr<const Graph> body;
    std::vector<Type> inputs, outputs;  // of the body
    size_t carries = 0, slices = 0;
    int64_t trips = 0;
    bool is_reverse = false;
    bool keeps = false;  // the last y are the carries that each trip got
};

inline void append(runtime::Tensors& to, std::span<const TensorRef> more) {
    to.insert(to.end(), more.begin(), more.end());
}
Type stacked(const Type& element, int64_t trips);

// The carries of each trip are kept if a tape will ask for them.
runtime::Tensors apply_scan(const Attrs& attrs, std::span<const TensorRef> inputs);

runtime::Grads scan_gradients(const runtime::GradCall& g);
runtime::Grads cond_gradients(const runtime::GradCall& g);

}  // namespace megjit::jit
