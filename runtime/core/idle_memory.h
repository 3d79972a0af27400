// runtime/core/idle_memory.h -- memory that is kept for its next use. Its holders give it up before
// an allocation fails.
#pragma once

#include <memory>
#include <string>

namespace megjit::runtime {

class Device;

class IdleMemory {
public:
    virtual ~IdleMemory() = default;
    // Releases what is idle. Returns whether there was anything.
    virtual bool give_up() noexcept = 0;
};

// The holder is asked to give up memory as long as somebody else keeps it alive.
void register_idle_memory(const std::shared_ptr<IdleMemory>& memory);
bool give_up_idle_memory() noexcept;
// The largest tensors alive: for the error that follows where giving up idle memory did not
// suffice.
std::string largest_holders(Device& device);

}  // namespace megjit::runtime
