// tests/card/emulator/ptx/shared.h -- who touched which byte of a block's shared memory since the
// last barrier. What two warps do to a byte, one of them writing, has no order but by a barrier: a
// card does it in any. (Barriers of some of the warps are taken for barriers of all.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace megjit::card::ptx {

class SharedLog {
public:
    enum class Kind : uint8_t { read, write, atomic };

    explicit SharedLog(size_t bytes) : bytes_(bytes), writes_(make(bytes)), reads_(make(bytes)) {}
    void barrier();
    // False where another warp did to one of the bytes what this may not come beside.
    bool note(uint32_t warp, Kind kind, size_t offset, size_t bytes);
    // In words, of the first such byte.
    std::string describe(uint32_t warp, Kind kind, size_t offset, size_t bytes) const;

private:
    // An entry is the epoch in which it was made, flags, and a warp.
    static constexpr uint32_t kWarp = 31, kAtomic = 32, kSeveral = 64, kEpoch = 256;
    bool is_now(uint32_t entry) const { return entry / kEpoch == epoch_; }
    bool conflicts(uint32_t warp, Kind kind, size_t at) const;

    // Zeros, in pages that are taken when they are touched.
    struct Free {
        void operator()(uint32_t* p) const { std::free(p); }
    };
    using Entries = std::unique_ptr<uint32_t[], Free>;
    static Entries make(size_t bytes) {
        return Entries(static_cast<uint32_t*>(std::calloc(bytes + 1, sizeof(uint32_t))));
    }

    uint32_t epoch_ = 1;
    size_t bytes_;
    Entries writes_, reads_;  // the last ones of each byte
};

}  // namespace megjit::card::ptx
