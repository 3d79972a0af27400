#include "backends/cuda/described_card.h"

#include <atomic>
#include <cstdlib>

#include "runtime/host/debug.h"
#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

constexpr Result kNotSupported = 801;
constexpr size_t kGiB = size_t{1} << 30;

// The values that the drivers of these cards report.
const CardDescription kCards[] = {
    {.name = "NVIDIA A100",
     .arch = 80,
     .driver_version = 13000,
     .multiprocessors = 108,
     .shared_per_block_at_most = 163 << 10,
     .memory_bytes = 80 * kGiB,
     .cache_bytes = 40 << 20,
     .memory_bus_bits = 5120,
     .clock_khz = 1410000,
     .memory_clock_khz = 1593000},
    {.name = "NVIDIA A10",
     .arch = 86,
     .driver_version = 13000,
     .multiprocessors = 72,
     .blocks_per_multiprocessor = 16,
     .threads_per_multiprocessor = 1536,
     .shared_per_block_at_most = 99 << 10,
     .memory_bytes = 24 * kGiB,
     .cache_bytes = 6 << 20,
     .memory_bus_bits = 384,
     .clock_khz = 1695000,
     .memory_clock_khz = 6251000},
    {.name = "NVIDIA L40S",
     .arch = 89,
     .driver_version = 13000,
     .multiprocessors = 142,
     .blocks_per_multiprocessor = 24,
     .threads_per_multiprocessor = 1536,
     .shared_per_block_at_most = 99 << 10,
     .memory_bytes = 48 * kGiB,
     .cache_bytes = 96 << 20,
     .memory_bus_bits = 384,
     .clock_khz = 2520000,
     .memory_clock_khz = 9001000},
    {.name = "NVIDIA H100",
     .arch = 90,
     .driver_version = 13000,
     .multiprocessors = 132,
     .shared_per_block_at_most = 227 << 10,
     .memory_bytes = 80 * kGiB,
     .cache_bytes = 50 << 20,
     .memory_bus_bits = 5120,
     .clock_khz = 1980000,
     .memory_clock_khz = 2619000},
    {.name = "NVIDIA B200",
     .arch = 100,
     .driver_version = 13000,
     .multiprocessors = 148,
     .shared_per_block_at_most = 227 << 10,
     .memory_bytes = 180 * kGiB,
     .cache_bytes = 126 << 20,
     .memory_bus_bits = 7680,
     .clock_khz = 1965000,
     .memory_clock_khz = 3996000},
    {.name = "NVIDIA GeForce RTX 5090",
     .arch = 120,
     .driver_version = 13000,
     .multiprocessors = 170,
     .blocks_per_multiprocessor = 24,
     .threads_per_multiprocessor = 1536,
     .shared_per_block_at_most = 99 << 10,
     .memory_bytes = 32 * kGiB,
     .cache_bytes = 96 << 20,
     .memory_bus_bits = 512,
     .clock_khz = 2407000,
     .memory_clock_khz = 14001000},
};

template <class... Parameters>
Result refuse(Parameters...) {
    return kNotSupported;
}
template <class... Parameters>
Result do_nothing(Parameters...) {
    return 0;
}

// A driver that accepts modules, gives memory of the host, and refuses everything that would run.
Functions functions() {
    Functions made;
#define MEGJIT_X(symbol, name, parameters) made.name = refuse;
    MEGJIT_CUDA_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
    made.error_name = [](Result, const char** name) {
        *name = "CUDA_ERROR_NOT_SUPPORTED";
        return 0;
    };
    made.error_text = [](Result, const char** text) {
        *text = "the GPU is described, and runs nothing";
        return 0;
    };
    made.create_stream = do_nothing;
    made.synchronize_stream = do_nothing;
    made.destroy_stream = do_nothing;
    made.retain_context = do_nothing;
    made.current_context = do_nothing;
    made.set_context = do_nothing;
    made.load_module = do_nothing;
    made.unload_module = do_nothing;
    made.function = do_nothing;
    made.set_function_attribute = do_nothing;
    made.allocate = [](Address* address, size_t bytes) {  // nobody reads or writes there
        static std::atomic<Address> next{Address{1} << 40};
        *address = next.fetch_add((bytes / 4096 + 1) * 4096);
        return 0;
    };
    made.free = do_nothing;
    made.allocate_host = [](void** memory, size_t bytes, unsigned) {
        *memory = std::malloc(bytes);
        return *memory ? 0 : kNotSupported;
    };
    made.free_host = [](void* memory) {
        std::free(memory);
        return 0;
    };
    return made;
}

}  // namespace

std::unique_ptr<runtime::Device> described_device(int arch, const Services& services,
                                                  bool compiles) {
    std::string known;
    for (const CardDescription& card : kCards) {
        known += runtime::cat(known.empty() ? "sm_" : ", sm_", card.arch);
        if (card.arch != arch) continue;
        static const auto* const driver =
            new CudaDriver(functions(), runtime::debug().emulated_gpus > 0);  // never destroyed
        return std::make_unique<CudaDevice>(std::make_shared<Gpu>(*driver, card, compiles),
                                            services);
    }
    runtime::user_error({.what = runtime::cat("no GPU of architecture sm_", arch, " is described"),
                         .why = "there are " + known,
                         .fix = "name one of these"});
}

}  // namespace megjit::cuda
