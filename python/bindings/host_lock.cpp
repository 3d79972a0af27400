// Python's lock, as the runtime sees it (runtime/host/host_lock.h).
#include "runtime/host/host_lock.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "python/bindings/handle.h"

namespace megjit::python {
namespace {

// Python ends a thread that asks for its lock while the interpreter goes down, and would unwind our
// frames, which have nothing to do that with. So no thread asks any more from then on, and
// those that asked before are let in first.
std::atomic<int> asking{0};
std::atomic<bool> is_ending{false};
std::thread::id last_thread;  // the thread that takes the interpreter down

void* release() { return PyEval_SaveThread(); }

void take_back(void* thread) {
    ++asking;
    if (is_ending && std::this_thread::get_id() != last_thread) {
        --asking;
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    PyEval_RestoreThread(static_cast<PyThreadState*>(thread));
    --asking;
}

void let_in_who_asked() {
    last_thread = std::this_thread::get_id();
    is_ending = true;
    const runtime::WithoutHostLock others_run;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (asking > 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

void bind_host_lock(nb::module_&) {
    runtime::set_host_lock({.is_mine = [] {
        return PyGILState_Check() != 0;
    }, .release = &release, .take_back = &take_back});
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&let_in_who_asked));
}

}  // namespace megjit::python
