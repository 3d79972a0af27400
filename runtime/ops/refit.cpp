#include "runtime/ops/refit.h"

#include <algorithm>

namespace megjit::runtime {
namespace {

using Ints = std::vector<int64_t>;

[[noreturn]] void refuse_refit(const OpCall& call, const std::string& why) {
    user_error(
        {.what = cat(call.op.name, " does not fit its new operands"),
         .why = why,
         .fix =
             "replace this node by a call for the new shapes, or change no extent that it depends on"});
}

void check_indexed(const OpCall& call, int64_t axis, const Type& after) {
    const Type& before = call.inputs[0];
    const auto i = static_cast<int>(axis < 0 ? axis + before.rank() : axis);
    if (before.shape[i] != after.shape[i])
        refuse_refit(call, cat("it indexes axis ", axis, ", which was ", before.shape[i],
                               " long and is ", after.shape[i]));
}

}  // namespace

// [B*a, ...] -> [B*b, ...] has only one reading: the batch leads on both sides.
Attrs refit_reshape(const OpCall& call, std::span<const Type> operands, BatchChange batch) {
    const Type &before = call.inputs[0], &after = operands[0];
    Ints shape = call.integers("shape");
    Type target{.dtype = after.dtype, .shape = Shape(shape)};
    if (target.numel() == after.numel()) return {shape};
    const bool leads = batch.from > 0 && before.rank() > 0 && !shape.empty() &&
                       before.shape[0] % batch.from == 0 &&
                       after.shape[0] == before.shape[0] / batch.from * batch.to &&
                       shape[0] % batch.from == 0;
    // Where an inner axis has the batch's extent, [t*B, c] -> [t, B, c] is another reading. A batch
    // of one leaves no trace in a product.
    const bool stays = leads && shape[0] == before.shape[0];
    const bool is_inner =
        leads && std::find(shape.begin() + 1, shape.end(), batch.from) != shape.end();
    const bool is_told = leads && ((stays && shape[0] == batch.from) ||
                                   (!is_inner && (stays || batch.from > 1 || shape[0] == 1)));
    if (is_told) {
        shape[0] = shape[0] / batch.from * batch.to;
        target.shape = Shape(shape);
    }
    if (target.numel() != after.numel())
        refuse_refit(call, cat("shape=", to_string(Attr(shape)), " was recorded for ",
                               to_string(before), ", not ", to_string(after)));
    return {shape};
}

// Axes that kept an extent, or spread it, follow its change.
Attrs refit_broadcast(const OpCall& call, std::span<const Type> operands, BatchChange) {
    const Type &before = call.inputs[0], &after = operands[0];
    Ints shape = call.integers("shape");
    const size_t pad = shape.size() - static_cast<size_t>(before.rank());
    for (int axis = 0; axis < before.rank(); ++axis) {
        int64_t& extent = shape[pad + static_cast<size_t>(axis)];
        if (extent == before.shape[axis]) extent = after.shape[axis];
    }
    return {shape};
}

// A region that covered an axis still covers it; for other regions nobody knows from which end
// their bounds were counted.
Attrs refit_region(const OpCall& call, std::span<const Type> operands, BatchChange) {
    Ints begin = call.integers("begin"), end = call.integers("end");
    const Ints& step = call.integers("step");
    for (size_t axis = 0; axis < begin.size(); ++axis) {
        const int64_t old = call.inputs[0].shape[static_cast<int>(axis)],
                      now = operands[0].shape[static_cast<int>(axis)];
        if (old == now) continue;
        if (begin[axis] == 0 && end[axis] == old && step[axis] > 0) end[axis] = now;
        else if (begin[axis] == old - 1 && end[axis] == -1 && step[axis] == -1)
            begin[axis] = now - 1;
        else
            refuse_refit(call, cat("it takes ", begin[axis], ":", end[axis], " of axis ", axis,
                                   ", which was ", old, " long and is ", now));
    }
    return {begin, end, step};
}

Attrs refit_indexed(const OpCall& call, std::span<const Type> operands, BatchChange) {
    if (const auto* axis = std::get_if<int64_t>(&call.attrs[0]))
        check_indexed(call, *axis, operands[0]);
    else
        for (int64_t axis : std::get<Ints>(call.attrs[0])) check_indexed(call, axis, operands[0]);
    return call.attrs;
}

Attrs refit(const OpCall& before, std::span<const Type> after, BatchChange batch) {
    const bool is_concerned = before.op.refit && !before.inputs.empty() &&
                              !(before.inputs[0].shape == after[0].shape) &&
                              before.inputs[0].rank() == after[0].rank();
    return is_concerned ? before.op.refit(before, after, batch) : before.attrs;
}

namespace {

bool may_hold(std::span<const int64_t> extents, BatchChange batch) {
    return std::ranges::any_of(extents, [&](int64_t extent) {
        return batch.from > 1 && extent > 0 && extent % batch.from == 0;
    });
}

const Ints* shape_in(const OpDef& op, const Attrs& attrs) {
    for (size_t i = 0; i < op.attrs.size(); ++i)
        if (op.attrs[i].name == "shape") return std::get_if<Ints>(&attrs[i]);
    return nullptr;
}

[[noreturn]] void refuse_for_unknown(const std::string& what, BatchChange batch) {
    user_error(
        {.what = cat(what, ", and nobody knows whether that is of the batch of ", batch.from),
         .why = "an earlier version has written the file, or an edit has made the node",
         .fix = "dump the function again, or record it with the other batch"});
}

}  // namespace

bool has_extents(const OpDef& op) {
    return op.refit ||
           std::ranges::any_of(op.attrs, [](const AttrSpec& attr) { return attr.name == "shape"; });
}

void refuse_unknown(const OpCall& call, const Attrs& fitted, BatchChange batch) {
    const Ints* shape = shape_in(call.op, call.attrs);
    if (fitted == call.attrs && (!shape || !may_hold(*shape, batch))) return;
    std::string all;
    for (const Attr& attr : call.attrs) all += cat(all.empty() ? "" : ", ", to_string(attr));
    refuse_for_unknown(cat(call.op.name, " holds ", all), batch);
}

// Some calls leave no trace of the batch: x[-1:], a roll, a branch.
void refuse_unknown_function(BatchChange batch) {
    if (batch.from == 1) refuse_for_unknown("the function was recorded with one sample", batch);
}

void refuse_unknown(const Type& constant, BatchChange batch) {
    if (may_hold(Ints(constant.shape.begin(), constant.shape.end()), batch))
        refuse_for_unknown(cat("a constant is ", to_string(constant)), batch);
}

}  // namespace megjit::runtime
