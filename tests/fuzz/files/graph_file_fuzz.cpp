// Mutated files of trace.dump (jit/file/graph_file.h): from_bytes reads them, or throws a
// UserError, and never asks for more memory than the file has. libFuzzer calls this, with
// AddressSanitizer and UndefinedBehaviorSanitizer.
#include <cstdlib>
#include <cstring>

#include "jit/file/graph_file.h"
#include "jit/file/graph_file_layout.h"
#include "runtime/core/device.h"
#include "runtime/host/checksum.h"
#include "runtime/host/error.h"

namespace {

using namespace megjit;

constexpr size_t kHeaderBytes = 32, kSchemaAt = 8, kTotalAt = 16, kChecksumAt = 24;

size_t bytes_left = 0;  // that tensors may take

// Blocks of the C library, whose bounds AddressSanitizer knows.
class BlockAllocator : public runtime::Allocator {
public:
    void* allocate(size_t bytes) override {
        if (bytes > bytes_left) std::abort();
        bytes_left -= bytes;
        return std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    }
    void release(void* p, size_t) noexcept override { std::free(p); }
    runtime::MemoryStats stats() const override { return {}; }
    void reset_peak() override {}
    void trim() override {}
    void set_cap(size_t) override {}
    void set_growth(const runtime::Growth&) override {}
    void fail_after(uint64_t) override {}
};

class Memory : public runtime::Device {
public:
    Memory() : Device(true) {}
    std::string_view name() const override { return "cpu0:0"; }
    runtime::DeviceInfo info() const override { return {}; }
    std::unique_ptr<runtime::Device> sibling(std::string) const override { std::abort(); }
    runtime::Allocator& allocator() override { return allocator_; }
    std::shared_ptr<const runtime::Executable> prepare(const runtime::OpCall&,
                                                       std::span<const runtime::Type>) override {
        std::abort();
    }

private:
    BlockAllocator allocator_;
};

// Lengths and checksum made right: otherwise hardly any mutation would get past them.
std::string sealed(std::string bytes) {
    const uint64_t total = bytes.size();
    std::memcpy(bytes.data() + kTotalAt, &total, sizeof total);
    const std::string_view rest = std::string_view(bytes).substr(kHeaderBytes);
    const uint64_t sum =
        bytes[kSchemaAt] > 2 ? runtime::checksum(rest) : runtime::checksum_of_words(rest);
    std::memcpy(bytes.data() + kChecksumAt, &sum, sizeof sum);
    return bytes;
}

std::string read_and_write(std::string_view bytes) {
    bytes_left = bytes.size();
    return jit::to_bytes(jit::from_bytes(bytes, "mutated"));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    runtime::register_all_ops();
    runtime::register_device(std::make_unique<Memory>());
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string bytes(reinterpret_cast<const char*>(data), size);
    if (size >= kHeaderBytes) bytes = sealed(std::move(bytes));
    try {
        const std::string again = read_and_write(bytes);
        if (read_and_write(again) != again)
            std::abort();  // what was accepted is written and read again
    } catch (const runtime::UserError&) {}
    return 0;
}
