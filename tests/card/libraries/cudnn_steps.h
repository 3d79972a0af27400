// tests/card/libraries/cudnn_steps.h -- what each operation of a graph computes, on float32 of the
// host.
#pragma once

#include "tests/card/libraries/cudnn_graph.h"

namespace megjit::cuda::cudnn {

struct Operands {
    const Step& step;
    const Graph& graph;
    std::map<int64_t, Array>& values;  // by id
    bool is_tf32 = false;

    bool has(int port) const { return step.ports.contains(port); }
    Array& operator[](int port) const { return values.at(step.ports.at(port)); }
    const Tensor& tensor(int port) const { return graph.tensors.at(step.ports.at(port)); }
    int64_t setting(int name) const { return step.settings.at(name)[0]; }
};

struct Window {
    Dims kernel, stride, padding, dilation;
};
int first_of_conv(Kind kind);  // kConvForward, kConvData or kConvFilter
Window conv_window(const Step& step, const Dims& weights);
Window pool_window(const Step& step);

// Writes the step's results, which have their extents already.
void compute_step(const Operands& operands);

}  // namespace megjit::cuda::cudnn
