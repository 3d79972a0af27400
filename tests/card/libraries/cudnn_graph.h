// tests/card/libraries/cudnn_graph.h -- a graph of cuDNN's as plain data: what a plan is made of,
// its text, and how the host computes it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/products/cudnn_api.h"
#include "tests/card/libraries/host_op.h"

namespace megjit::cuda::cudnn {

using card_libraries::Array;
using card_libraries::Dims;
using card_libraries::Element;

struct Tensor {
    int64_t id = 0, alignment = 1;
    Element type = Element::f32;
    Dims dims = {}, strides = {};
    bool is_virtual = false, is_by_value = false;
    size_t bytes() const { return card_libraries::span_bytes(type, dims, strides); }
};

// Tensors by the attribute that names them; settings, those of the description among them, too.
struct Step {
    Kind kind = Kind::pointwise_op;
    std::map<int, int64_t> ports = {};  // -> id
    std::map<int, Dims> settings = {};
};

struct Graph {
    std::map<int64_t, Tensor> tensors = {};
    std::vector<Step> steps = {};
};

bool is_written(Kind kind, int port);

// Misuse, by the number of a bad parameter, where tensors of a step do not go together.
void check(const Graph& graph, const Step& step);

std::string to_text(const Graph& graph);
std::optional<Graph> graph_of(const std::string& text);

// The engine of TF32 rounds the factors of products.
void run(const Graph& graph, bool is_tf32, const std::map<int64_t, std::byte*>& places);

double flops_of(const Graph& graph);

}  // namespace megjit::cuda::cudnn
