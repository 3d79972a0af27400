// runtime/ops/attention_parts.cpp -- attention whose operands and results are parts of tensors: the
// result of a projection has the heads as [n, length, heads, width], with queries, keys and values
// side by side, and so has their gradient. The pass place_heads makes these ops for devices that
// read and write the parts in place. Their meaning is the op on whole tensors, with slices and
// transposes before it, and a write of each part after it.
// Rules: P1 there are 7 extents of at least 1, and a view of 4 numbers for each operand and result
//        P2 all tensors that hold parts have one floating dtype
//        P3 a part is a box of its tensor: each stride is a multiple of the next one inward
//        P4 parts fill the outputs that they are in, and do not overlap there
//        and the rules of attention hold for the parts.
#include <algorithm>

#include "runtime/eager/autodiff.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using Ints = std::vector<int64_t>;

constexpr size_t kExtents = 7, kNumbers = 4;  // extents of a problem; numbers of a view
constexpr size_t kOwnAttrs = 6;  // attributes of the ops on whole tensors

bool is_grad(const OpCall& call) { return call.op.inputs.size() > 4; }
std::vector<const HeadsPart*> operands_of(const AttentionParts& parts, bool is_grad) {
    if (is_grad) return {&parts.q, &parts.k, &parts.v, &parts.y, &parts.dy};
    return {&parts.q, &parts.k, &parts.v};
}
std::vector<const HeadsPart*> results_of(const AttentionParts& parts, bool is_grad) {
    if (is_grad) return {&parts.dq, &parts.dk, &parts.dv};
    return {&parts.y};
}

Shape shape_of(const HeadsExtents& extents) { return Shape{std::span<const int64_t>(extents)}; }

// Extents and places of all parts, which are whole tensors where the op has no attribute for them.
AttentionParts whole_parts(const AttentionProblem& p) {
    const HeadsExtents q{p.batch, p.heads, p.queries, p.width},
        k{p.batch, p.key_heads, p.keys, p.width}, v{p.batch, p.key_heads, p.keys, p.value_width},
        y{p.batch, p.heads, p.queries, p.value_width};
    const auto part = [](int tensor, const HeadsExtents& extents) {
        return HeadsPart{tensor, extents, dense_view(extents)};
    };
    return {.q = part(0, q),
            .k = part(1, k),
            .v = part(2, v),
            .y = part(0, y),
            .dy = part(5, y),
            .dq = part(0, q),
            .dk = part(1, k),
            .dv = part(2, v)};
}

// The equivalent call on whole tensors, which is valid as long as the object.
class WholeCall {
public:
    explicit WholeCall(const OpCall& call)
        : attrs_(call.attrs.begin(), call.attrs.begin() + kOwnAttrs),
          inputs_(call.inputs.begin(), call.inputs.end()),
          op_(is_grad(call) ? ops::attention_grad() : ops::attention()) {
        const AttentionParts parts = attention_parts(call);
        for (const HeadsPart* part : operands_of(parts, is_grad(call)))
            inputs_[static_cast<size_t>(part->tensor)] = {call.inputs[0].dtype,
                                                          shape_of(part->extents)};
    }
    OpCall call() const { return {op_, attrs_, inputs_}; }

private:
    Attrs attrs_;
    std::vector<Type> inputs_;
    const OpDef& op_;
};

void check_numbers(const OpCall& call) {
    const Ints& extents = call.integers("extents");
    const size_t views = is_grad(call) ? 8 : 4;
    if (extents.size() != kExtents ||
        std::ranges::any_of(extents, [](int64_t extent) { return extent < 1; }))
        refuse(call, cat("extents are ", kExtents, " numbers of at least 1, not ",
                         to_string(Attr{extents})));
    const AttentionProblem p = attention_problem(call);
    const int64_t widest = std::max(p.width, p.value_width), longest = std::max(p.queries, p.keys);
    // Throws a UserError where there are more elements than can be counted.
    static_cast<void>(Shape{p.batch, std::max(p.heads, p.key_heads), longest, widest}.numel());
    if (call.integers("views").size() != kNumbers * views)
        refuse(call, cat("there are ", call.integers("views").size(), " numbers of views, not ",
                         kNumbers * views));
    if (!is_grad(call)) return;
    const Ints& outputs = call.integers("outputs");
    int64_t next = 0;  // to find whether each output has a part
    for (const int64_t output : outputs)
        if (output == next) ++next;
        else if (output < 0 || output > next) next = 4;
    if (outputs.size() != 3 || next > 3)
        refuse(call, cat("outputs number those of dq, dk and dv, from 0 on, not ",
                         to_string(Attr{outputs})));
}

