// runtime/philox.h -- Philox4x32-10, the counter-based generator: 128 random bits from a key and a
// counter, in any order and by any number of threads. Source: Salmon, Moraes, Dror and Shaw 2011,
// "Parallel Random Numbers: As Easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>

namespace megjit::runtime {

struct Philox {
    using Block = std::array<uint32_t, 4>;
    std::array<uint32_t, 2> key{};
    std::array<uint32_t, 2>
        stream{};  // the high half of the counter; the low half numbers the blocks

    // From the key tensor of random ops: seed low, seed high, counter low, counter high.
    static Philox from_key(const int32_t* k) {
        return {{static_cast<uint32_t>(k[0]), static_cast<uint32_t>(k[1])},
                {static_cast<uint32_t>(k[2]), static_cast<uint32_t>(k[3])}};
    }

    Block block(uint64_t index) const {
        return rounds({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), stream[0],
                       stream[1]},
                      key);
    }

    static Block rounds(Block c, std::array<uint32_t, 2> k) {
        for (int round = 0; round < 10; ++round) {
            const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
            c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
                 static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
            k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};  // golden ratio, sqrt(3) - 1
        }
        return c;
    }
};

inline float unit_float(uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24f;
}  // [0, 1), 24 bits
inline float positive_unit_float(uint32_t word) {
    return static_cast<float>((word >> 8) + 1) * 0x1p-24f;
}  // (0, 1]
inline double unit_double(uint32_t high, uint32_t low) {  // [0, 1), 53 bits
    return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace megjit::runtime
