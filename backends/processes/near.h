// backends/processes/near.h -- bytes that a process reads from another one's memory on the same
// machine, instead of receiving them: one copy, and none in the kernel's buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace megjit::processes {

// Where a process offers bytes. The seal identifies the process, and shows that the offer still
// holds.
struct Offer {
    uint64_t address = 0;  // 0: no other process can read them, as in memory of a driver
    uint64_t seal_address = 0;
    uint64_t seal = 0;
    int64_t process = 0;
};

// A number that no other process has, until the seal is broken: from then on nothing is offered.
class Seal {
public:
    Seal();
    Offer offer(const void* data) const;
    void break_up() { number_ = 0; }

private:
    std::atomic<uint64_t> number_;
};

// Yama allows only ancestors to read a process: from now on processes with the same parent may,
// too, as those that one launcher has started.
void permit_siblings();

// Do both ends of a connected socket have the same address?
bool is_near(int socket);

// Reads bytes that begin `at` bytes after the offered address. Returns false where this is not
// permitted, or nothing is offered there any more; `to` is undefined then.
bool read_offered(const Offer& offer, size_t at, void* to, size_t bytes);

}  // namespace megjit::processes
