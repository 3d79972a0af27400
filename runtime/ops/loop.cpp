#include "runtime/ops/loop.h"

#include "runtime/ops/builders.h"

namespace megjit::runtime {
namespace {

TensorRef element_of(const TensorRef& x, int64_t t) {
    return build::reshape(build::slice(x, 0, t, t + 1), Shape(x->shape().extents().subspan(1)));
}

TensorRef stacked(const Tensors& elements) {
    Tensors parts;
    for (const TensorRef& element : elements) {
        build::Axes extents{1};
        extents.insert(extents.end(), element->shape().begin(), element->shape().end());
        parts.push_back(build::reshape(element, Shape(extents)));
    }
    return build::op_n("concat", parts, {int64_t{0}})[0];
}

}  // namespace

Tensors Loop::results(std::span<const TensorRef> last_carries,
                      std::span<const TensorRef> ys) const {
    Tensors made(ys.begin(), ys.end());
    const auto also = last_carries.last(returned);
    made.insert(made.end(), also.begin(), also.end());
    return made;
}

Tensors unrolled(const OpCall& call, std::span<const TensorRef> inputs) {
    const Loop loop = call.op.loop(call, inputs);
    const int64_t steps = loop.steps();
    Tensors carries = loop.carries;
    std::vector<Tensors> ys;  // for each y, the values of all steps
    for (int64_t k = 0; k < steps; ++k) {
        const int64_t t = loop.is_reverse ? steps - 1 - k : k;
        Tensors slices;
        for (const TensorRef& x : loop.slices) slices.push_back(element_of(x, t));
        Tensors made = loop.step(carries, slices);
        ys.resize(made.size() - carries.size(), Tensors(static_cast<size_t>(steps)));
        for (size_t i = 0; i < ys.size(); ++i)
            ys[i][static_cast<size_t>(t)] = made[carries.size() + i];
        made.resize(carries.size());
        carries = std::move(made);
    }
    Tensors all;
    for (const Tensors& y : ys) all.push_back(stacked(y));
    return loop.results(carries, all);
}

}  // namespace megjit::runtime
