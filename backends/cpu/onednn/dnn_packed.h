// backends/cpu/onednn/dnn_packed.h -- runtime layouts for weights in the order that a oneDNN
// primitive prefers: they are reordered once, and every call reads them. Packing the weights of a
// ResNet-18 takes 5 ms, its convolutions 7 (two cores of a Zen 5).
#pragma once

#include "backends/cpu/onednn/dnn.h"

namespace megjit::cpu::dnn {

// Returns the layout of tensors in the order `packed`, where row-major ones have the order `dense`.
// Both have the primitive's extents: with an axis for groups, or transposed. The result is
// row_major where both are the same, or no layout is left.
runtime::Layout packed_layout(const dnnl::memory::desc& packed, const dnnl::memory::desc& dense);

// Returns the layout of 3x3 weights of that type that are transformed for winograd.h.
runtime::Layout winograd_layout(const runtime::Type& weights, const dnnl::memory::desc& dense);
bool is_winograd(runtime::Layout layout);

// Do these weights lie as desc_of_weights says? They do not if they were packed for other
// attributes: groups, transposition.
bool is_packed_for(const dnnl::memory::desc& dense, const runtime::Type& weights);
// Describes how the weights lie, where row-major ones would lie as `dense`.
dnnl::memory::desc desc_of_weights(const runtime::Type& weights, const dnnl::memory::desc& dense);

// Prepares the op on row-major weights; each call unpacks its weights for it.
Prepared unpacking(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                   Prepare prepare);

}  // namespace megjit::cpu::dnn
