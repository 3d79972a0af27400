// runtime/ops/refit.h -- attributes that hold extents, when the operands of an op get others.
// A record keeps what it saw as numbers: reshape to [8, 512], rows 0 to 8. An edit that changes the
// batch or the size of an input has to say what these numbers meant. Where they have one meaning
// they follow; else the edit is refused.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime {

// The attributes of a call for operands of types `after`. UserError without a node's name.
Attrs refit(const OpCall& before, std::span<const Type> after, BatchChange batch);

// Refuses a call, or a constant, whose extents come from nobody knows where, such as one in a
// file of an earlier version: UserError where one of them could be the batch. `fitted`: what refit
// makes of the attributes.
void refuse_unknown(const OpCall& before, const Attrs& fitted, BatchChange batch);
void refuse_unknown(const Type& constant, BatchChange batch);
void refuse_unknown_function(BatchChange batch);  // that was recorded with one sample
bool has_extents(const OpDef& op);  // attributes of it are some

// For OpDef::refit.
Attrs refit_reshape(const OpCall& before, std::span<const Type> after, BatchChange batch);
Attrs refit_broadcast(const OpCall& before, std::span<const Type> after, BatchChange batch);
Attrs refit_region(const OpCall& before, std::span<const Type> after, BatchChange batch);
// Serves ops that index operand 0 along attribute 0, one axis or several.
Attrs refit_indexed(const OpCall& before, std::span<const Type> after, BatchChange batch);

}  // namespace megjit::runtime
