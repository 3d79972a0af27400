#include "tests/card/libraries/cudnn_graph.h"

#include <algorithm>
#include <bit>
#include <sstream>

#include "tests/card/libraries/cudnn_steps.h"
#include "tests/card/libraries/library.h"

namespace megjit::cuda::cudnn {
namespace {

using card_libraries::cat;
using card_libraries::count_of;
using card_libraries::Misuse;

constexpr int kBadParameter = 2000;

[[noreturn]] void refuse(const Step& step, const std::string& why) {
    throw Misuse(kBadParameter, cat("operation ", static_cast<int>(step.kind), ": ", why));
}

bool is_conv(Kind kind) {
    return kind == Kind::conv_forward || kind == Kind::conv_data || kind == Kind::conv_filter;
}

void check_window(const Step& step, const Dims& x, const Dims& y, const Window& window) {
    for (size_t axis = 0; axis < window.kernel.size(); ++axis) {
        const int64_t reach = (window.kernel[axis] - 1) * window.dilation[axis] + 1,
                      places =
                          (x[axis + 2] + 2 * window.padding[axis] - reach) / window.stride[axis] +
                          1;
        if (y[axis + 2] != places)
            refuse(step, cat("axis ", axis + 2, " has ", y[axis + 2], " places, not ", places));
    }
}

void check_conv(const Step& step, const Dims& x, const Dims& w, const Dims& y) {
    if (x.size() != w.size() || x.size() != y.size() || x.size() < 4)
        refuse(step, "a convolution has tensors of one rank, 4 or 5");
    if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0)
        refuse(step, "the channels or batches do not go together");
    check_window(step, x, y, conv_window(step, w));
}

void check_pool(const Step& step, const Dims& x, const Dims& y) {
    if (x.size() != y.size() || x[0] != y[0] || x[1] != y[1])
        refuse(step, "the channels or batches do not go together");
    check_window(step, x, y, pool_window(step));
}

// Extents of `small` are those of `large` or 1.
void check_broadcast(const Step& step, const Dims& small, const Dims& large) {
    bool goes = small.size() == large.size();
    for (size_t axis = 0; goes && axis < small.size(); ++axis)
        goes = small[axis] == large[axis] || small[axis] == 1;
    if (!goes) refuse(step, "a tensor's extents are neither 1 nor those of the result");
}

void check_matmul(const Step& step, const Dims& a, const Dims& b, const Dims& c) {
    const size_t rank = c.size();
    if (a.size() != rank || b.size() != rank || rank < 2) refuse(step, "the ranks differ");
    if (a[rank - 2] != c[rank - 2] || b[rank - 1] != c[rank - 1] || a[rank - 1] != b[rank - 2])
        refuse(step, "the matrices do not go together");
    for (size_t axis = 0; axis + 2 < rank; ++axis)
        if (a[axis] != c[axis] || b[axis] != c[axis]) refuse(step, "the batches differ");
}

void write(std::ostream& to, const Dims& numbers) {
    to << ' ' << numbers.size();
    for (const int64_t number : numbers) to << ' ' << number;
}
Dims read(std::istream& from) {
    size_t count = 0;
    from >> count;
    Dims numbers(std::min(count, size_t{64}));
    for (int64_t& number : numbers) from >> number;
    return numbers;
}

}  // namespace

bool is_written(Kind kind, int port) {
    switch (kind) {
        case Kind::conv_forward: return port == kConvForward + 5;
        case Kind::conv_data: return port == kConvData + 4;
        case Kind::conv_filter: return port == kConvFilter + 3;
        case Kind::pointwise_op: return port == kPointwiseY || port == kPointwiseDx;
        case Kind::matmul_op: return port == kMatmulC;
        case Kind::reduction_op: return port == kReductionY;
        case Kind::sums_op: return port == kSumsOfElements || port == kSumsOfSquares;
        case Kind::reshape_op: return port == kReshapeY;
        case Kind::resample_forward:
            return port == kResampleForwardY || port == kResampleForwardIndex;
        case Kind::resample_backward: return port == kResampleBackwardDx;
        case Kind::norm_forward:
            return port == kNormForwardY || port == kNormForwardMean || port == kNormForwardRstd;
        case Kind::norm_backward:
            return port == kNormBackwardDx || port == kNormBackwardDscale ||
                   port == kNormBackwardDbias;
        default: return false;
    }
}

