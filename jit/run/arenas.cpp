#include "jit/run/arenas.h"

#include <algorithm>
#include <mutex>

namespace megjit::jit {

std::shared_ptr<Arenas> Arenas::make(std::string owner) {
    std::shared_ptr<Arenas> made(new Arenas(std::move(owner)));
    runtime::register_idle_memory(made);
    return made;
}

Arenas::~Arenas() { release_idle(nullptr); }

Arenas::Lease Arenas::take(runtime::Device& device, size_t bytes, const void* preferred,
                           size_t most) {
    if (most != SIZE_MAX) keep_idle_within(most);
    if (bytes == 0) return {};
    const bool is_of_graph = device.stream().is_recorded();
    if (!is_of_graph) {
        const std::lock_guard lock(mutex_);
        auto best = idle_.end();
        for (auto block = idle_.begin(); block != idle_.end(); ++block) {
            if (block->device != &device || block->bytes < bytes) continue;
            const bool is_preferred = block->data == preferred;
            if (is_preferred || best == idle_.end() || block->bytes < best->bytes) best = block;
            if (is_preferred) break;
        }
        if (best != idle_.end()) {
            const Block block = *best;
            idle_.erase(best);
            return {*this, block};
        }
    }
    if (!is_of_graph && release_idle(&device) && most != SIZE_MAX) device.allocator().trim();
    Block block{&device, static_cast<std::byte*>(runtime::allocate(device, bytes)), bytes,
                is_of_graph};
    try {
        if (bytes >= runtime::LiveBlocks::kLeastBytes)
            device.live().add(block.data, {.bytes = bytes, .what = "arena of " + owner_});
        const std::lock_guard lock(mutex_);
        idle_.reserve(made_ + 1);
        ++made_;
    } catch (...) {
        release(block);
        throw;
    }
    return {*this, block};
}

void Arenas::give_back(const Block& block) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (block.is_of_graph) --made_;
        else idle_.push_back(block);
    }
    if (block.is_of_graph) release(block);
}

void Arenas::release(const Block& block) noexcept {
    block.device->live().remove(block.data);
    block.device->allocator().release(block.data, block.bytes);
}

void Arenas::keep_idle_within(size_t most) {
    std::vector<runtime::Device*> devices;
    {
        const std::lock_guard lock(mutex_);
        size_t bytes = 0;
        for (const Block& block : idle_) {
            bytes += block.bytes;
            devices.push_back(block.device);
        }
        if (bytes <= most) return;
    }
    release_idle(nullptr);
    for (runtime::Device* device : devices) device->allocator().trim();
}

bool Arenas::release_idle(const runtime::Device* of) noexcept {
    for (bool any = false;; any = true) {
        Block block;
        {
            const std::lock_guard lock(mutex_);
            const auto found = std::ranges::find_if(
                idle_, [&](const Block& each) { return !of || each.device == of; });
            if (found == idle_.end()) return any;
            block = *found;
            idle_.erase(found);
            --made_;
        }
        release(block);
    }
}

}  // namespace megjit::jit
