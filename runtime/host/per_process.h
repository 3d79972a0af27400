// runtime/host/per_process.h -- PerProcess: what a child of fork() must not touch again, such as a
// thread, which the child lacks, or a condition variable, which remembers waiters that the child
// lacks. The child drops its parent's object unused at the first use and makes a fresh one.
#pragma once

#include <memory>

#include "runtime/host/mutex.h"

namespace megjit::runtime {

// Its owner's lock must be held at every use.
template <class T>
class PerProcess {
public:
    PerProcess() = default;
    ~PerProcess() {
        if (is_inherited()) static_cast<void>(value_.release());
    }
    PerProcess(const PerProcess&) = delete;
    PerProcess& operator=(const PerProcess&) = delete;

    bool is_inherited() const { return process_ != forks(); }
    T& operator*() {
        if (is_inherited()) [[unlikely]] {
            static_cast<void>(value_.release());
            value_ = std::make_unique<T>();
            process_ = forks();
        }
        return *value_;
    }
    T* operator->() { return &**this; }

private:
    uint64_t process_ = forks();
    std::unique_ptr<T> value_ = std::make_unique<T>();
};

}  // namespace megjit::runtime
