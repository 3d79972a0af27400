#include "runtime/interrupt.h"

#include <atomic>

#include "runtime/mutex.h"
#include "runtime/side_stream.h"

namespace megjit::runtime {
namespace {

std::atomic<void (*)()> the_check{nullptr};

}  // namespace

void set_interrupt_check(void (*check)()) { the_check = check; }

void check_interrupt() {
    Mutex::refuse_wait("an interrupt");
    if (is_side_thread()) return check_side_interrupt();
    if (auto* check = the_check.load()) check();
}

}  // namespace megjit::runtime
