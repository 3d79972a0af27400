#include "tests/card/emulator/works.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace megjit::card {
namespace {

constexpr double kLaunchNs = 2000;  // until the card starts
constexpr double kPinnedBytesPerNs = 50, kPageableBytesPerNs = 12, kPeerBytesPerNs = 200;

thread_local bool inside_host_function = false;

// A faulty range is an error of the call, as drivers have it.
void check_range(const char* what, Address address, size_t bytes) {
    Card* owner = card_of(address);
    Address begin = 0;
    Allocation found;
    if (owner && owner->memory.allocation_at(address, begin, found) &&
        bytes <= found.bytes - (address - begin))
        return;
    throw Fault(
        Result::invalid_value,
        text("%s: %zu bytes at 0x%llx: ", what, bytes, static_cast<unsigned long long>(address)) +
            (owner ? owner->memory.describe(address) : "no address of a card"));
}

// As where the card reads pageable memory by itself (HMM).
bool stages_nothing() {
    const char* given = std::getenv("MEGJIT_CARD_HMM");
    return given && *given == '1';
}

size_t span(size_t pitch, size_t width, size_t height) {
    return height == 0 || width == 0 ? 0 : pitch * (height - 1) + width;
}

}  // namespace

bool in_host_function() { return inside_host_function; }

CopyWork::CopyWork(Card& card, Side to, Side from, size_t width, size_t height, bool stage)
    : to(to), from(from), width(width), height(height) {
    (void)card;
    if (width == 0 || height == 0) return;
    if (to.on_card) check_range("the target of a copy", to.address, span(to.pitch, width, height));
    if (from.on_card)
        check_range("the source of a copy", from.address, span(from.pitch, width, height));
    for (const Side& side : {to, from})
        if (!side.on_card && (!side.address || card_of(side.address)))
            throw Fault(Result::invalid_value, text("0x%llx is not an address of the host",
                                                    static_cast<unsigned long long>(side.address)));
    const size_t bytes = span(from.pitch, width, height);
    if (stage && !stages_nothing() && !from.on_card &&
        PinnedMemory::instance().find(from.address, bytes).begin == 0) {
        const auto* data = reinterpret_cast<const std::byte*>(from.address);
        staged_.assign(data, data + bytes);
    }
}

double CopyWork::run(Card& card) {
    if (width == 0 || height == 0) return 0;
    const auto place = [&](const Side& side, const char* what) {
        return side.on_card ? on_host(card, side.address, span(side.pitch, width, height), what)
                            : reinterpret_cast<std::byte*>(side.address);
    };
    std::byte* target = place(to, "the target of a copy");
    const std::byte* source =
        staged_.empty() ? place(from, "the source of a copy") : staged_.data();
    for (size_t row = 0; row < height; ++row)
        std::memmove(target + row * to.pitch, source + row * from.pitch, width);
    const double bytes = static_cast<double>(width) * static_cast<double>(height);
    if (to.on_card && from.on_card)
        return kLaunchNs + (card_of(to.address) == card_of(from.address)
                                ? 2 * bytes / card.description().bytes_per_ns()
                                : bytes / kPeerBytesPerNs);
    const Address host = to.on_card ? from.address : to.address;
    const bool pinned = PinnedMemory::instance().find(host, width).begin != 0;
    return kLaunchNs + bytes / (pinned ? kPinnedBytesPerNs : kPageableBytesPerNs);
}

FillWork::FillWork(Card&, Address to, uint32_t value, uint32_t element_bytes, Rows rows)
    : to(to), value(value), element_bytes(element_bytes), rows(rows) {
    if (to % element_bytes != 0)
        throw Fault(Result::invalid_value,
                    text("a fill of %u-byte elements at 0x%llx is misaligned", element_bytes,
                         static_cast<unsigned long long>(to)));
    if (const size_t bytes = span(rows.pitch, rows.width, rows.height))
        check_range("the target of a fill", to, bytes);
}

double FillWork::run(Card& card) {
    const size_t bytes = span(rows.pitch, rows.width, rows.height);
    if (bytes == 0) return 0;
    std::byte* target = on_host(card, to, bytes, "the target of a fill");
    for (size_t row = 0; row < rows.height; ++row, target += rows.pitch) {
        if (element_bytes == 1) std::memset(target, static_cast<int>(value), rows.width);
        else
            for (size_t at = 0; at < rows.width; at += element_bytes)
                std::memcpy(target + at, &value, element_bytes);
    }
    return kLaunchNs +
           static_cast<double>(rows.width * rows.height) / card.description().bytes_per_ns();
}

double HostWork::run(Card&) {
    inside_host_function = true;
    function(data);
    inside_host_function = false;
    return kLaunchNs;
}

double LibraryWork::run(Card& card) {
    std::vector<void*> places;
    size_t bytes = 0;
    for (const Operand& operand : operands_) {
        places.push_back(
            operand.bytes ? on_host(card, operand.address, operand.bytes, name_.c_str()) : nullptr);
        bytes += operand.bytes;
    }
    if (const char* wrong = run_(data_, places.data()))
        throw Fault(Result::launch_failed, name_ + ": " + wrong);
    return kLaunchNs + static_cast<double>(bytes) / card.description().bytes_per_ns() +
           flops_ / (2 * card.description().thread_instructions_per_ns());
}

double LiveWork::run(Card& card) {
    card.memory.make_live(address_);
    return 0;
}

double FreeWork::run(Card& card) {
    if (!card.memory.free(address_))
        throw Fault(Result::invalid_value, "cuMemFreeAsync of memory that is already free");
    return 0;
}

}  // namespace megjit::card
