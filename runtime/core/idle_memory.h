// runtime/core/idle_memory.h -- memory that is held for its next use. It is given up before an
// allocation fails.
#pragma once

#include <memory>
#include <string>

namespace megjit::runtime {

class Device;

class IdleMemory {
public:
    virtual ~IdleMemory() = default;
    // Releases what is idle. Whether that was anything.
    virtual bool give_up() noexcept = 0;
};

// It is asked as long as somebody else holds it.
void register_idle_memory(const std::shared_ptr<IdleMemory>& memory);
bool give_up_idle_memory() noexcept;
// For the error that follows where it did not suffice: the largest tensors alive.
std::string largest_holders(Device& device);

}  // namespace megjit::runtime