void check(const Graph& graph, const Step& step) {
    const auto dims = [&](int port) -> const Dims& {
        return graph.tensors.at(step.ports.at(port)).dims;
    };
    if (is_conv(step.kind)) {
        const int first = first_of_conv(step.kind);
        if (step.settings.at(first)[0] != std::bit_cast<int32_t>(1.0f) ||
            step.settings.at(first + 1)[0] != 0)
            refuse(step, "alpha is 1 and beta 0");
        return check_conv(step, dims(first + 4), dims(first + 3), dims(first + 5));
    }
    switch (step.kind) {
        case Kind::pointwise_op:
            if (step.ports.contains(kPointwiseY) == step.ports.contains(kPointwiseDx) ||
                step.ports.contains(kPointwiseDy) != step.ports.contains(kPointwiseDx))
                refuse(step, "it gives y, or dx of dy");
            for (const auto& [port, id] : step.ports)
                check_broadcast(
                    step, dims(port),
                    dims(step.ports.contains(kPointwiseY) ? kPointwiseY : kPointwiseDx));
            return;
        case Kind::matmul_op:
            return check_matmul(step, dims(kMatmulA), dims(kMatmulB), dims(kMatmulC));
        case Kind::reduction_op: return check_broadcast(step, dims(kReductionY), dims(kReductionX));
        case Kind::sums_op:
            for (const int port : {kSumsOfElements, kSumsOfSquares})
                if (count_of(dims(port)) != dims(kSumsX)[1] || dims(port)[1] != dims(kSumsX)[1])
                    refuse(step, "there is one sum for each channel");
            return;
        case Kind::reshape_op:
            if (count_of(dims(kReshapeX)) != count_of(dims(kReshapeY)))
                refuse(step, "the numbers of elements differ");
            return;
        case Kind::resample_forward:
            return check_pool(step, dims(kResampleForwardX), dims(kResampleForwardY));
        case Kind::resample_backward:
            return check_pool(step, dims(kResampleBackwardDx), dims(kResampleBackwardDy));
        case Kind::norm_forward:
            for (int port :
                 {kNormForwardScale, kNormForwardBias, kNormForwardMean, kNormForwardRstd})
                check_broadcast(step, dims(port), dims(kNormForwardX));
            return;
        case Kind::norm_backward:
            for (int port : {kNormBackwardScale, kNormBackwardMean, kNormBackwardRstd,
                             kNormBackwardDscale, kNormBackwardDbias, kNormBackwardDy})
                check_broadcast(step, dims(port), dims(kNormBackwardX));
            return;
        default: return;
    }
}

std::string to_text(const Graph& graph) {
    std::ostringstream text;
    text << graph.tensors.size() << '\n';
    for (const auto& [id, t] : graph.tensors) {
        text << id << ' ' << t.alignment << ' ' << static_cast<int>(t.type) << ' ' << t.is_virtual
             << ' ' << t.is_by_value;
        write(text, t.dims), write(text, t.strides);
        text << '\n';
    }
    text << graph.steps.size() << '\n';
    for (const Step& step : graph.steps) {
        text << static_cast<int>(step.kind) << ' ' << step.ports.size() << ' '
             << step.settings.size();
        for (const auto& [port, id] : step.ports) text << ' ' << port << ' ' << id;
        for (const auto& [name, numbers] : step.settings) {
            text << ' ' << name;
            write(text, numbers);
        }
        text << '\n';
    }
    return text.str();
}

std::optional<Graph> graph_of(const std::string& text) {
    std::istringstream from(text);
    Graph graph;
    size_t tensors = 0, steps = 0;
    from >> tensors;
    for (size_t i = 0; from && i < tensors; ++i) {
        Tensor t;
        int type = 0;
        from >> t.id >> t.alignment >> type >> t.is_virtual >> t.is_by_value;
        t.type = static_cast<Element>(type);
        t.dims = read(from), t.strides = read(from);
        graph.tensors[t.id] = t;
    }
    from >> steps;
    for (size_t i = 0; from && i < steps; ++i) {
        Step& step = graph.steps.emplace_back();
        int kind = 0, name = 0;
        size_t ports = 0, settings = 0;
        from >> kind >> ports >> settings;
        step.kind = static_cast<Kind>(kind);
        for (size_t k = 0; from && k < ports; ++k) from >> name >> step.ports[name];
        for (size_t k = 0; from && k < settings; ++k) {
            from >> name;
            step.settings[name] = read(from);
        }
    }
    if (!from || graph.steps.empty()) return std::nullopt;
    return graph;
}

// In the order of the steps, each of which is written by what it reads.
void run(const Graph& graph, bool is_tf32, const std::map<int64_t, std::byte*>& places) {
    std::map<int64_t, Array> values;
    for (const Step& step : graph.steps) {
        Operands operands{step, graph, values, is_tf32};
        for (const auto& [port, id] : step.ports) {
            const Tensor& tensor = graph.tensors.at(id);
            if (values.contains(id)) continue;
            values[id] = is_written(step.kind, port)
                             ? Array::of(tensor.dims)
                             : card_libraries::gather(places.at(id), tensor.type, tensor.dims,
                                                      tensor.strides);
        }
        compute_step(operands);
        for (const auto& [port, id] : step.ports)
            if (is_written(step.kind, port))
                card_libraries::round_to(graph.tensors.at(id).type, values[id]);
    }
    for (const Step& step : graph.steps)
        for (const auto& [port, id] : step.ports)
            if (const Tensor& t = graph.tensors.at(id);
                is_written(step.kind, port) && !t.is_virtual)
                card_libraries::scatter(values[id], places.at(id), t.type, t.strides);
}

double flops_of(const Graph& graph) {
    double flops = 0;
    for (const Step& step : graph.steps) {
        const auto count = [&](int port) {
            return static_cast<double>(count_of(graph.tensors.at(step.ports.at(port)).dims));
        };
        if (is_conv(step.kind)) {
            const int first = first_of_conv(step.kind);
            const Dims& w = graph.tensors.at(step.ports.at(first + 3)).dims;
            flops += 2 * count(first + 5) * count(first + 3) / static_cast<double>(w[0]);
        } else if (step.kind == Kind::matmul_op) {
            const Dims& a = graph.tensors.at(step.ports.at(kMatmulA)).dims;
            flops += 2 * count(kMatmulC) * static_cast<double>(a.back());
        }
    }
    return flops;
}

}  // namespace megjit::cuda::cudnn