// How many elements each output has.
Ints numel_of_outputs(const AttentionParts& parts, bool is_grad) {
    Ints all;
    for (const HeadsPart* part : results_of(parts, is_grad)) {
        const auto at = static_cast<size_t>(part->tensor);
        if (all.size() <= at) all.resize(at + 1);
        all[at] += shape_of(part->extents).numel();
    }
    return all;
}

HeadsBox checked_box(const OpCall& call, const HeadsPart& part, int64_t all) {
    if (std::optional<HeadsBox> box = box_of(part.view, part.extents, all)) return *box;
    refuse(call, cat("a part of ", to_string(shape_of(part.extents)), " from element ",
                     part.view.offset, " on, with strides of ",
                     to_string(Attr{Ints(part.view.strides.begin(), part.view.strides.end())}),
                     ", is no box of ", all, " elements"));
}

std::vector<Type> infer_of_parts(const OpCall& call) {
    check_numbers(call);
    const AttentionParts parts = attention_parts(call);
    const DType dtype = call.inputs[0].dtype;
    for (const HeadsPart* part : operands_of(parts, is_grad(call))) {
        const Type& type = call.inputs[static_cast<size_t>(part->tensor)];
        if (type.dtype != dtype || type.layout != Layout::row_major)
            refuse(call, cat("all tensors are row-major, of one dtype, not ", to_string(type)),
                   "cast it");
        checked_box(call, *part, type.numel());
    }
    const Ints all = numel_of_outputs(parts, is_grad(call));
    std::vector<HeadsBox> boxes;
    for (const HeadsPart* part : results_of(parts, is_grad(call))) {
        const HeadsBox box = checked_box(call, *part, all[static_cast<size_t>(part->tensor)]);
        for (size_t i = 0; i < boxes.size(); ++i)
            if (results_of(parts, true)[i]->tensor == part->tensor && boxes[i].meets(box))
                refuse(call, cat("two results are written into one part of output ", part->tensor));
        boxes.push_back(box);
    }
    const WholeCall whole(call);
    std::vector<Type> results = infer(whole.call());
    if (!is_grad(call)) return {{dtype, {all[0]}}, results[1]};
    results.clear();
    for (const int64_t numbers : all) results.push_back({dtype, {numbers}});
    return results;
}

TensorRef taken(const TensorRef& tensor, const HeadsPart& part) {
    const HeadsBox box = *box_of(part.view, part.extents, tensor->shape().numel());
    Ints perm(4);  // axis a of the result is axis perm[a] of the box
    for (size_t axis = 0; axis < 4; ++axis)
        perm[static_cast<size_t>(box.axes[axis])] = static_cast<int64_t>(axis);
    const TensorRef cut = build::op("slice", {build::reshape(tensor, box.shape)},
                                    {Ints(box.begin.begin(), box.begin.end()),
                                     Ints(box.end.begin(), box.end.end()), Ints(4, 1)});
    return build::transpose(cut, perm);
}

// Makes an output of `all` elements from its parts.
TensorRef filled(int64_t all, std::span<const HeadsPart* const> parts,
                 std::span<const TensorRef> values) {
    TensorRef made;
    for (size_t i = 0; i < parts.size(); ++i) {
        const HeadsBox box = *box_of(parts[i]->view, parts[i]->extents, all);
        const TensorRef turned =
            build::transpose(values[i], Ints(box.axes.begin(), box.axes.end()));
        if (parts.size() == 1) return build::reshape(turned, {all});
        if (!made) made = build::full({all}, 0, values[i]->dtype(), values[i]->device());
        made = build::op("slice_set", {build::reshape(made, box.shape), turned},
                         {Ints(box.begin.begin(), box.begin.end()),
                          Ints(box.end.begin(), box.end.end()), Ints(4, 1)});
    }
    return build::reshape(made, {all});
}

