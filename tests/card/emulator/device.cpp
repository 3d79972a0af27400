#include "tests/card/emulator/device.h"

#include <algorithm>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "tests/card/emulator/stream.h"

namespace megjit::card {
namespace {

constexpr Description kA100 = {"Emulated A100", 80,        108,      1410000, 1593000, 5120,
                               40 << 20,        163 << 10, 164 << 10};
constexpr Description kH100 = {"Emulated H100", 90,        132,      1980000, 2619000, 5120,
                               50 << 20,        227 << 10, 228 << 10};
constexpr Description kB200 = {"Emulated B200", 100,       148,      1965000, 3996000, 7680,
                               126 << 20,       227 << 10, 228 << 10};

std::mutex fault_mutex;
std::string& fault_text() {
    static auto& text = *new std::string;
    return text;
}

}  // namespace

int driver_version() {
    const char* given = std::getenv("MEGJIT_CARD_DRIVER");
    int major = 0, minor = 0;
    if (!given || !*given) return 13000;
    if (std::sscanf(given, "%d.%d", &major, &minor) < 1 || major < 1)
        throw Fault(Result::invalid_value,
                    text("MEGJIT_CARD_DRIVER is \"%s\"; give a version such as 12.4", given));
    return 1000 * major + 10 * minor;
}

int newest_ptx() {
    const char* given = std::getenv("MEGJIT_CARD_DRIVER");
    if (!given || !*given) return INT_MAX;
    // 12.0 to 12.5 have the versions 8.0 to 8.5, later ones of CUDA 12 are one behind.
    const int version = driver_version() / 10, major = version / 100, minor = version % 100;
    return 10 * (major - 4) + minor - (major == 12 && minor > 5);
}

std::string text(const char* format, ...) {
    char buffer[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, sizeof buffer, format, arguments);
    va_end(arguments);
    return buffer;
}

void set_last_fault(const std::string& text) {
    const std::lock_guard lock(fault_mutex);
    fault_text() = text;
}
std::string last_fault() {
    const std::lock_guard lock(fault_mutex);
    return fault_text();
}

std::vector<Card*>& cards() {
    static auto& all = *new std::vector<Card*>;  // streams' threads outlive static objects
    return all;
}

void make_cards() {
    if (!cards().empty()) return;
    const char* count = std::getenv("MEGJIT_EMULATED_GPUS");
    const char* arch = std::getenv("MEGJIT_CARD_ARCH");
    const Description* kind = &kH100;
    for (const Description* known : {&kA100, &kH100, &kB200})
        if (arch && std::atoi(arch) == known->arch) kind = known;
    if (arch && std::atoi(arch) != kind->arch)
        throw Fault(Result::invalid_value,
                    text("MEGJIT_CARD_ARCH is \"%s\"; give 80, 90 or 100", arch));
    const int cards_wanted = count ? std::clamp(std::atoi(count), 0, 16) : 1;
    if (cards_wanted == 0) throw Fault(Result::no_device);
    for (int i = 0; i < cards_wanted; ++i) cards().push_back(new Card(i, *kind));
}

Card* card_of(Address address) {
    for (Card* card : cards())
        if (card->memory.is_published(address)) return card;
    return nullptr;
}

Card::Card(int ordinal, const Description& description)
    : ordinal_(ordinal), description_(description), legacy_(new Stream(*this, true, 0, 0)) {}

int Card::attribute(int number) const {
    const Description& d = description_;
    switch (number) {
        case 1: return kMaxThreads;
        case 2:
        case 3: return 1024;
        case 4: return 64;
        case 5: return 0x7fffffff;
        case 6:
        case 7: return 65535;
        case 8: return kSharedBytes;
        case 9: return 65536;  // constant memory
        case 10: return 32;
        case 11: return 0x7fffffff;  // pitch
        case 12: return kRegistersOfSm;
        case 13: return d.sm_clock_khz;
        case 14: return 512;
        case 15: return 1;  // copies overlap
        case 16: return d.multiprocessors;
        case 19: return 1;  // maps host memory
        case 30: return 512;
        case 31: return 1;  // concurrent kernels
        case 32: return 1;  // ECC
        case 33: return ordinal_ + 1;  // PCI bus
        case 36: return d.memory_clock_khz;
        case 37: return d.memory_bus_bits;
        case 38: return d.l2_bytes;
        case 39: return kMaxThreadsOfSm;
        case 40: return 3;  // engines for copies
        case 41: return 1;  // unified addresses
        case 75: return d.arch / 10;
        case 76: return d.arch % 10;
        case 78:
        case 79:
        case 80: return 1;
        case 81: return d.shared_bytes_of_sm;
        case 82: return kRegistersOfSm;
        case 87: return 2;
        case 90: return 1;  // preemption
        case 91: return 1;  // registered memory has the host's addresses
        case 97: return d.shared_bytes_opt_in;
        case 99: return 1;  // cuMemHostRegister
        case 106: return kMaxBlocksOfSm;
        case 111: return kReservedSharedBytes;
        case 115: return 1;  // cuMemAllocAsync
        default: break;
    }
    if (number < 1 || number > 200)
        throw Fault(Result::invalid_value, text("there is no device attribute %d", number));
    return 0;
}

void Card::fail(const Fault& fault) {
    set_last_fault(fault.text);
    Result none = Result::success;
    result_.compare_exchange_strong(none, fault.result);
}

void Card::reset() {
    wait_for_all();
    memory.reset();
    peers_ = 0;
    result_ = Result::success;
}

Stream* Card::create_stream(bool blocking, int priority) {
    const std::lock_guard lock(mutex_);
    auto* stream = new Stream(*this, blocking, priority,
                              ++stream_serial_ + static_cast<uint64_t>(ordinal_) * 1000000);
    streams_.insert(stream);
    return stream;
}

void Card::destroy_stream(Stream* stream) {
    {
        const std::lock_guard lock(mutex_);
        streams_.erase(stream);
    }
    stream->line->close();
    delete stream;
}

bool Card::has_stream(const Stream* stream) const {
    const std::lock_guard lock(mutex_);
    return stream == legacy_ || streams_.contains(const_cast<Stream*>(stream));
}

Timeline::Point Card::queue(Stream& stream, std::shared_ptr<Work> work,
                            std::vector<Timeline::Point> after) {
    const std::lock_guard lock(mutex_);
    const auto add = [&](const Stream& other) {
        if (Timeline::Point point = other.line->last(); !point.reached())
            after.push_back(std::move(point));
    };
    if (&stream == legacy_) {
        for (const Stream* other : streams_)
            if (other->blocking) add(*other);
    } else if (stream.blocking) add(*legacy_);
    return stream.line->queue(std::move(work), std::move(after));
}

void Card::wait_for_all() {
    std::vector<Timeline::Point> points;
    {
        const std::lock_guard lock(mutex_);
        points.push_back(legacy_->line->last());
        for (const Stream* stream : streams_) points.push_back(stream->line->last());
    }
    for (const Timeline::Point& point : points) {
        point.wait();
        host_saw(point.card_ns());
    }
}

void Card::host_saw(double ns) {
    double before = host_ns_;
    while (before < ns && !host_ns_.compare_exchange_weak(before, ns)) {}
}

PinnedMemory& PinnedMemory::instance() {
    static auto& all = *new PinnedMemory;
    return all;
}

bool PinnedMemory::add(const void* at, size_t bytes, bool owned) {
    const std::lock_guard lock(mutex_);
    const auto begin = reinterpret_cast<Address>(at);
    const auto next = ranges_.lower_bound(begin);
    if (next != ranges_.end() && next->first < begin + bytes) return false;
    if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin)
        return false;
    ranges_[begin] = {bytes, owned};
    return true;
}

