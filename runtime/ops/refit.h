// runtime/ops/refit.h -- attributes that hold extents, when the operands of an op get other shapes.
// A record keeps what it saw as numbers: reshape to [8, 512], rows 0 to 8. An edit that changes the
// batch or the size of an input must find out what these numbers meant. Numbers with only one
// meaning follow the change; else the edit is refused.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime {

// The attributes of a call for operands of types `after`. The UserError does not name the node.
Attrs refit(const OpCall& before, std::span<const Type> after, BatchChange batch);

// Refuses a call, or a constant, whose extents are of unknown origin, such as one in a file of an
// earlier version: UserError where one of them could be the batch. `fitted`: the attributes as
// refit() returns them.
void refuse_unknown(const OpCall& before, const Attrs& fitted, BatchChange batch);
void refuse_unknown(const Type& constant, BatchChange batch);
void refuse_unknown_function(BatchChange batch);  // recorded with one sample
bool has_extents(const OpDef& op);  // does the op have attributes that are extents?

// These are values of OpDef::refit.
Attrs refit_reshape(const OpCall& before, std::span<const Type> after, BatchChange batch);
Attrs refit_broadcast(const OpCall& before, std::span<const Type> after, BatchChange batch);
Attrs refit_region(const OpCall& before, std::span<const Type> after, BatchChange batch);
// Serves ops that index operand 0 along attribute 0, one axis or several.
Attrs refit_indexed(const OpCall& before, std::span<const Type> after, BatchChange batch);

}  // namespace megjit::runtime
