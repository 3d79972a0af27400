// backends/cuda/products/cudnn_graph.h -- a graph for cuDNN as plain data: made from our ops,
// checked, printed as the key of its plan, and turned into descriptors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/cuda/products/cudnn.h"
#include "runtime/ops/conv.h"
#include "runtime/ops/pool.h"

namespace megjit::cuda::cudnn {

constexpr int64_t kAlignment = 16;  // bytes; every address has it

using Dims = std::vector<int64_t>;
int64_t count_of(const Dims& dims);  // number of elements
Dims row_major(const Dims& dims);  // strides, in elements

// Where a tensor's elements are when a graph runs.
enum class Place : uint8_t {
    input,  // an input of the op
    output,
    scratch,  // in the workspace, for other graphs of the op
    number,  // a number, given with the run
    inside,  // nowhere: cuDNN calls it virtual
};

struct TensorSpec {
    DataType type = DataType::f32;
    Dims dims = {}, strides = {};
    Place place = Place::inside;
    int index = 0;  // which input, output or scratch tensor
    size_t offset = 0;  // offset of the first element in the tensor that holds it, in bytes
    float number = 0;  // for Place::number

    size_t bytes() const;
};

struct Setting {
    int name = 0;
    std::variant<Choice, int64_t, Dims, float> value;
};
struct Port {
    int name = 0;
    int tensor = 0;
    bool is_written = false;
};

struct Operation {
    Kind kind = Kind::pointwise_op;
    std::vector<Port> ports = {};
    std::vector<Setting> settings = {};
    // What the operation does, where the library wants a descriptor of its own for that.
    struct Description {
        Kind kind = Kind::pointwise;
        int as = 0;
        std::vector<Setting> settings = {};
    };
    std::optional<Description> description = {};
};

struct Graph {
    std::vector<TensorSpec> tensors = {};  // the id of tensor t is t + 1
    std::vector<Operation> operations = {};

    int add(TensorSpec tensor);
    int number(float value, size_t rank);
    int inside(DataType type, int like);  // has the shape of tensor `like`
    int inside(DataType type, const Dims& dims);

    void conv(runtime::ConvRole role, int x, int w, int y, const runtime::Window& window);
    // `axis` is for PointwiseMode::coordinate, which is computed in int32.
    void pointwise(PointwiseMode mode, std::vector<int> inputs, int output, int64_t axis = -1);
    void relu_gradient(int y, int dy, int dx);
    void matmul(int a, int b, int c);
    void reduce(ReduceMode mode, int x, int y);  // over the axes along which y has extent 1
    void sums(int x, int of_elements, int of_squares);  // by channel
    void reshape(int x, int y);
    // `index` is below 0 if there is no index tensor.
    void pool(ResampleMode mode, int x, int y, int index, const runtime::Window& window);
    struct PoolGrad {
        int x = -1, y = -1, index = -1, dy = 0, dx = 0;
    };
    void pool_grad(ResampleMode mode, const PoolGrad& grad, const runtime::Window& window);
    struct Norm {
        int x = 0, y = 0, scale = 0, bias = 0, eps = 0, mean = 0, rstd = 0;
    };
    void norm(NormMode mode, const Norm& norm);
    struct NormGrad {
        int x = 0, mean = 0, rstd = 0, scale = 0, dy = 0, dx = 0, dscale = 0, dbias = 0;
    };
    void norm_grad(NormMode mode, const NormGrad& grad);
};

// All that a plan depends on, except for the card.
std::string text_of(const Graph& graph);

// Faults that cuDNN does not notice, or reports in riddles; "" for a sound graph. Rules:
//   G1 each tensor has extents of 1 or more, a stride for each, and a number is one element
//   G2 tensors inside are written once, before they are read, and are read
//   G3 what is written is no input, and is written once
//   G4 scale, bias and statistics of a norm have the extents of what they go with
std::string fault_of(const Graph& graph);

// The last one is the graph's; the ones before it must live as long. DeviceError where the library
// refuses an operation.
std::vector<Descriptor> descriptors_of(const Library& library, const Graph& graph);

}  // namespace megjit::cuda::cudnn