bool PinnedMemory::remove(const void* at, bool owned) {
    const std::lock_guard lock(mutex_);
    const auto it = ranges_.find(reinterpret_cast<Address>(at));
    if (it == ranges_.end() || it->second.owned != owned) return false;
    ranges_.erase(it);
    return true;
}

Extent PinnedMemory::find(Address address, uint64_t bytes) const {
    const std::shared_lock lock(mutex_);
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return {};
    --it;
    const Extent extent = {it->first, it->first + it->second.bytes, 0};
    return extent.holds(address, bytes) ? extent : Extent{};
}

Extent reachable(Card& card, Address address, uint64_t bytes) {
    Card* owner = card_of(address);
    if (!owner) return PinnedMemory::instance().find(address, bytes);
    if (owner != &card && !card.reaches(*owner)) return {};
    return owner->memory.find(address, bytes);
}

std::byte* on_host(Card& card, Address address, uint64_t bytes, const char* what) {
    if (Card* owner = card_of(address)) {
        const Extent extent = owner->memory.find(address, bytes);
        if (extent.holds(address, bytes))
            return reinterpret_cast<std::byte*>(address + static_cast<Address>(extent.to_host));
        throw Fault(Result::illegal_address,
                    text("%s: %llu bytes at 0x%llx of card %d: ", what,
                         static_cast<unsigned long long>(bytes),
                         static_cast<unsigned long long>(address), owner->ordinal()) +
                        owner->memory.describe(address));
    }
    (void)card;
    throw Fault(Result::illegal_address, text("%s: 0x%llx is not an address of a card", what,
                                              static_cast<unsigned long long>(address)));
}

}  // namespace megjit::card
