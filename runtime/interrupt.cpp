#include "runtime/interrupt.h"

#include <atomic>

namespace megjit::runtime {
namespace {

std::atomic<void (*)()> the_check{nullptr};

}  // namespace

void set_interrupt_check(void (*check)()) { the_check = check; }

void check_interrupt() {
    if (auto* check = the_check.load()) check();
}

}  // namespace megjit::runtime
