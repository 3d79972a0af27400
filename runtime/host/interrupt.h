// runtime/host/interrupt.h -- how a long wait learns that the user wants out (Ctrl-C), without
// knowing Python.
#pragma once

namespace megjit::runtime {

// `check` throws when somebody wants the calling thread to stop. May be called from any thread that
// holds no lock.
void set_interrupt_check(void (*check)());
void set_own_interrupt_check(void (*check)());  // in the calling thread instead
void check_interrupt();  // does nothing when none was set

}  // namespace megjit::runtime
