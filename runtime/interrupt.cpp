#include "runtime/interrupt.h"

#include <atomic>

#include "runtime/debug.h"
#include "runtime/error.h"
#include "runtime/leaf_mutex.h"
#include "runtime/side_stream.h"

namespace megjit::runtime {
namespace {

std::atomic<void (*)()> the_check{nullptr};

}  // namespace

void set_interrupt_check(void (*check)()) { the_check = check; }

void check_interrupt() {
    if (LeafMutex::is_any_mine() && debug().check)
        throw InternalError("an interrupt is looked for with a lock held, for which others wait");
    if (is_side_thread()) return check_side_interrupt();
    if (auto* check = the_check.load()) check();
}

}  // namespace megjit::runtime
