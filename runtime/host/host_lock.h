// runtime/host/host_lock.h -- the lock that a thread of the host language holds while it calls us
// (Python's), without knowing Python: work that takes a while runs without it.
#pragma once

namespace megjit::runtime {

struct HostLock {
    bool (*is_mine)();  // does the calling thread hold it?
    void* (*release)();
    void (*take_back)(void* released);
};
void set_host_lock(const HostLock& lock);  // called once, before any other thread runs

// The thread gives up the host's lock while one lives, if it holds it. It must hold none of our
// locks: the thread that has the host's lock may be waiting for one.
class WithoutHostLock {
public:
    explicit WithoutHostLock(bool gives_up = true);
    ~WithoutHostLock() noexcept(false);  // a thread may end in it, together with its process
    WithoutHostLock(const WithoutHostLock&) = delete;

private:
    void* released_ = nullptr;
};

}  // namespace megjit::runtime