Tensors expand_of_parts(const OpCall& call, std::span<const TensorRef> inputs) {
    const bool grad = is_grad(call);
    const AttentionParts parts = attention_parts(call);
    Tensors whole_inputs(inputs.begin(), inputs.end());
    for (const HeadsPart* part : operands_of(parts, grad)) {
        const auto at = static_cast<size_t>(part->tensor);
        whole_inputs[at] = taken(inputs[at], *part);
    }
    const WholeCall whole(call);
    const Tensors made = whole.call().op.expand(whole.call(), whole_inputs);
    const Ints all = numel_of_outputs(parts, grad);
    Tensors outputs;
    for (size_t output = 0; output < all.size(); ++output) {
        std::vector<const HeadsPart*> own;
        Tensors values;
        const std::vector<const HeadsPart*> results = results_of(parts, grad);
        for (size_t i = 0; i < results.size(); ++i)
            if (results[i]->tensor == static_cast<int>(output))
                own.push_back(results[i]), values.push_back(made[i]);
        outputs.push_back(filled(all[output], own, values));
    }
    if (!grad) outputs.push_back(made[1]);
    return outputs;
}

// Elements around the parts are not read.
Cost cost_of_parts(const OpCall& call, std::span<const Type>) {
    const WholeCall whole(call);
    return cost_of(whole.call(), infer(whole.call()));
}

}  // namespace

const OpDef& ops::attention_of_parts() {
    static const OpDef& known = find_op("attention_of_parts");
    return known;
}
const OpDef& ops::attention_grad_of_parts() {
    static const OpDef& known = find_op("attention_grad_of_parts");
    return known;
}

HeadsView dense_view(const HeadsExtents& extents) {
    HeadsView view;
    int64_t stride = extents[3];
    for (size_t axis = 3; axis-- > 0; stride *= extents[axis])
        if (extents[axis] > 1) view.strides[axis] = stride;
    return view;
}

// Boxes of one tensor may be seen with different axes: where the inner axes of a box are whole,
// they are merged into the next one outward.
bool HeadsBox::meets(const HeadsBox& other) const {
    struct Span {
        int64_t size, begin, end;
    };
    const auto spans_of = [](const HeadsBox& box) {
        std::vector<Span> spans;
        for (size_t axis = 0; axis < 4; ++axis) {
            const int64_t size = box.shape[static_cast<int>(axis)];
            if (size == 1) continue;
            const bool is_whole = box.begin[axis] == 0 && box.end[axis] == size;
            if (spans.empty() || !is_whole) {
                spans.push_back({size, box.begin[axis], box.end[axis]});
                continue;
            }
            Span& outer = spans.back();
            outer = {outer.size * size, outer.begin * size, outer.end * size};
        }
        return spans;
    };
    const std::vector<Span> own = spans_of(*this), others = spans_of(other);
    const auto is_apart = [](const Span& a, const Span& b) {
        return a.end <= b.begin || b.end <= a.begin;
    };
    const auto have_one_size = [](const Span& a, const Span& b) { return a.size == b.size; };
    if (!std::ranges::equal(own, others, have_one_size)) return true;
    for (size_t i = 0; i < own.size(); ++i)
        if (is_apart(own[i], others[i])) return false;
    return true;
}

