#include "runtime/core/side_stream.h"

#include <utility>

#include "runtime/core/thread_stream.h"
#include "runtime/host/error.h"
#include "runtime/host/interrupt.h"

namespace megjit::runtime {
namespace {

thread_local bool is_the_side_thread = false;
thread_local std::shared_ptr<BesideWork> beside;  // set while a RunsBeside lives

class SideStream final : public ThreadStream {
public:
    static SideStream& instance() {
        static auto* one = new SideStream;  // never destroyed: as devices
        return *one;
    }

protected:
    void begin_thread() override {
        is_the_side_thread = true;
        set_own_interrupt_check([] {
            if (instance().is_stopped())
                user_error({.what = "the wait for other processes was interrupted"},
                           ErrorKind::runtime);
        });
    }

private:
    SideStream() : ThreadStream("the side stream") {}
};

}  // namespace

Stream& side_stream() { return SideStream::instance(); }

void run_on_host(Stream& stream, std::function<void()> work) {
    if (beside) {
        beside->is_queued = true;
        return SideStream::instance().add(
            [work = std::move(work), done = beside, reads = std::move(beside->reads)] {
            work();
            done->has_run = true;
        });
    }
    if (&stream == &SideStream::instance()) return SideStream::instance().add(std::move(work));
    stream.synchronize();
    work();
}

RunsBeside::RunsBeside(std::shared_ptr<BesideWork> work) { beside = std::move(work); }
RunsBeside::~RunsBeside() { beside = nullptr; }

bool is_side_thread() { return is_the_side_thread; }

}  // namespace megjit::runtime
