// backends/cuda/products/card.h -- CardDescription: what NVIDIA's libraries must know of a GPU to
// plan for it. Read from the driver on a card, written by hand in tests: plans come from the
// description alone, so both run the same code.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace megjit::cuda {

class CudaDriver;

struct CardDescription {
    std::string name = "NVIDIA GPU";
    int arch = 0;  // 90 is sm_90
    int driver_version = 0;  // 13000 is CUDA 13.0
    int multiprocessors = 0;
    int blocks_per_multiprocessor = 32, threads_per_multiprocessor = 2048;
    int registers_per_multiprocessor = 65536, registers_per_block = 65536;
    std::array<int, 3> max_grid{2147483647, 65535, 65535}, max_block{1024, 1024, 64};
    int threads_per_block = 1024, warp = 32;
    // Shared memory in bytes: of any block, of a block that asks for more, and what the system
    // keeps.
    int shared_per_block = 49152, shared_per_block_at_most = 0, shared_reserved = 1024;
    size_t memory_bytes = 0;
    int cache_bytes = 0;  // size of the second level
    int memory_bus_bits = 0, clock_khz = 0, memory_clock_khz = 0;
    bool launches_cooperatively = true, is_tcc = false;
};

// The driver's description of one of its GPUs. DeviceError when the driver does not answer.
CardDescription describe_card(const CudaDriver& driver, int ordinal);

// The text that cuDNN takes from version 9.11 on. It needs all of these keys, and reads no other.
std::string to_json(const CardDescription& card);

}  // namespace megjit::cuda
