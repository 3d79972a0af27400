// backends/processes/near.h -- bytes that a process of this machine reads from where they lie,
// instead of receiving them: one copy, and none in the kernel's buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace megjit::processes {

// Where a process offers bytes. The seal says that it is that process, and that it still does.
struct Offer {
    uint64_t address = 0;  // 0: they lie where no other process can read, as memory of a driver
    uint64_t seal_address = 0;
    uint64_t seal = 0;
    int64_t process = 0;
};

// A number that no other process has, until it is broken: from then on nothing is offered.
class Seal {
public:
    Seal();
    Offer offer(const void* data) const;
    void break_up() { number_ = 0; }

private:
    std::atomic<uint64_t> number_;
};

// Yama lets nobody read a process but its ancestors: from here on also processes that have the
// same parent, as those that one launcher has started.
void permit_siblings();

// Whether both ends of a connected socket have one address.
bool is_near(int socket);

// Reads bytes that begin `at` behind the offered address. Returns false where this is not
// permitted, or nothing is offered there any more; `to` is undefined then.
bool read_offered(const Offer& offer, size_t at, void* to, size_t bytes);

}  // namespace megjit::processes
