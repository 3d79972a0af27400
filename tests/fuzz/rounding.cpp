#include "tests/fuzz/rounding.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/eager/dispatch.h"
#include "runtime/host/half.h"

namespace megjit::fuzz {
namespace {

using runtime::DType;
using runtime::TensorRef;

constexpr double kBackward = 0x1p-18;  // sums of some thousand elements are exact for operands that
                                       // are off by this part of them
constexpr double kForward = 0x1p-20;

double rounding_of(DType dtype) {
    return dtype == DType::f16 ? 0x1p-10 : dtype == DType::bf16 ? 0x1p-7 : kForward;
}
double most_of(DType dtype) {
    return dtype == DType::f16 ? 0.02 : dtype == DType::bf16 ? 0.1 : 1e-3;
}

void store(runtime::Tensor& tensor, int64_t i, double value) {
    switch (tensor.dtype()) {
        case DType::f16:
            tensor.as<uint16_t>()[i] = runtime::float_to_half(static_cast<float>(value));
            break;
        case DType::bf16:
            tensor.as<uint16_t>()[i] = runtime::float_to_bfloat(static_cast<float>(value));
            break;
        default: tensor.as<float>()[i] = static_cast<float>(value);
    }
}

enum class Signs { all_up, all_down, mixed, to_zero };  // to_zero: what may be 0 is, the rest stays

TensorRef moved(const TensorRef& tensor, double by, bool relative, Signs signs,
                std::minstd_rand& random) {
    if (!is_floating(tensor->dtype()) || (by == 0 && !relative)) return tensor;
    TensorRef result = runtime::empty_tensor(runtime::host_device(), tensor->type());
    for (int64_t i = 0; i < tensor->type().numel(); ++i) {
        const double x = item_as_double(*tensor, i),
                     step = by + (relative ? kBackward * std::fabs(x) : 0);
        const bool up = signs == Signs::all_up || (signs == Signs::mixed && (random() >> 8 & 1));
        if (signs == Signs::to_zero) store(*result, i, std::fabs(x) <= 2 * step ? 0 : x);
        else store(*result, i, up ? x + step : x - step);
    }
    return result;
}

// Is an extremum 0? Which of 0 and -0 it is depends on the order of the elements.
bool picks_a_zero(const runtime::OpDef& op, const runtime::Tensor& result) {
    if ((op.name != "reduce_max" && op.name != "reduce_min") || !is_floating(result.dtype()))
        return false;
    for (int64_t i = 0; i < result.type().numel(); ++i)
        if (item_as_double(result, i) == 0) return true;
    return false;
}

}  // namespace

double largest(const runtime::Tensor& tensor) {
    double result = 0;
    for (int64_t i = 0; i < tensor.type().numel(); ++i)
        result = std::max(result, std::fabs(item_as_double(tensor, i)));
    return result;
}

bool is_finite(const runtime::Tensor& tensor) {
    for (int64_t i = 0; i < tensor.type().numel(); ++i)
        if (!std::isfinite(item_as_double(tensor, i))) return false;
    return true;
}

bool may_round_otherwise(const jit::Graph& graph, const runtime::OpDef& op,
                         std::span<const jit::ValueId> inputs, const runtime::Type& result) {
    if (!is_floating(result.dtype)) return false;
    // What cancel rewrites: each of exp and log behind the other.
    if (op.is_elementwise())
        return (op.name == "exp" || op.name == "log") && graph.producer(inputs[0]).op;
    for (const char* mover :
         {"reshape", "broadcast_to", "transpose", "slice", "concat", "reduce_max", "reduce_min"})
        if (op.name == mover) return false;
    return true;
}

std::optional<std::vector<double>> deviations(const runtime::OpDef& op, const runtime::Attrs& attrs,
                                              std::span<const TensorRef> inputs,
                                              std::span<const double> of_inputs,
                                              std::span<const TensorRef> results,
                                              bool rounds_otherwise) {
    std::vector<double> found(results.size(), 0);
    if (!rounds_otherwise &&
        std::all_of(of_inputs.begin(), of_inputs.end(), [](double x) { return x == 0; })) {
        if (picks_a_zero(op, *results[0])) found[0] = kSignOfZero;
        return found;
    }
    std::minstd_rand random(1);
    for (const Signs signs :
         {Signs::all_up, Signs::all_down, Signs::mixed, Signs::mixed, Signs::to_zero}) {
        std::vector<TensorRef> operands;
        for (size_t i = 0; i < inputs.size(); ++i)
            operands.push_back(moved(inputs[i], of_inputs[i], rounds_otherwise, signs, random));
        const std::vector<TensorRef> others = runtime::compute(op, attrs, operands);
        for (size_t k = 0; k < results.size(); ++k)
            for (int64_t i = 0; i < results[k]->type().numel(); ++i)
                found[k] = std::max(found[k], std::fabs(item_as_double(*others[k], i) -
                                                        item_as_double(*results[k], i)));
    }
    for (size_t k = 0; k < results.size(); ++k) {
        const DType dtype = results[k]->dtype();
        if (!is_floating(dtype)) {
            if (found[k] > 0) return std::nullopt;
            continue;
        }
        const double size = largest(*results[k]);
        found[k] = 2 * found[k] + rounding_of(dtype) * size +
                   kSignOfZero;  // what underflows may do so with either sign
        if (!(found[k] <= most_of(dtype) * std::max(1.0, size))) return std::nullopt;
    }
    return found;
}

}  // namespace megjit::fuzz
