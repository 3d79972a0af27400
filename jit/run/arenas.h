// jit/run/arenas.h -- Arenas: where the programs of one traced function put what lives within a
// call. A run takes an arena for its time; so versions of all shapes and segments share one, as
// large as the largest of them needs, and runs side by side have one each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/idle_memory.h"
#include "runtime/host/mutex.h"

namespace megjit::jit {

class Arenas final : public runtime::IdleMemory {
    struct Block {
        runtime::Device* device = nullptr;
        std::byte* data = nullptr;
        size_t bytes = 0;
        bool is_of_graph = false;  // a library's graph is made of the run: no other may use it
    };

public:
    // `owner`: the function, for errors.
    static std::shared_ptr<Arenas> make(std::string owner);
    ~Arenas() override;

    // One run holds the arena, also while its work is queued: the next run's work comes after it.
    class Lease {
    public:
        Lease() = default;
        Lease(Lease&& other) noexcept
            : arenas_(std::exchange(other.arenas_, nullptr)), block_(other.block_) {}
        Lease& operator=(Lease&&) = delete;
        ~Lease() {
            if (arenas_) arenas_->give_back(block_);
        }
        std::byte* data() const { return block_.data; }

    private:
        friend class Arenas;
        Lease(Arenas& arenas, const Block& block) : arenas_(&arenas), block_(block) {}
        Arenas* arenas_ = nullptr;
        Block block_ = {};
    };
    // Gives at least `bytes`; the arena at `preferred` if it is free. Idle smaller arenas are
    // released first, and all idle ones where they take more than `most` bytes. OutOfMemory.
    Lease take(runtime::Device& device, size_t bytes, const void* preferred,
               size_t most = SIZE_MAX);

    bool give_up() noexcept override { return release_idle(nullptr); }
    // Gives arenas that nobody uses back to the system, if they take more than `most` bytes.
    void keep_idle_within(size_t most);

private:
    explicit Arenas(std::string owner) : owner_(std::move(owner)) {}
    void give_back(const Block& block) noexcept;
    static void release(const Block& block) noexcept;
    bool release_idle(const runtime::Device* of) noexcept;  // null: of all devices

    const std::string owner_;
    runtime::Mutex mutex_{"the arenas of a function"};
    std::vector<Block> idle_;  // has room for all blocks that exist
    size_t made_ = 0;  // blocks that exist
};

}  // namespace megjit::jit
