// tests/card/emulator/device.h -- one emulated card: what it is, its memory, its streams, its
// fault.
#pragma once

#include <array>
#include <atomic>
#include <set>
#include <unordered_map>

#include "tests/card/emulator/device_memory.h"
#include "tests/card/emulator/timeline.h"

namespace megjit::card {

// Figures as vendors publish them and drivers report them.
struct Description {
    const char* name;
    int arch;  // 90 is compute capability 9.0
    int multiprocessors, sm_clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes;
    int shared_bytes_opt_in;  // of a block, when asked for
    int shared_bytes_of_sm;

    double bytes_per_ns() const { return 2e-6 * memory_clock_khz * memory_bus_bits / 8; }
    double thread_instructions_per_ns() const {
        return 1e-6 * sm_clock_khz * multiprocessors * 128;
    }
};
constexpr int kSharedBytes = 48 << 10;  // of a block, without asking
constexpr int kReservedSharedBytes = 1 << 10;
constexpr int kMaxThreads = 1024, kMaxThreadsOfSm = 2048, kMaxBlocksOfSm = 32;
constexpr int kRegistersOfSm = 65536;

class Stream;

class Card {
public:
    Card(int ordinal, const Description& description);

    int ordinal() const { return ordinal_; }
    const Description& description() const { return description_; }
    // Throws invalid_value for attributes that do not exist.
    int attribute(int number) const;

    DeviceMemory memory;

    // ---- the sticky fault
    bool failed() const { return result_ != Result::success; }
    Result result() const { return result_; }
    void fail(const Fault& fault);
    void reset();  // the primary context's: memory, fault, peers

    // ---- streams. All of the card's queueing goes through here, so that the legacy stream waits
    // for every blocking one and these for it.
    Stream& legacy() { return *legacy_; }
    Stream* create_stream(bool blocking, int priority);
    void destroy_stream(Stream* stream);
    bool has_stream(const Stream* stream) const;
    Timeline::Point queue(Stream& stream, std::shared_ptr<Work> work,
                          std::vector<Timeline::Point> after = {});
    void wait_for_all();

    // The latest moment of the card's clock that the host has waited for.
    double host_ns() const { return host_ns_; }
    void host_saw(double ns);

    bool reaches(const Card& other) const { return peers_ & 1u << other.ordinal(); }
    std::atomic<uint32_t> peers_{0};  // cards whose memory kernels of this one may use
    std::atomic<int> context_uses{0};

private:
    int ordinal_;
    const Description& description_;
    std::atomic<Result> result_{Result::success};
    std::atomic<double> host_ns_{0};
    mutable std::mutex mutex_;
    std::set<Stream*> streams_;
    uint64_t stream_serial_ = 0;
    Stream* legacy_;
};

// MEGJIT_CARD_DRIVER, "12.4" as 12040; else what the libraries of our tests want. Throws Fault.
int driver_version();
// The newest version of PTX that it compiles, 84 for 8.4; any, where MEGJIT_CARD_DRIVER is not set:
// real cards get machine code of a later NVRTC, where this one gets its PTX.
int newest_ptx();

// Every card there is; made at cuInit.
std::vector<Card*>& cards();
void make_cards();  // throws Fault
Card* card_of(Address address);  // whose memory it lies in, or null

// What megjit_card_last_fault tells.
void set_last_fault(const std::string& text);
std::string last_fault();

// ---- pinned host memory, which kernels and copies may use
class PinnedMemory {
public:
    bool add(const void* at, size_t bytes, bool owned);  // false when part of it is already there
    bool remove(const void* at, bool owned);
    Extent find(Address address, uint64_t bytes) const;
    static PinnedMemory& instance();

private:
    struct Range {
        size_t bytes;
        bool owned;
    };
    mutable std::shared_mutex mutex_;
    std::map<Address, Range> ranges_;
};

// Where the executor of `card` finds the bytes; begin == end where it must not touch them.
Extent reachable(Card& card, Address address, uint64_t bytes);
// Likewise; throws illegal_address, with `what` and the nearest allocation in the text.
std::byte* on_host(Card& card, Address address, uint64_t bytes, const char* what);

}  // namespace megjit::card
