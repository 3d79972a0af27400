// backends/cuda/source_kernel.h -- SourceKernel: a kernel written by hand as CUDA C++, compiled by
// NVRTC when it is first needed.
#pragma once

#include <array>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "backends/cuda/cuda_stream.h"

namespace megjit::cuda {

class SourceKernel {
public:
    struct Define {
        std::string_view name;
        std::string value;
    };
    // `entry` is an extern "C" __global__ function of `source`, which sees the definitions.
    SourceKernel(Gpu& gpu, std::string_view source, std::string_view entry,
                 std::initializer_list<Define> defines = {});

    // Arguments are passed by value, aligned as the compiler aligns the kernel's parameters.
    // Nothing is launched for an empty grid.
    template <class... Args>
    void launch(CudaStream& stream, const LaunchSize& size, const Args&... args) const {
        if (size.grid[0] == 0 || size.grid[1] == 0 || size.grid[2] == 0) return;
        alignas(16) std::array<std::byte, 4096> packed;
        size_t bytes = 0;
        const auto pack = [&](const auto& arg) {
            while (bytes % alignof(decltype(arg)))  // equal launches have equal bytes
                packed[bytes++] = std::byte{0};
            std::memcpy(packed.data() + bytes, &arg, sizeof arg);
            bytes += sizeof arg;
        };
        (pack(args), ...);
        static_assert((0 + ... + (sizeof(Args) + alignof(Args))) <= sizeof packed);
        stream.launch(*loaded_, size, packed.data(), bytes);
    }

private:
    std::shared_ptr<const LoadedKernel> loaded_;
};

// The blocks for `count` threads, `threads` in each; beyond the largest grid, kernels stride.
inline LaunchSize blocks_for(int64_t count, uint32_t threads = 256) {
    constexpr int64_t kMostBlocks = int64_t{1} << 20;
    const int64_t blocks = std::min(kMostBlocks, (count + threads - 1) / threads);
    return {.grid = {static_cast<uint32_t>(blocks), 1, 1}, .block = {threads, 1, 1}};
}

}  // namespace megjit::cuda
