#include "runtime/eager/autodiff.h"

#include <algorithm>

#include "runtime/eager/at_place.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"

namespace megjit::runtime {
namespace {

// A tensor of the same type and identity, without memory.
TensorRef without_data(const TensorRef& tensor) {
    TensorRef stub = make_placeholder(tensor->type(), tensor->device());
    stub->trace = tensor->trace;
    return stub;
}

bool keeps(Keeps keeps, Keeps what) {
    return (static_cast<int>(keeps) & static_cast<int>(what)) != 0;
}

// A gradient of complex numbers is d/d real + i d/d imag.
bool has_gradients(DType dtype) { return is_floating(dtype) || dtype == DType::c64; }

bool is_differentiable(const OpDef& op) { return op.is_elementwise() || op.grad; }

// Gradients of one element-wise application, each a single derived op.
Grads elementwise_grads(const GradCall& g) {
    Grads grads(g.inputs.size());
    const Type& output = g.outputs[0]->type();
    for (size_t k = 0; k < grads.size(); ++k) {
        if (!g.needs[k]) continue;
        const DerivedGrad* derived =
            derive_grad(g.call.op, g.call.inputs, output, static_cast<int>(k));
        if (!derived) continue;
        if (derived->is_identity) {
            grads[k] = g.out_grads[0];
        } else {
            Tensors operands;
            const int n = static_cast<int>(g.inputs.size());
            for (int position : derived->operands)
                operands.push_back(position < n    ? g.inputs[position]
                                   : position == n ? g.outputs[0]
                                                   : g.out_grads[0]);
            grads[k] = apply(*derived->op, g.call.attrs, operands)[0];
        }
        grads[k] =
            build::cast(build::reduce_to(grads[k], g.inputs[k]->shape()), g.inputs[k]->dtype());
    }
    return grads;
}

// Says whether the backward of this application reads inputs, outputs or both.
Keeps keeps_of(const OpDef& op, std::span<const TensorRef> inputs,
               std::span<const TensorRef> outputs, const std::vector<uint64_t>& in_ids) {
    if (!op.is_elementwise()) return op.keeps;
    std::vector<Type> types;
    for (const TensorRef& input : inputs) types.push_back(input->type());
    int result = 0;
    for (size_t k = 0; k < inputs.size(); ++k) {
        if (!in_ids[k]) continue;
        const DerivedGrad* derived =
            derive_grad(op, types, outputs[0]->type(), static_cast<int>(k));
        if (!derived || derived->is_identity) continue;
        for (int position : derived->operands) {
            if (position < static_cast<int>(inputs.size()))
                result |= static_cast<int>(Keeps::inputs);
            else if (position == static_cast<int>(inputs.size()))
                result |= static_cast<int>(Keeps::outputs);
        }
    }
    return static_cast<Keeps>(result);
}

// Only the tapes outside of `tape` stay open while it runs backward.
class OnlyOuterTapes {
public:
    explicit OnlyOuterTapes(const Tape* tape) : saved_(context().tapes) {
        auto& tapes = context().tapes;
        const auto is_same_group = [tape](const TapeRef& other) {
            return other.get() == tape || (tape->group && other->group == tape->group);
        };
        tapes.erase(std::find_if(tapes.begin(), tapes.end(), is_same_group), tapes.end());
    }
    ~OnlyOuterTapes() { context().tapes = std::move(saved_); }

private:
    std::vector<TapeRef> saved_;
};

}  // namespace

Grads gradients_of_expansion(const GradCall& g) {
    return build::gradients_through(g, g.call.op.expand);
}

Grads build::gradients_through(const GradCall& g, MadeOf made_of) {
    Tape tape;
    Tensors inputs, outputs, out_grads;
    for (const TensorRef& input : g.inputs) {  // two operands may be the same tensor
        inputs.push_back(apply(ops::identity(), {}, {&input, 1})[0]);
        tape.watch(inputs.back());
    }
    {
        const std::vector<TapeRef> outer = context().tapes;
        struct Restore {
            const std::vector<TapeRef>& outer;
            ~Restore() { context().tapes = outer; }
        } const restore{outer};
        context().tapes.push_back(TapeRef(&tape));
        outputs = made_of(g.call, inputs);
    }
    Tensors used;
    for (size_t i = 0; i < outputs.size(); ++i)
        if (g.out_grads[i]) used.push_back(outputs[i]), out_grads.push_back(g.out_grads[i]);
    return tape.backward(used, out_grads, inputs);
}

void Tape::watch(const TensorRef& tensor) { watched_.emplace(tensor->id(), tensor); }

bool Tape::tracks(const Tensor& tensor) const {
    return made_.contains(tensor.id()) || watched_.contains(tensor.id());
}

void Tape::record(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                  std::span<const TensorRef> outputs) {
    if (is_closed || !is_differentiable(op)) return;
    bool any = false;
    TapedOp entry{.op = &op, .attrs = attrs};
    for (const TensorRef& input : inputs) {
        const bool tracked = tracks(*input) && has_gradients(input->dtype());
        entry.in_ids.push_back(tracked ? input->id() : 0);
        any |= tracked;
    }
    if (!any) return;
    const Keeps keep = keeps_of(op, inputs, outputs, entry.in_ids);
    for (const TensorRef& input : inputs)
        entry.inputs.push_back(keeps(keep, Keeps::inputs) ? input : without_data(input));
    for (const TensorRef& output : outputs) {
        entry.outputs.push_back(keeps(keep, Keeps::outputs) ? output : without_data(output));
        entry.out_ids.push_back(output->id());
        if (has_gradients(output->dtype())) made_.insert(output->id());
    }
    entries_.push_back(std::move(entry));
}

void Tape::record_custom(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                         CustomBackward backward) {
    if (is_closed) return;
    bool any = false;
    TapedOp entry{.custom = std::move(backward)};
    for (const TensorRef& input : inputs) {
        const bool tracked = tracks(*input) && is_floating(input->dtype());
        entry.in_ids.push_back(tracked ? input->id() : 0);
        entry.inputs.push_back(without_data(input));
        any |= tracked;
    }
    if (!any) return;
    for (const TensorRef& output : outputs) {
        entry.outputs.push_back(without_data(output));
        entry.out_ids.push_back(output->id());
        made_.insert(output->id());
    }
    entries_.push_back(std::move(entry));
}

// A gradient is complete when the first entry that reads its tensor has run.
std::vector<WantedSum> Tape::sums_of(std::span<const TensorRef> wanted,
                                     std::span<const std::string> groups) const {
    std::vector<WantedSum> sums;
    std::unordered_map<uint64_t, size_t> first_reader;
    if (!groups.empty())
        for (size_t e = 0; e < entries_.size(); ++e)
            for (const uint64_t id : entries_[e].in_ids) first_reader.emplace(id, e);
    for (size_t i = 0; i < groups.size(); ++i) {
        const auto found = first_reader.find(wanted[i]->id());
        sums.push_back({wanted[i]->type(), &wanted[i]->device(), groups[i],
                        found == first_reader.end() ? entries_.size() : found->second});
    }
    return sums;
}

Tensors Tape::backward(std::span<const TensorRef> ys, std::span<const TensorRef> dys,
                       std::span<const TensorRef> wanted, std::span<const std::string> groups) {
    OnlyOuterTapes scope(this);
    std::unordered_map<uint64_t, TensorRef> grads;
    const auto accumulate = [&grads](uint64_t id, const TensorRef& grad) {
        TensorRef& sum = grads[id];
        sum = sum ? build::sum_of(sum, grad) : grad;
    };
    for (size_t i = 0; i < ys.size(); ++i)
        if (tracks(*ys[i])) accumulate(ys[i]->id(), dys[i]);

    // A gradient that the rest of backward also reads stays in the list.
    const GradientSums::Take take = [&](size_t position) -> TensorRef {
        const uint64_t id = wanted[position]->id();
        const auto found = grads.find(id);
        if (found == grads.end()) return {};
        return made_.contains(id) ? found->second : grads.extract(found).mapped();
    };
    GradientSums sums(sums_of(wanted, groups));
    for (size_t e = entries_.size(); e-- > 0;) {
        sums.begin(e + 1, take);
        TapedOp& entry = entries_[e];
        Tensors out_grads;
        bool any = false;
        for (uint64_t id : entry.out_ids) {
            auto found = grads.find(id);
            out_grads.push_back(found == grads.end() ? TensorRef{} : found->second);
            any |= found != grads.end();
        }
        if (!any) continue;
        const AtPlace place(entry.outputs[0]->device());
        Grads in_grads;
        if (entry.custom) {
            in_grads = entry.custom(out_grads);
        } else {
            std::vector<Type> types;
            for (const TensorRef& input : entry.inputs) types.push_back(input->type());
            // a vector<bool> cannot be viewed as a span
            const auto needs = std::make_unique<bool[]>(entry.in_ids.size());
            for (size_t k = 0; k < entry.in_ids.size(); ++k) needs[k] = entry.in_ids[k] != 0;
            const OpCall call{*entry.op, entry.attrs, types};
            const GradCall g{
                call, entry.inputs, entry.outputs, out_grads, {needs.get(), entry.in_ids.size()}};
            in_grads = entry.op->is_elementwise() ? elementwise_grads(g) : entry.op->grad(g);
        }
        for (size_t k = 0; k < entry.in_ids.size() && k < in_grads.size(); ++k)
            if (entry.in_ids[k] && in_grads[k]) accumulate(entry.in_ids[k], in_grads[k]);
        for (uint64_t id : entry.out_ids)
            if (!watched_.contains(id))
                grads.erase(id);  // its gradient is complete, and nobody asked for it
        entry = {};  // what this entry kept may be freed from now on
    }
    sums.begin(0, take);
    Tensors result;
    for (const TensorRef& tensor : wanted) {
        auto found = grads.find(tensor->id());
        result.push_back(found == grads.end() ? TensorRef{} : found->second);
    }
    sums.finish(result);
    clear();
    return result;
}

void Tape::clear() {
    made_.clear();
    watched_.clear();
    entries_.clear();
}

}  // namespace megjit::runtime
