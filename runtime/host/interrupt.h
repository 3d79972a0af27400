// runtime/host/interrupt.h -- how a long wait learns that the user wants out (Ctrl-C), without
// knowing Python.
#pragma once

namespace megjit::runtime {

// `check` throws when somebody wants the calling thread to stop. Any thread that holds no lock may
// call it.
void set_interrupt_check(void (*check)());
void set_own_interrupt_check(void (*check)());  // for the calling thread alone
void check_interrupt();  // does nothing when none was set

}  // namespace megjit::runtime
