#include "backends/cuda/products/card.h"

#include <algorithm>
#include <cstdio>

#include "backends/cuda/driver.h"
#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

using runtime::cat;

constexpr int kLeastClockKhz = 1'000'000;

std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        if (static_cast<unsigned char>(c) >= ' ') result += c;
    }
    return result + "\"";
}

std::string list(const std::array<int, 3>& values) {
    return cat("[", values[0], ", ", values[1], ", ", values[2], "]");
}

}  // namespace

CardDescription describe_card(const CudaDriver& driver, int ordinal) {
    const Functions& call = driver.call();
    DeviceId device = 0;
    driver.check(call.device(&device, ordinal), "cuDeviceGet");
    // Attributes are named by the driver's numbers.
    const auto ask = [&](int attribute) {
        int value = 0;
        driver.check(call.device_attribute(&value, attribute, device), "cuDeviceGetAttribute");
        return value;
    };
    char name[256] = {};
    driver.check(call.device_name(name, sizeof name, device), "cuDeviceGetName");
    CardDescription card;
    card.name = name;
    card.driver_version = driver.version();
    card.arch = 10 * ask(75) + ask(76);
    card.multiprocessors = ask(16);
    card.blocks_per_multiprocessor = ask(106);
    card.threads_per_multiprocessor = ask(39);
    card.registers_per_multiprocessor = ask(82);
    card.registers_per_block = ask(12);
    card.max_grid = {ask(5), ask(6), ask(7)};
    card.max_block = {ask(2), ask(3), ask(4)};
    card.threads_per_block = ask(1);
    card.warp = ask(10);
    card.shared_per_block = ask(8);
    card.shared_per_block_at_most = ask(97);
    card.shared_reserved = ask(111);
    card.cache_bytes = ask(38);
    card.memory_bus_bits = ask(37);
    // Some drivers give 0 for these: the least values are used, for times are estimated from them.
    card.clock_khz = std::max(ask(13), kLeastClockKhz);
    card.memory_clock_khz = std::max(ask(36), kLeastClockKhz);
    card.launches_cooperatively = ask(95) != 0;
    card.is_tcc = ask(35) != 0;
    driver.check(call.total_memory(&card.memory_bytes, device), "cuDeviceTotalMem");
    return card;
}

std::string to_json(const CardDescription& card) {
    return cat(
        "{\"deviceName\": ", quoted(card.name), ", \"deviceVer\": ", 10 * card.arch,
        ", \"driverVer\": ", card.driver_version,
        ", \"cudaDeviceId\": 0, \"pciDeviceId\": 0, \"multiProcessorCount\": ",
        card.multiprocessors, ", \"maxCtasPerSM\": ", card.blocks_per_multiprocessor,
        ", \"maxThreadsPerSM\": ", card.threads_per_multiprocessor,
        ", \"maxRegistersPerSM\": ", card.registers_per_multiprocessor,
        ", \"maxGridSize\": ", list(card.max_grid), ", \"maxBlockSize\": ", list(card.max_block),
        ", \"maxThreadsPerBlock\": ", card.threads_per_block,
        ", \"regsPerBlock\": ", card.registers_per_block, ", \"warpSize\": ", card.warp,
        ", \"maxSharedMemoryPerBlock\": ", card.shared_per_block,
        ", \"maxSharedMemoryPerBlockOptin\": ", card.shared_per_block_at_most,
        ", \"reservedSharedMemoryPerBlock\": ", card.shared_reserved,
        ", \"totalGlobalMem\": ", card.memory_bytes, ", \"l2CacheSize\": ", card.cache_bytes,
        ", \"memoryBusWidth\": ", card.memory_bus_bits, ", \"smClockRateKHz\": ", card.clock_khz,
        ", \"memClockRateKHz\": ", card.memory_clock_khz,
        ", \"supportCoopLaunch\": ", card.launches_cooperatively ? 1 : 0,
        ", \"isTccDriver\": ", card.is_tcc ? 1 : 0, "}");
}

}  // namespace megjit::cuda
