#include "jit/plan/over_limit.h"

#include "runtime/host/size_text.h"

namespace megjit::jit {
namespace {

// A plan is the least where the bound is as near as that.
constexpr double kNear = 1.03;

}  // namespace

std::string told(const LimitFigures& figures) {
    const auto [limit, needed, bound] = figures;
    const bool is_proved = static_cast<double>(needed) <= kNear * static_cast<double>(bound);
    return runtime::cat(
        "memory_limit: ",
        is_proved ? "a call needs at least "
                  : "no smaller plan found: by those that are known a call takes at least ",
        runtime::bytes_text(needed, limit), ", and the limit is ",
        runtime::bytes_text(limit, needed));
}

}  // namespace megjit::jit