std::optional<HeadsBox> box_of(const HeadsView& view, const HeadsExtents& extents, int64_t numel) {
    if (view.offset < 0 || view.offset >= numel) return {};
    HeadsBox box{.axes = {0, 1, 2, 3}};
    const auto stride = [&](int axis) {
        return axis == 3 ? 1 : view.strides[static_cast<size_t>(axis)];
    };
    const auto is_single = [&](int axis) {
        return axis < 3 && extents[static_cast<size_t>(axis)] == 1;
    };
    std::stable_sort(box.axes.begin(), box.axes.end() - 1, [&](int a, int b) {
        return is_single(a) != is_single(b) ? is_single(a) : stride(a) > stride(b);
    });
    int64_t outer = numel, rest = view.offset;
    for (size_t i = 0; i < 4; ++i) {
        const int axis = box.axes[i];
        const int64_t extent = extents[static_cast<size_t>(axis)], step = stride(axis);
        if (is_single(axis)) {  // an axis of extent 1 goes to the front
            if (step != 0) return {};
            box.shape.push_back(1), box.end[i] = 1;
            continue;
        }
        if (step < 1 || outer % step != 0) return {};
        box.shape.push_back(outer / step);
        box.begin[i] = rest / step, box.end[i] = box.begin[i] + extent;
        if (box.end[i] > outer / step) return {};
        outer = step, rest %= step;
    }
    return box;
}

AttentionParts attention_parts(const OpCall& call) {
    AttentionParts parts = whole_parts(attention_problem(call));
    parts.y.tensor = is_grad(call) ? 3 : 0;
    if (!has_attr(call, "views")) return parts;
    const Ints& views = call.integers("views");
    std::vector<HeadsPart*> listed{&parts.q, &parts.k, &parts.v, &parts.y};
    if (is_grad(call)) {
        listed.insert(listed.end(), {&parts.dy, &parts.dq, &parts.dk, &parts.dv});
        const Ints& outputs = call.integers("outputs");
        for (size_t i = 0; i < 3; ++i) listed[5 + i]->tensor = static_cast<int>(outputs[i]);
    }
    for (size_t i = 0; i < listed.size(); ++i) {
        const int64_t* const numbers = &views[kNumbers * i];
        listed[i]->view = {numbers[0], {numbers[1], numbers[2], numbers[3]}};
    }
    return parts;
}

Attrs attrs_of_parts(const Attrs& whole, const AttentionProblem& p, const AttentionParts& parts,
                     bool is_grad) {
    Attrs attrs = whole;
    attrs.emplace_back(
        Ints{p.batch, p.heads, p.key_heads, p.queries, p.keys, p.width, p.value_width});
    std::vector<const HeadsPart*> listed = operands_of(parts, is_grad);
    for (const HeadsPart* part : results_of(parts, is_grad)) listed.push_back(part);
    Ints views;
    for (const HeadsPart* part : listed) {
        views.push_back(part->view.offset);
        views.insert(views.end(), part->view.strides.begin(), part->view.strides.end());
    }
    attrs.emplace_back(views);
    if (is_grad) attrs.emplace_back(Ints{parts.dq.tensor, parts.dk.tensor, parts.dv.tensor});
    return attrs;
}

std::vector<OpDef> attention_of_parts_ops() {
    std::vector<AttrSpec> attrs = ops::attention().attrs;
    attrs.push_back({"extents", AttrKind::integers});
    attrs.push_back({"views", AttrKind::integers});
    std::vector<AttrSpec> grad_attrs = attrs;
    grad_attrs.push_back({"outputs", AttrKind::integers});
    return {
        {.name = "attention_of_parts",
         .doc =
             "attention of parts of tensors. extents: n, heads, heads of keys, queries, keys, width, width of values. views: "
             "for q, k, v and y where each begins, in elements, and the strides of n, heads and length (0 along an extent of "
             "1); along the width elements are neighbours. The first result is one axis, filled by y.",
         .inputs = ops::attention().inputs,
         .variadic = true,
         .attrs = attrs,
         .infer = infer_of_parts,
         .grad = gradients_of_expansion,
         .has_gpu_product = true,
         .expand = expand_of_parts,
         .cost = cost_of_parts},
        {.name = "attention_grad_of_parts",
         .doc =
             "attention_grad of parts of tensors. extents and views as of attention_of_parts, for q, k, v, y, dy, dq, dk and "
             "dv; outputs: which of the results dq, dk and dv are in, each of one axis, filled by them.",
         .inputs = ops::attention_grad().inputs,
         .variadic = true,
         .attrs = grad_attrs,
         .infer = infer_of_parts,
         .grad = gradients_of_expansion,
         .has_gpu_product = true,
         .expand = expand_of_parts,
         .cost = cost_of_parts},
    };
}

}  // namespace megjit::runtime
