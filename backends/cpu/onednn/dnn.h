// backends/cpu/onednn/dnn.h -- oneDNN primitives as Executables. In: types. Out: Executables that
// may run in several threads, and allocate nothing after their first run, which makes a primitive's
// code.
//
// Layouts between convolutions, measured on two cores of a Zen 5 (FMA peak 530-600 GFLOP/s),
// oneDNN 3.2, the convolutions of a ResNet-18 training step at 8 x 3 x 224 x 224 (85 GFLOP), in
// GFLOP/s:
//                      blocked nChw16c      channels_last (nhwc)    row_major, reordered around
//                      fwd  data filter     fwd  data filter        fwd  data filter
//   7x7 s2   3 @ 224   475    -  369        480    -  309           380    -  328
//   3x3     64 @  56   505  496  444        513  500  433           486  454  418
//   3x3    128 @  28   502  502  476        535  530  488           490  495  475
//   3x3    256 @  14   488  490  483        549  544  480           480  487  471
//   3x3    512 @   7   489  493  459        594  562  515           486  481  453
//   1x1 s2 128 @  28   466  464  464        467  420  377           365  239  380
// Sum over the step, each shape at its best of two runs: blocked 184 ms, channels_last 176 ms,
// row_major 191 ms; 5 ms of each reorder the weights, in every call, at memory speed. channels_last
// is as fast as the blocked layout and needs no padding of channels and no third set of kernels, so
// it is the layout to keep between convolutions, and there is no blocked Layout. Row-major operands
// are copied into the preferred order.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <dnnl.hpp>

#include "backends/cpu/convert.h"
#include "backends/cpu/products.h"
#include "runtime/core/device.h"
#include "runtime/ops/window.h"

namespace megjit::cpu { namespace dnn {

dnnl::engine& engine();
dnnl::memory::data_type data_type(runtime::DType dtype);

using Dims = dnnl::memory::dims;
Dims dims_of(const runtime::Shape& shape);
// Strides of a [n, c, spatial...] tensor in that layout.
Dims strides_of(const runtime::Shape& shape, runtime::Layout layout);
dnnl::memory::desc desc_of(const runtime::Type& type);

// Describes an activation of a convolution: in the layout that the primitive prefers, or
// channels-last.
dnnl::memory::desc activation_of(const runtime::Type& type, dnnl::memory::data_type dtype,
                                 bool any_layout);
// Describes weights of a convolution, [oc, c / groups, kernel...] or with a leading axis of groups:
// in the preferred layout, or row-major.
dnnl::memory::desc weights_of(const runtime::Type& weights, int64_t groups,
                              dnnl::memory::data_type dtype, bool any_layout);

// How a window slides, in the form that oneDNN's convolutions take.
struct Slides {
    Dims stride, dilation, padding;  // oneDNN's dilation counts the skipped elements
};
Slides slides_of(const runtime::Window& window);

// One operand of a primitive, with the order in which the tensor really lies in memory.
struct Operand {
    int arg = 0;  // DNNL_ARG_...
    bool is_output = false;
    int index = 0;  // position among the op's inputs or outputs
    dnnl::memory::desc desc = {};
};

dnnl::primitive_attr attributes();  // the caller provides the scratchpad

// Makes the descriptor of a primitive, for as many threads as there are. Throws dnnl::error where
// oneDNN has no kernel.
using Create = std::function<dnnl::primitive_desc_base()>;
dnnl::primitive_desc_base describe(const Create& create);

// Makes a primitive with reorders into and out of the layouts that it prefers.
Prepared make(const runtime::OpCall& call, const Create& create, std::vector<Operand> operands,
              std::string remark = {});

// How that primitive wants an operand to lie in memory. Throws dnnl::error where oneDNN has no
// kernel.
dnnl::memory::desc preferred(const Create& create, int arg);

}}  // namespace megjit::cpu::dnn
