#include "runtime/host/interrupt.h"

#include <atomic>

#include "runtime/host/mutex.h"

namespace megjit::runtime {
namespace {

std::atomic<void (*)()> the_check{nullptr};
thread_local void (*own_check)() = nullptr;

}  // namespace

void set_interrupt_check(void (*check)()) { the_check = check; }
void set_own_interrupt_check(void (*check)()) { own_check = check; }

void check_interrupt() {
    Mutex::refuse_wait("an interrupt");
    if (own_check) return own_check();
    if (auto* check = the_check.load()) check();
}

}  // namespace megjit::runtime
