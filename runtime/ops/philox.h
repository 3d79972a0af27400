// runtime/ops/philox.h -- Philox4x32-10, the counter-based generator: 128 random bits from a key
// and a counter, in any order and by any number of threads. Source: Salmon, Moraes, Dror and Shaw
// 2011, "Parallel Random Numbers: As Easy as 1, 2, 3".
//
// Compiled twice: for the host, and as CUDA C++ by NVRTC, which has no headers.
#pragma once

#ifdef __CUDACC_RTC__
#define MEGJIT_ANYWHERE __device__ __forceinline__
typedef int int32_t;
typedef unsigned uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#define MEGJIT_ANYWHERE [[gnu::always_inline]] inline
#endif

namespace megjit::runtime {

struct Philox {
    struct Block {
        uint32_t words[4];
        MEGJIT_ANYWHERE uint32_t operator[](int i) const { return words[i]; }
        MEGJIT_ANYWHERE bool operator==(const Block& other) const {
            return words[0] == other[0] && words[1] == other[1] && words[2] == other[2] &&
                   words[3] == other[3];
        }
    };
    struct Key {
        uint32_t low, high;
    };
    Key key{};
    Key stream{};  // the high half of the counter; the low half is the number of the block

    // Reads the key tensor of random ops: seed low, seed high, counter low, counter high.
    MEGJIT_ANYWHERE static Philox from_key(const int32_t* k) {
        return {{static_cast<uint32_t>(k[0]), static_cast<uint32_t>(k[1])},
                {static_cast<uint32_t>(k[2]), static_cast<uint32_t>(k[3])}};
    }

    MEGJIT_ANYWHERE Block block(uint64_t index) const {
        return rounds({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                        stream.low, stream.high}},
                      key);
    }

    MEGJIT_ANYWHERE static Block rounds(Block c, Key k) {
        for (int round = 0; round < 10; ++round) {
            const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
            c = {{static_cast<uint32_t>(b >> 32) ^ c[1] ^ k.low, static_cast<uint32_t>(b),
                  static_cast<uint32_t>(a >> 32) ^ c[3] ^ k.high, static_cast<uint32_t>(a)}};
            k = {k.low + 0x9E3779B9u, k.high + 0xBB67AE85u};  // golden ratio, sqrt(3) - 1
        }
        return c;
    }
};

MEGJIT_ANYWHERE float unit_float(uint32_t word) {
    return static_cast<float>(word >> 8) * 0x1p-24f;
}  // [0, 1), 24 bits
MEGJIT_ANYWHERE double unit_double(uint32_t high, uint32_t low) {  // [0, 1), 53 bits
    return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace megjit::runtime
