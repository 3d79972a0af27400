// Loads and stores.
#include "tests/card/emulator/ptx/memory.h"

#include <algorithm>

namespace megjit::card::ptx {
namespace {

constexpr uint32_t kSector = 32;  // bytes that memory moves at least

// One address at a time: generic ones, several allocations, faults.
std::byte* place_of(Warp& w, const Inst& in, int lane, uint64_t address, uint32_t bytes) {
    Launch& launch = w.block->launch;
    const auto fault = [&](const std::string& where) {
        stop(w, 1u << lane, Result::illegal_address,
             text("%u bytes at 0x%llx: ", bytes, static_cast<unsigned long long>(address)) + where);
    };
    auto space = static_cast<Space>(in.mode);
    if (space == Space::generic && address >= kWindow) {
        const uint64_t window = (address - kWindow) / kWindowBytes;
        if (window > 2) fault("no such address");
        space = window == 0 ? Space::shared : window == 1 ? Space::local : Space::param;
        address = (address - kWindow) % kWindowBytes;
    }
    switch (space) {
        case Space::shared:
            if (address + bytes > w.block->shared_bytes)
                fault(text("the block has %u bytes of shared memory", w.block->shared_bytes));
            return w.block->shared + address;
        case Space::local:
            if (address + bytes > launch.code.local_bytes)
                fault(text("the thread has %u bytes of local memory", launch.code.local_bytes));
            return w.local + static_cast<uint64_t>(lane) * launch.code.local_bytes + address;
        case Space::param:
            if (address + bytes > launch.shape.parameters.size())
                fault(
                    text("the kernel has %zu bytes of parameters", launch.shape.parameters.size()));
            return const_cast<std::byte*>(launch.shape.parameters.data()) + address;
        default: break;
    }
    const Extent extent = reachable(launch.card, address, bytes);
    if (!extent.holds(address, bytes)) {
        const Card* owner = card_of(address);
        if (owner && owner != &launch.card && !launch.card.reaches(*owner))
            fault(text("memory of card %d, to which card %d has no peer access", owner->ordinal(),
                       launch.card.ordinal()));
        fault(owner          ? owner->memory.describe(address)
              : address == 0 ? "null"
                             : "no address of a card, nor of pinned host memory");
    }
    launch.extents[in.extent] = extent;
    return reinterpret_cast<std::byte*>(address + static_cast<uint64_t>(extent.to_host));
}

}  // namespace

void locate(Warp& w, const Inst& in, uint32_t m, uint32_t bytes, uint32_t alignment,
            Places& places) {
    int64_t address[kLanes];
    if (in.e == 8) {
        const uint64_t* a = row<uint64_t>(w, in.a);
        for (int i = 0; i < kLanes; ++i) address[i] = static_cast<int64_t>(a[i] + in.imm);
    } else {
        const uint32_t* a = row<uint32_t>(w, in.a);
        for (int i = 0; i < kLanes; ++i)
            address[i] = static_cast<uint32_t>(a[i] + static_cast<uint32_t>(in.imm));
    }
    const int64_t some = address[first_lane(m)];
    if (m != kAll)
        for (int i = 0; i < kLanes; ++i) address[i] = m & (1u << i) ? address[i] : some;
    int64_t low = some, high = some, bits = 0;
    for (int i = 0; i < kLanes; ++i) {
        low = std::min(low, address[i]);
        high = std::max(high, address[i]);
        bits |= address[i];
    }
    if (bits & (alignment - 1)) {
        const uint32_t wrong = m & vote([&](int i) { return (address[i] & (alignment - 1)) != 0; });
        stop(w, wrong, Result::misaligned_address,
             text("0x%llx is not a multiple of %u",
                  static_cast<unsigned long long>(address[first_lane(wrong)]), alignment));
    }
    const auto from = static_cast<uint64_t>(low), to = static_cast<uint64_t>(high) + bytes;
    Launch& launch = w.block->launch;
    uint64_t base = 0;  // what turns an address of this space into the host's
    const auto space = static_cast<Space>(in.mode);
    if (space == Space::shared) {
        if (low >= 0 && to <= w.block->shared_bytes)
            base = reinterpret_cast<uint64_t>(w.block->shared);
    } else if (space == Space::local) {
        if (low >= 0 && to <= launch.code.local_bytes) {
            for (int i = 0; i < kLanes; ++i)
                places.at[i] =
                    w.local + static_cast<int64_t>(i) * launch.code.local_bytes + address[i];
            return;
        }
    } else if (space != Space::param) {
        launch.bytes +=
            std::min<uint64_t>(std::max<uint64_t>(to - from, kSector),
                               static_cast<uint64_t>(std::popcount(m)) * std::max(bytes, kSector));
        const Extent& extent = launch.extents[in.extent];
        if (from >= extent.begin && to <= extent.end && from < to)
            base = static_cast<uint64_t>(extent.to_host);
    }
    if (base) {
        for (int i = 0; i < kLanes; ++i)
            places.at[i] = reinterpret_cast<std::byte*>(base + static_cast<uint64_t>(address[i]));
        return;
    }
    each_lane(m, [&](int i) {
        places.at[i] = place_of(w, in, i, static_cast<uint64_t>(address[i]), bytes);
    });
    const int first = first_lane(m);
    for (int i = 0; i < kLanes; ++i)
        if (!(m & 1u << i)) places.at[i] = places.at[first];
}

namespace {

bool in_order(const Places& places, uint32_t bytes) {
    const auto base = reinterpret_cast<uint64_t>(places.at[0]);
    uint64_t differs = 0;
    for (int i = 0; i < kLanes; ++i)
        differs |=
            reinterpret_cast<uint64_t>(places.at[i]) ^ (base + static_cast<uint64_t>(i) * bytes);
    return differs == 0;
}

}  // namespace

void note_shared(Warp& w, const Inst& in, uint32_t m, uint32_t bytes, SharedLog::Kind kind,
                 const Places& places) {
    const auto space = static_cast<Space>(in.mode);
    if ((space != Space::shared && space != Space::generic) || w.block->warps.size() == 1) return;
    Block& block = *w.block;
    const auto note = [&](int lane, size_t count) {
        const auto offset = static_cast<size_t>(places.at[lane] - block.shared);
        if (offset >= block.shared_bytes || block.log.note(w.index, kind, offset, count)) return;
        stop(w, 1u << lane, Result::launch_failed,
             block.log.describe(w.index, kind, offset, count));
    };
    if (m == kAll && in_order(places, bytes)) return note(0, size_t{bytes} * kLanes);
    const std::byte* before = nullptr;
    each_lane(m, [&](int i) {
        if (places.at[i] != before) note(i, bytes);
        before = places.at[i];
    });
}

namespace {

// M: in memory; D: in the register, which may be wider.
template <class M, class D>
void load(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    Places places;
    locate(w, in, m, sizeof(M) * in.count, sizeof(M) * in.count, places);
    note_shared(w, in, m, sizeof(M) * in.count, SharedLog::Kind::read, places);
    const auto read = [&](int i, uint32_t k) {
        M value;
        std::memcpy(&value, places.at[i] + k * sizeof(M), sizeof value);
        return static_cast<D>(value);
    };
    if (m == kAll && in.count == 1 && in_order(places, sizeof(M))) {
        const auto* from = reinterpret_cast<const M*>(places.at[0]);
        D* to = row<D>(w, in.d);
        for (int i = 0; i < kLanes; ++i) to[i] = static_cast<D>(from[i]);
        return;
    }
    for (uint32_t k = 0; k < in.count; ++k) {
        D* to = row<D>(w, in.list ? in.list[k] : in.d);
        if (m == kAll)
            for (int i = 0; i < kLanes; ++i) to[i] = read(i, k);
        else each_lane(m, [&](int i) { to[i] = read(i, k); });
    }
}

template <class M>
void store(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    Places places;
    locate(w, in, m, sizeof(M) * in.count, sizeof(M) * in.count, places);
    note_shared(w, in, m, sizeof(M) * in.count, SharedLog::Kind::write, places);
    if (m == kAll && in.count == 1 && in_order(places, sizeof(M))) {
        std::memcpy(places.at[0], row<M>(w, in.list[0]), sizeof(M) * kLanes);
        return;
    }
    each_lane(m, [&](int i) {
        for (uint32_t k = 0; k < in.count; ++k)
            std::memcpy(places.at[i] + k * sizeof(M), row<M>(w, in.list[k]) + i, sizeof(M));
    });
}

Space space_of(const Statement& s) {
    for (const std::string& m : s.opcode) {
        if (m == "global") return Space::global;
        if (m.starts_with("shared")) return Space::shared;
        if (m == "local") return Space::local;
        if (m == "const") return Space::constant;
        if (m.starts_with("param")) return Space::param;
    }
    return Space::generic;
}

uint32_t vector_count(Decoder& d, const Statement& s, const Operand& data) {
    const uint32_t n = s.has("v2") ? 2 : s.has("v4") ? 4 : s.has("v8") ? 8 : 1;
    if (n > 1 && data.parts.size() != n) d.refuse("another number of elements");
    return n;
}

template <class M>
Run load_into(Decoder& d, uint32_t bytes) {
    if (bytes < sizeof(M)) d.refuse("the register is narrower than the value");
    if constexpr (sizeof(M) <= 2)
        if (bytes == 2) return &load<M, std::conditional_t<std::is_signed_v<M>, int16_t, uint16_t>>;
    if constexpr (sizeof(M) <= 4)
        if (bytes == 4) return &load<M, std::conditional_t<std::is_signed_v<M>, int32_t, uint32_t>>;
    return &load<M, std::conditional_t<std::is_signed_v<M>, int64_t, uint64_t>>;
}

void decode_load(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    const Operand& data = s.operands.at(0);
    in.count = static_cast<uint8_t>(vector_count(d, s, data));
    decode_address(d, s, s.operands.at(1), in);
    const std::vector<Operand> parts = in.count > 1 ? data.parts : std::vector{data};
    // The widest register of the list decides; lists have one width.
    uint32_t bytes = 0;
    for (const Operand& part : parts) bytes = std::max(bytes, d.element_bytes(part));
    bytes = std::max(bytes, std::max(bytes_of(type), 2u));
    std::vector<uint32_t> rows;
    for (const Operand& part : parts) rows.push_back(d.dest(part, bytes));
    in.d = rows[0];
    in.list = d.keep(std::move(rows)).data();
    switch (bytes_of(type)) {
        case 1:
            in.run = is_signed(type) ? load_into<int8_t>(d, bytes) : load_into<uint8_t>(d, bytes);
            break;
        case 2:
            in.run = is_signed(type) ? load_into<int16_t>(d, bytes) : load_into<uint16_t>(d, bytes);
            break;
        case 4:
            in.run = is_signed(type) ? load_into<int32_t>(d, bytes) : load_into<uint32_t>(d, bytes);
            break;
        case 8: in.run = load_into<uint64_t>(d, bytes); break;
        default: d.refuse("not for this type");
    }
}

void decode_store(Decoder& d, const Statement& s, Inst& in) {
    const Type type = type_of(d, s);
    const Operand& data = s.operands.at(1);
    Inst plan = in;
    plan.count = static_cast<uint8_t>(vector_count(d, s, data));
    decode_address(d, s, s.operands.at(0), plan);
    std::vector<uint32_t> rows;
    for (const Operand& part : plan.count > 1 ? data.parts : std::vector{data})
        rows.push_back(d.narrowed(part, type));
    plan.list = d.keep(std::move(rows)).data();
    switch (bytes_of(type)) {
        case 1: plan.run = &store<uint8_t>; break;
        case 2: plan.run = &store<uint16_t>; break;
        case 4: plan.run = &store<uint32_t>; break;
        case 8: plan.run = &store<uint64_t>; break;
        default: d.refuse("not for this type");
    }
    in = plan;
}

// ---- cp.async: done at once, which any program that waits for it must bear
void copy_async(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    Places to, from;
    locate(w, in, m, in.count, in.count, to);
    note_shared(w, in, m, in.count, SharedLog::Kind::write, to);
    Inst source = in;
    source.a = in.b;
    source.imm = in.list[0];
    source.e = 8;
    source.mode = static_cast<uint8_t>(in.flags ? Space::generic : Space::global);
    source.extent = in.extent + 1;
    // With a third operand: so many bytes are read, the rest is zero.
    const uint32_t* sizes = in.c ? row<uint32_t>(w, in.c) : nullptr;
    uint32_t reads = m;
    if (sizes) reads &= vote([&](int i) { return sizes[i] > 0; });
    if (reads) locate(w, source, reads, sizes ? 1 : in.count, in.count, from);
    each_lane(m, [&](int i) {
        const uint32_t bytes = sizes ? std::min<uint32_t>(sizes[i], in.count) : in.count;
        if (bytes < in.count) std::memset(to.at[i], 0, in.count);
        if (bytes) std::memcpy(to.at[i], from.at[i], bytes);
    });
}
void nothing(Warp&, const Inst&) {}

void decode_copy(Decoder& d, const Statement& s, Inst& in) {
    if (!s.has("async") || s.has("bulk") || s.has("mbarrier") || s.has("reduce"))
        d.refuse("bulk copies and memory barrier objects are not executed");
    if (s.has("commit_group") || s.has("wait_group") || s.has("wait_all")) {
        in.run = &nothing;
        return;
    }
    const uint32_t extent = d.new_extent();
    d.new_extent();
    Inst from;
    decode_address(d, s, s.operands.at(1), from);
    decode_address(d, s, s.operands.at(0), in);
    in.mode = static_cast<uint8_t>(Space::shared);
    in.extent = extent;
    in.b = from.a;
    if (from.e != 8) d.refuse("a source of 32 bits");
    in.list = d.keep({static_cast<uint32_t>(from.imm)}).data();
    in.count = static_cast<uint8_t>(s.operands.at(2).bits);
    if (in.count != 4 && in.count != 8 && in.count != 16) d.refuse("4, 8 or 16 bytes");
    if (s.operands.size() > 3 && s.operands[3].kind != Operand::Kind::none &&
        !d.is_predicate(s.operands[3]))
        in.c = d.source(s.operands[3], Type::u32);
    in.run = &copy_async;
}

}  // namespace

void decode_address(Decoder& d, const Statement& s, const Operand& operand, Inst& in) {
    Space space = space_of(s);
    in.imm = operand.bits;
    in.extent = d.new_extent();
    uint64_t value = 0;
    if (Space of_symbol; !operand.name.empty() && d.symbol(operand.name, of_symbol, value)) {
        if (space == Space::param) space = of_symbol;  // parameters of calls lie in local memory
        if (of_symbol == Space::global && space != Space::constant && space != Space::generic)
            space = Space::global;
        in.a = d.constant(value, 8);
        in.e = 8;
    } else if (operand.name.empty()) {
        in.a = d.constant(0, 8);
        in.e = 8;
    } else {
        in.e = d.element_bytes(operand);
        if (in.e != 4 && in.e != 8) d.refuse("an address in " + operand.name);
        Operand plain = operand;
        plain.kind = Operand::Kind::name;
        plain.bits = 0;
        in.a = d.source(plain, in.e);
    }
    in.mode = static_cast<uint8_t>(space);
}

void add_memory_operations(Operations& ops) {
    ops["ld"] = &decode_load;
    ops["ldu"] = &decode_load;
    ops["st"] = &decode_store;
    ops["cp"] = &decode_copy;
    const Decode hint = [](Decoder&, const Statement&, Inst& in) { in.run = &nothing; };
    for (const char* name : {"prefetch", "prefetchu", "applypriority", "discard"}) ops[name] = hint;
    ops["fence"] = ops["membar"] = [](Decoder&, const Statement&, Inst& in) {
        in.run = [](Warp&, const Inst&) { __atomic_thread_fence(__ATOMIC_SEQ_CST); };
    };
}

}  // namespace megjit::card::ptx
