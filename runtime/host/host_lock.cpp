#include "runtime/host/host_lock.h"

#include "runtime/host/mutex.h"

namespace megjit::runtime {
namespace {

HostLock the_lock{};

}  // namespace

void set_host_lock(const HostLock& lock) { the_lock = lock; }

WithoutHostLock::WithoutHostLock(bool gives_up) {
    if (gives_up && the_lock.is_mine && the_lock.is_mine()) released_ = the_lock.release();
}

WithoutHostLock::~WithoutHostLock() noexcept(false) {
    if (!released_) return;
    Mutex::refuse_wait("the host's lock");
    the_lock.take_back(released_);
}

}  // namespace megjit::runtime
