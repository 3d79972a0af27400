// jit/plan/over_limit.h -- OverLimit: a memory limit that no plan keeps, with the proof of what no
// plan goes below.
#pragma once

#include <string>

#include "runtime/host/error.h"

namespace megjit::jit {

// What a limit was refused by: bytes of a call.
struct LimitFigures {
    size_t limit = 0;
    size_t needed = 0;  // by the smallest plan that was found, which keeps this as a limit
    size_t bound = 0;  // no plan takes less
};

// "memory_limit: a call needs at least 5242880 bytes (5.0 MiB), and the limit is ...", where that
// is proved; else "no smaller plan found: ...".
std::string told(const LimitFigures& figures);

// Nothing of the function may run after this error: it was refused, it has not failed.
class OverLimit : public runtime::UserError {
public:
    // `proof`: what is alive at once in any plan.
    OverLimit(const LimitFigures& figures, std::string proof, runtime::Message message)
        : runtime::UserError(runtime::ErrorKind::memory, std::move(message)),
          figures(figures),
          proof(std::move(proof)) {}
    LimitFigures figures;
    std::string proof;
};

}  // namespace megjit::jit
