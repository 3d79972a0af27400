#include "jit/refit.h"

#include <algorithm>

#include "runtime/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;
using runtime::Shape;
using Ints = std::vector<int64_t>;

size_t position(const OpDef& op, std::string_view name) {
    for (size_t i = 0; i < op.attrs.size(); ++i)
        if (op.attrs[i].name == name) return i;
    throw runtime::InternalError(cat(op.name, " has no attribute ", name));
}
Ints& ints(const OpDef& op, Attrs& attrs, std::string_view name) {
    return std::get<Ints>(attrs[position(op, name)]);
}

[[noreturn]] void refuse(const OpDef& op, const std::string& why) {
    runtime::user_error(
        {.what = cat(op.name, " does not fit its new operands"),
         .why = why,
         .fix =
             "replace this node by a call for the new shapes, or change no extent that it depends on"});
}

// The only reading of [B*a, ...] -> [B*b, ...]: the batch leads on both sides.
void refit_reshape(const OpDef& op, Ints& shape, const Type& before, const Type& after,
                   BatchChange batch) {
    Type target{.dtype = after.dtype, .shape = Shape(shape)};
    if (target.numel() == after.numel()) return;
    const bool leads = batch.from > 0 && before.rank() > 0 && !shape.empty() &&
                       before.shape[0] % batch.from == 0 &&
                       after.shape[0] == before.shape[0] / batch.from * batch.to &&
                       shape[0] % batch.from == 0;
    // [t*B, c] -> [t, B, c] is another reading where an inner axis has the batch's extent. A batch
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
        refuse(op, cat("shape=", runtime::to_string(runtime::Attr(shape)), " was recorded for ",
                       to_string(before), ", not ", to_string(after)));
}

// Axes that were kept or spread from the same extent follow it.
void refit_broadcast(Ints& shape, const Type& before, const Type& after) {
    const size_t pad = shape.size() - static_cast<size_t>(before.rank());
    for (int axis = 0; axis < before.rank(); ++axis) {
        int64_t& extent = shape[pad + static_cast<size_t>(axis)];
        if (extent == before.shape[axis]) extent = after.shape[axis];
    }
}

// A region that covered an axis goes on covering it; of others nobody knows from which end they
// were counted.
void refit_region(const OpDef& op, Attrs& attrs, const Type& before, const Type& after) {
    Ints &begin = ints(op, attrs, "begin"), &end = ints(op, attrs, "end");
    const Ints& step = ints(op, attrs, "step");
    for (size_t axis = 0; axis < begin.size(); ++axis) {
        const int64_t old = before.shape[static_cast<int>(axis)],
                      now = after.shape[static_cast<int>(axis)];
        if (old == now) continue;
        if (begin[axis] == 0 && end[axis] == old && step[axis] > 0) end[axis] = now;
        else if (begin[axis] == old - 1 && end[axis] == -1 && step[axis] == -1)
            begin[axis] = now - 1;
        else
            refuse(op, cat("it takes ", begin[axis], ":", end[axis], " of axis ", axis,
                           ", which was ", old, " long and is ", now));
    }
}

void check_indexed(const OpDef& op, int64_t axis, const Type& before, const Type& after) {
    const auto i = static_cast<int>(axis < 0 ? axis + before.rank() : axis);
    if (before.shape[i] != after.shape[i])
        refuse(op, cat("it indexes axis ", axis, ", which was ", before.shape[i], " long and is ",
                       after.shape[i]));
}

}  // namespace

Attrs refit(const Node& node, std::span<const Type> before, std::span<const Type> after,
            BatchChange batch) {
    Attrs attrs = node.attrs;
    const OpDef& op = *node.op;
    if (before.empty() || before[0].shape == after[0].shape || before[0].rank() != after[0].rank())
        return attrs;
    if (op.name == "reshape")
        refit_reshape(op, ints(op, attrs, "shape"), before[0], after[0], batch);
    else if (op.name == "broadcast_to")
        refit_broadcast(ints(op, attrs, "shape"), before[0], after[0]);
    else if (op.name == "slice" || op.name == "slice_set")
        refit_region(op, attrs, before[0], after[0]);
    else if (op.name == "index_get" || op.name == "index_set" || op.name == "index_add")
        for (int64_t axis : ints(op, attrs, "axes")) check_indexed(op, axis, before[0], after[0]);
    else if (op.name == "gather" || op.name == "scatter" || op.name == "scatter_add")
        check_indexed(op, std::get<int64_t>(attrs[position(op, "axis")]), before[0], after[0]);
    return attrs;
}

}  // namespace megjit::jit
