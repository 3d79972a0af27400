#include "runtime/host/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "runtime/host/parallel.h"

namespace megjit::runtime {
namespace {

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio

}  // namespace

// Multiplies and rotates.
uint64_t checksum_of_words(std::string_view bytes) {
    uint64_t sum = bytes.size() * kOdd;
    for (size_t i = 0; i < bytes.size(); i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
        sum = std::rotl((sum ^ word) * kOdd, 29);
    }
    return sum ^ (sum >> 32);
}

uint64_t checksum(std::string_view bytes) {
    constexpr size_t kLanes = 8, kPiece = 1 << 20;
    std::vector<uint64_t> sums((bytes.size() + kPiece - 1) / kPiece * kLanes + 1, bytes.size());
    parallel_for(static_cast<int64_t>(sums.size() / kLanes), 4, 1, [&](int64_t first, int64_t end) {
        for (int64_t i = first; i < end; ++i) {
            const std::string_view piece = bytes.substr(static_cast<size_t>(i) * kPiece, kPiece);
            uint64_t lanes[kLanes] = {};
            size_t at = 0;
            for (; at + sizeof lanes <= piece.size(); at += sizeof lanes) {
                uint64_t words[kLanes];
                std::memcpy(words, piece.data() + at, sizeof words);
                for (size_t lane = 0; lane < kLanes; ++lane)
                    lanes[lane] = std::rotl((lanes[lane] ^ words[lane]) * kOdd, 29);
            }
            lanes[0] ^= checksum_of_words(piece.substr(at));
            std::ranges::copy(lanes, &sums[static_cast<size_t>(i) * kLanes]);
        }
    });
    return checksum_of_words(
        {reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(uint64_t)});
}

}  // namespace megjit::runtime
