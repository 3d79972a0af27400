// jit/refit.h -- attributes that hold extents, when the operands of a node get others.
// A record keeps what it saw as numbers: reshape to [8, 512], rows 0 to 8. An edit that changes the
// batch or the size of an input has to say what these numbers meant. Where they have one meaning
// they follow; else the edit is refused.
#pragma once

#include "jit/graph.h"

namespace megjit::jit {

struct BatchChange {
    int64_t from = 0;  // 0: the batch stays
    int64_t to = 0;
};

// The attributes of `node` for operands of types `after`; `before`: what they had. UserError
// without a node's name.
Attrs refit(const Node& node, std::span<const Type> before, std::span<const Type> after,
            BatchChange batch);

}  // namespace megjit::jit
