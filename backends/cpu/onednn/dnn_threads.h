// backends/cpu/onednn/dnn_threads.h -- oneDNN on the threads of our pool. oneDNN (its oneTBB
// flavour) hands tasks to the arena that it is called in. Our arena has slots for as many threads
// as a primitive was made for, and no thread of oneTBB's own ever enters it: only the caller and
// the pool's threads do, so that no two pools compete for the cores.
#pragma once

#include <functional>

namespace megjit::cpu::dnn {

// Calls body() where oneDNN counts `threads` threads; the caller works alone, or with idle threads
// of the pool. A primitive made for some number of threads runs with any number.
void with_threads(int threads, const std::function<void()>& body);
void with_helpers(int threads, const std::function<void()>& body);

}  // namespace megjit::cpu::dnn
