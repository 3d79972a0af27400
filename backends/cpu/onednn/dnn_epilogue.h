// backends/cpu/onednn/dnn_epilogue.h -- oneDNN products whose epilogue (runtime/ops/epilogue.h) is
// done on tiles in registers. The bits are those of the product and then the steps (relu differs
// for -inf and denormal numbers):
//   - "bias" and "add" are binary post-ops. They come after the last partial sum, which float32
//     results hold unrounded. Kernels named jit:* add a native bias to the first partial sum; those
//     named brg* add it like a post-op, but 3 % faster (all convolutions of a ResNet-50): they get
//     a native bias where it is the first step.
//   - An addend whose place the result takes over is the old content of the result: the post-op
//     sum. Only kernels named brg* get it, for they add it in the order of the steps.
//   - oneDNN must pick the same kernel as without epilogue; else the steps are done separately, in
//     place, for the kernel that post-ops lead to is a slow reference or sums in another order.
// Measured with 120 products each on AVX-512, AVX2 and SSE4.1 by oneDNN 3.2; tests compare bits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/epilogue.h"
#include "backends/cpu/onednn/dnn.h"

namespace megjit::cpu::dnn {

using Steps = std::vector<runtime::EpilogueStep>;

// Makes the primitive descriptor of the product with these attributes, and with the bias unless it
// is zero.
using CreateWith = std::function<dnnl::primitive_desc_base(const dnnl::primitive_attr&,
                                                           const dnnl::memory::desc& bias)>;

// Makes a product followed by `steps`. oneDNN sees its result as `result`, which is one of
// `operands`; `channel` is the axis of `result` along which a bias lies. native_bias: the form in
// which the primitive takes a bias; zero if it takes none.
Prepared make_with_epilogue(const runtime::OpCall& call, const Steps& steps,
                            const CreateWith& create, std::vector<Operand> operands,
                            const dnnl::memory::desc& result, int channel,
                            const dnnl::memory::desc& native_bias = {});

// Prepares `product`, then the steps in place.
Prepared epilogue_after(Prepared product, const Steps& steps, const dnnl::memory::desc& result,
                        int channel);

}  // namespace megjit::cpu::dnn
