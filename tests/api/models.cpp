// Writes the dumps that the tests of libmegjit load, as trace.dump would: into the folder that it
// is given.
#include <cstdio>
#include <fstream>
#include <numeric>

#include "jit/api/backends.h"
#include "jit/file/graph_file.h"

namespace megjit { namespace {

using jit::ValueId;
using runtime::TensorRef;
using runtime::Type;

TensorRef floats(const runtime::Shape& shape, float first) {
    TensorRef tensor = runtime::empty_tensor(runtime::host_device(), {.shape = shape});
    std::iota(tensor->as<float>(), tensor->as<float>() + shape.numel(), first);
    return tensor;
}

ValueId add(jit::Graph& graph, const char* op, runtime::Attrs attrs, std::vector<ValueId> inputs,
            const Type& type) {
    return graph.add(
        {.op = &runtime::find_op(op), .attrs = std::move(attrs), .inputs = std::move(inputs)},
        {&type, 1})[0];
}

// score = x @ w + b, positive = relu(score); w is 0, 1, ... and b is -43, -42, ...; and what a
// program could mistake for results of its own.
jit::Model classify() {
    jit::Model model;
    const Type score{.shape = {2, 4}};
    const ValueId x = model.graph.add_input({.shape = {2, 3}}, 0);
    const ValueId w = model.graph.add_constant(floats({3, 4}, 0));
    const ValueId b = model.graph.add_constant(floats({4}, -43));
    const ValueId product = add(model.graph, "matmul", {int64_t{0}, int64_t{0}}, {x, w}, score);
    const ValueId sum = add(model.graph, "add", {}, {product, b}, score);
    model.graph.outputs = {sum, add(model.graph, "relu", {}, {sum}, score), x, w};
    model.input_names = {"x"};
    model.output_names = {"score", "positive", "same", "weights"};
    model.node_names = {"x", "w", "b"};
    model.params = {w, b};
    return model;
}

// exp(-x) in f32[1024]: a kernel at opt_level 3.
jit::Model chain() {
    jit::Model model;
    const Type type{.shape = {1024}};
    const ValueId x = model.graph.add_input(type, 0);
    model.graph.outputs = {
        add(model.graph, "exp", {}, {add(model.graph, "neg", {}, {x}, type)}, type)};
    model.input_names = {"x"};
    model.output_names = {"y"};
    return model;
}

// difference = a - b, of integers.
jit::Model difference() {
    jit::Model model;
    const Type type{.dtype = runtime::DType::i32, .shape = {2, 3}};
    const ValueId a = model.graph.add_input(type, 0), b = model.graph.add_input(type, 1);
    model.graph.outputs = {add(model.graph, "sub", {}, {a, b}, type)};
    model.input_names = {"a", "b"};
    model.output_names = {"difference"};
    return model;
}

// total' = total + x; gives the key that it has drawn.
jit::Model count() {
    jit::Model model;
    const Type type{.shape = {3}}, key{.dtype = runtime::DType::i32, .shape = {4}};
    const ValueId x = model.graph.add_input(type, 0), total = model.graph.add_input(type, 1),
                  drawn = model.graph.add_input(key, 2);
    const ValueId next = add(model.graph, "add", {}, {total, x}, type);
    model.graph.outputs = {drawn, next};
    model.input_names = {"x"};
    model.output_names = {"key"};
    model.inputs = {
        {}, {.kind = jit::Input::Kind::state}, {.kind = jit::Input::Kind::key, .state = 1}};
    model.outputs = {{}, {.kind = jit::Output::Kind::state}};
    model.name = "count";
    return model;
}

// scaled = total * scale
jit::Model scaled() {
    jit::Model model;
    const Type type{.shape = {3}}, scalar{};
    const ValueId total = model.graph.add_input(type, 0), scale = model.graph.add_input(scalar, 1);
    model.graph.outputs = {add(model.graph, "mul", {}, {total, scale}, type)};
    model.output_names = {"scaled"};
    model.inputs = {{.kind = jit::Input::Kind::captured, .state = 0},
                    {.kind = jit::Input::Kind::captured, .state = 2}};
    model.name = "scaled";
    model.metadata = "{\"user_info\": 7}";
    return model;
}

std::vector<jit::State> states() {
    const uint64_t key[] = {7, 0};
    return {{.name = "total", .value = floats({3}, 1)},
            {.name = "random",
             .is_generator = true,
             .value = runtime::tensor_from_host(runtime::host_device(),
                                                {.dtype = runtime::DType::i32, .shape = {4}}, key)},
            {.name = "scale", .value = floats({}, 2)}};
}

// kept = relu(x), of which x[0, 0] rows count, so that a file may lie; whole = 2 relu(x).
jit::Model rows() {
    jit::Model model;
    using Ints = std::vector<int64_t>;
    const Type type{.shape = {3, 2}}, scalar{};
    const ValueId x = model.graph.add_input(type, 0);
    const ValueId kept = add(model.graph, "relu", {}, {x}, type),
                  whole = add(model.graph, "add", {}, {kept, kept}, type),
                  corner = add(model.graph, "slice", {Ints{0, 0}, Ints{1, 1}, Ints{1, 1}}, {x},
                               {.shape = {1, 1}}),
                  count = add(model.graph, "cast", {std::string("int32")},
                              {add(model.graph, "reshape", {Ints{}}, {corner}, scalar)},
                              {.dtype = runtime::DType::i32});
    model.graph.outputs = {kept, whole, count};
    model.input_names = {"x"};
    model.output_names = {"kept", "whole"};
    model.outputs = {{.counted_by = 0}, {}, {.kind = jit::Output::Kind::count}};
    return model;
}

void write(const std::string& path, std::vector<jit::Model> functions,
           std::vector<jit::State> states = {}) {
    jit::ModelFile file{.functions = {}, .states = std::move(states)};
    for (jit::Model& model : functions) {
        model.node_names.resize(model.graph.nodes().size());
        model.value_names.resize(model.graph.value_count());
        file.functions.push_back(std::make_shared<const jit::Model>(std::move(model)));
    }
    std::ofstream(path, std::ios::binary) << jit::to_bytes(file);
}

}}  // namespace megjit

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: api_models FOLDER\n"), 2;
    megjit::api::start({});
    const std::string folder = argv[1];
    megjit::write(folder + "/classify.dump", {megjit::classify()});
    megjit::write(folder + "/difference.dump", {megjit::difference()});
    megjit::write(folder + "/count.dump", {megjit::count(), megjit::scaled()}, megjit::states());
    megjit::write(folder + "/chain.dump", {megjit::chain()});
    megjit::write(folder + "/rows.dump", {megjit::rows()});
}
