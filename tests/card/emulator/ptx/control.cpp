// The ways of lanes: branches, calls, barriers, and which lanes run next. Lanes at the lowest
// instruction go first, which brings them together again where ways meet.
#include <algorithm>

#include "tests/card/emulator/ptx/decode.h"

namespace megjit::card::ptx {

void warp_barrier(Decoder&, const Statement&, Inst&);  // ptx/warp.cpp

namespace {

constexpr uint32_t kPatience = 20000;  // backward branches until others get a turn

const Inst* inst_at(const Warp& w, uint32_t index) {
    return w.block->launch.code.insts.data() + index;
}
const Inst* nowhere() { return reinterpret_cast<const Inst*>(~uintptr_t{0}); }

void go(Warp& w, const Inst* target) {
    if (target <= w.next && ++w.backward > kPatience) {
        w.yields = true;
        w.limit = nullptr;
    }
    w.next = target;
}

void branch(Warp& w, const Inst& in) {
    const uint32_t taken = mask_of(w, in);
    const Inst* target = inst_at(w, in.target);
    if (taken == w.active) return go(w, target);
    if (!taken) return;
    w.active &= ~taken;
    if (target > w.next) {
        w.groups.push_back({target, taken});
        w.limit = std::min(w.limit, target);
    } else {
        w.groups.push_back({w.next, w.active});
        w.limit = std::min(w.limit, w.next);
        w.active = taken;
        go(w, target);
    }
}

// Each lane to its own place.
template <class F>
void scatter(Warp& w, uint32_t m, F place_of) {
    while (m) {
        const Inst* place = place_of(first_lane(m));
        uint32_t same = 0;
        each_lane(m, [&](int i) { same |= static_cast<uint32_t>(place_of(i) == place) << i; });
        w.groups.push_back({place, same});
        w.active &= ~same;
        m &= ~same;
    }
    w.limit = nullptr;
}

void branch_indexed(Warp& w, const Inst& in) {
    const uint32_t* index = row<uint32_t>(w, in.a);
    const uint32_t m = mask_of(w, in);
    each_lane(m, [&](int i) {
        if (index[i] >= in.imm)
            stop(w, 1u << i, Result::illegal_instruction, "brx.idx beyond its targets");
    });
    scatter(w, m, [&](int i) { return inst_at(w, in.list[index[i]]); });
}

void leave(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    w.active &= ~m;
    w.dead |= m;
    if (!w.active) w.limit = nullptr;
    lanes_left(w, m);
}

// ---- calls
void copy_local(Warp& w, const Inst& in) {  // arguments and results, which lie in local memory
    const uint32_t bytes = w.block->launch.code.local_bytes;
    each_lane(mask_of(w, in), [&](int i) {
        std::byte* base = w.local + static_cast<size_t>(i) * bytes;
        std::memcpy(base + in.d, base + in.a, in.imm);
    });
}
void call(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    const auto back = static_cast<uint32_t>(w.next - inst_at(w, 0));
    each_lane(m, [&](int i) { w.calls[i].push_back(back); });
    if (m != w.active) {
        w.groups.push_back({w.next, w.active & ~m});
        w.limit = std::min(w.limit, w.next);
        w.active = m;
    }
    w.next = inst_at(w, in.target);
}
void give_back(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    const uint32_t first = w.calls[first_lane(m)].back();
    bool same = m == w.active;
    each_lane(m, [&](int i) { same = same && w.calls[i].back() == first; });
    if (same) w.next = inst_at(w, first);
    else scatter(w, m, [&](int i) { return inst_at(w, w.calls[i].back()); });
    each_lane(m, [&](int i) { w.calls[i].pop_back(); });
}

// ---- barriers of the block
enum : uint8_t { kArrive = 1, kPopc = 2, kAnd = 3, kOr = 4 };

void release(Block& block, uint8_t id) {
    Barrier& barrier = block.barriers[id];
    const uint32_t arrived = barrier.arrived, votes = barrier.votes;
    barrier = {};
    block.log.barrier();
    for (Warp& w : block.warps)
        for (Group& group : w.groups) {
            if (group.wait != Group::Wait::barrier || group.barrier != id) continue;
            const Inst& in = *group.ip;
            if (in.flags == kPopc)
                each_lane(group.mask, [&](int i) { row<uint32_t>(w, in.d)[i] = votes; });
            else if (in.flags >= kAnd)
                set_predicate(w, in.d, (in.flags == kAnd ? votes == arrived : votes > 0) ? kAll : 0,
                              group.mask);
            ++group.ip;
            group.wait = Group::Wait::none;
            w.limit = nullptr;
        }
}
void try_release(Block& block, uint8_t id) {
    const Barrier& barrier = block.barriers[id];
    if (barrier.arrived == 0) return;
    if (barrier.expected ? barrier.padded >= barrier.expected : barrier.arrived >= block.live)
        release(block, id);
}

void barrier(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    Block& block = *w.block;
    const int first = first_lane(m);
    const uint32_t id = row<uint32_t>(w, in.a)[first];
    if (id > 15) stop(w, m, Result::illegal_instruction, text("barrier %u; there are 16", id));
    Barrier& at = block.barriers[id];
    const uint32_t expected = in.b ? row<uint32_t>(w, in.b)[first] : 0;
    if (expected % kLanes)
        stop(w, m, Result::illegal_instruction,
             text("a barrier of %u threads, no multiple of 32", expected));
    if (at.arrived && at.expected != expected)
        stop(w, m, Result::illegal_instruction,
             text("barrier %u is used for %u and for %u threads at once", id, at.expected,
                  expected));
    at.expected = expected;
    at.arrived += static_cast<uint32_t>(std::popcount(m));
    at.padded += (m | w.dead) == kAll ? kLanes : static_cast<uint32_t>(std::popcount(m));
    if (in.flags >= kPopc) {
        const uint32_t votes = in.c ? predicate(w, in.c) ^ (in.mode ? kAll : 0) : 0;
        at.votes += static_cast<uint32_t>(std::popcount(votes & m));
    }
    if (in.flags != kArrive) park(w, {&in, m, Group::Wait::barrier, static_cast<uint8_t>(id)});
    try_release(block, static_cast<uint8_t>(id));
}

void decode_barrier(Decoder& d, const Statement& s, Inst& in) {
    if (s.has("cluster")) d.refuse("clusters are not executed");
    in.run = &barrier;
    in.flags = s.has("arrive")                ? kArrive
               : s.has("popc")                ? kPopc
               : s.has("red") && s.has("and") ? kAnd
               : s.has("red")                 ? kOr
                                              : 0;
    size_t at = 0;
    if (in.flags >= kPopc) {
        const Operand& to = s.operands.at(at++);
        in.d = in.flags == kPopc ? d.dest(to, 4) : d.dest_predicate(to);
    }
    in.a = d.source(s.operands.at(at++), Type::u32);
    if (s.operands.size() > at && !d.is_predicate(s.operands[at]))
        in.b = d.source(s.operands[at++], Type::u32);
    if (in.flags >= kPopc) {
        in.c = d.predicate(s.operands.at(at).name);
        in.mode = s.operands[at].negated;
    }
}

// ---- what the system offers
std::string text_at(Warp& w, int lane, Address address) {
    const Extent extent = reachable(w.block->launch.card, address, 1);
    if (!extent.holds(address, 1))
        stop(w, 1u << lane, Result::illegal_address, "a text that is not there");
    const auto* from =
        reinterpret_cast<const char*>(address + static_cast<Address>(extent.to_host));
    return {from, strnlen(from, extent.end - address)};
}
template <class T>
T local_at(Warp& w, int lane, uint32_t offset) {
    T value;
    std::memcpy(&value,
                w.local + static_cast<size_t>(lane) * w.block->launch.code.local_bytes + offset,
                sizeof value);
    return value;
}
// printf's text of one lane: every argument takes 8 bytes, or 4 aligned ones.
std::string formatted(Warp& w, int lane, const std::string& format, Address arguments) {
    std::string result;
    Launch& launch = w.block->launch;
    uint32_t offset = 0;
    const auto next = [&](uint32_t bytes) {
        offset = (offset + bytes - 1) / bytes * bytes;
        uint64_t value = 0;
        const Address address = arguments + offset;
        if (address - kLocalWindow < launch.code.local_bytes)
            std::memcpy(&value,
                        w.local + static_cast<size_t>(lane) * launch.code.local_bytes +
                            (address - kLocalWindow),
                        bytes);
        offset += bytes;
        return value;
    };
    for (size_t at = 0; at < format.size(); ++at) {
        if (format[at] != '%') {
            result += format[at];
            continue;
        }
        size_t end = format.find_first_of("diouxXeEfFgGaAcsp%", at + 1);
        if (end == std::string::npos) break;
        std::string spec = format.substr(at, end - at + 1);
        at = end;
        const bool is_long =
            spec.find('l') != std::string::npos || spec.find('z') != std::string::npos;
        std::erase_if(spec, [](char c) { return c == 'l' || c == 'h' || c == 'z'; });
        char buffer[512];
        const char kind = spec.back();
        if (kind == '%') {
            result += '%';
            continue;
        }
        if (kind == 's')
            snprintf(buffer, sizeof buffer, spec.c_str(), text_at(w, lane, next(8)).c_str());
        else if (std::strchr("eEfFgGaA", kind))
            snprintf(buffer, sizeof buffer, spec.c_str(), std::bit_cast<double>(next(8)));
        else if (kind == 'p')
            snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(next(8)));
        else if (is_long) {
            spec.insert(spec.size() - 1, "ll");
            snprintf(buffer, sizeof buffer, spec.c_str(), static_cast<unsigned long long>(next(8)));
        } else snprintf(buffer, sizeof buffer, spec.c_str(), static_cast<unsigned>(next(4)));
        result += buffer;
    }
    return result;
}
void print(Warp& w, const Inst& in) {
    each_lane(mask_of(w, in), [&](int i) {
        const std::string line = formatted(w, i, text_at(w, i, local_at<Address>(w, i, in.list[0])),
                                           local_at<Address>(w, i, in.list[1]));
        w.block->launch.printed += line;
        const auto length = static_cast<int32_t>(line.size());
        if (in.count)
            std::memcpy(w.local + static_cast<size_t>(i) * w.block->launch.code.local_bytes + in.d,
                        &length, 4);
    });
}
void fail_assertion(Warp& w, const Inst& in) {
    const uint32_t m = mask_of(w, in);
    if (!m) return;
    const int i = first_lane(m);
    stop(w, 1u << i, Result::assert_failed,
         text_at(w, i, local_at<Address>(w, i, in.list[1])) +
             text(":%u: ", local_at<uint32_t>(w, i, in.list[2])) +
             text_at(w, i, local_at<Address>(w, i, in.list[3])) + ": assertion `" +
             text_at(w, i, local_at<Address>(w, i, in.list[0])) + "` failed");
}

// Arguments are variables of .param, whose places in local memory are known.
void decode_call(Decoder& d, const Statement& s, Inst& in) {
    const Operand& callee = s.operands.at(0);
    const auto known = d.symbols().texts.find(callee.name);
    if (known == d.symbols().texts.end()) d.refuse("calls through registers are not executed");
    const FunctionText& function = *known->second;
    if (!function.has_body) {
        std::vector<uint32_t> places;
        for (const Operand& argument : s.arguments) places.push_back(d.local_offset(argument.name));
        if (function.name == "vprintf") in.run = &print;
        else if (function.name == "__assertfail") in.run = &fail_assertion;
        else d.refuse("a function that nobody defines: " + function.name);
        in.count = static_cast<uint8_t>(s.results.size());
        if (in.count) in.d = d.local_offset(s.results[0].name);
        in.list = d.keep(std::move(places)).data();
        return;
    }
    if (s.arguments.size() != function.parameters.size() ||
        s.results.size() != function.results.size())
        d.refuse("another number of arguments than " + function.name + " has");
    const Inst plan = in;
    const auto copy = [&](uint32_t from, uint32_t to, uint64_t bytes) {
        Inst move = plan;
        move.run = &copy_local;
        move.a = from;
        move.d = to;
        move.imm = bytes;
        d.emit(s) = move;
    };
    for (size_t k = 0; k < s.arguments.size(); ++k)
        copy(d.local_offset(s.arguments[k].name),
             d.local_offset(function, function.parameters[k].name), function.parameters[k].bytes());
    Inst jump = plan;
    jump.run = &call;
    jump.target = d.start_of(function);
    d.emit(s) = jump;
    for (size_t k = 0; k < s.results.size(); ++k)
        copy(d.local_offset(function, function.results[k].name), d.local_offset(s.results[k].name),
             function.results[k].bytes());
    in.run = [](Warp&, const Inst&) {};
}

}  // namespace

void park(Warp& w, const Group& group) {
    w.groups.push_back(group);
    w.active &= ~group.mask;
    if (!w.active) w.limit = nullptr;
}

void lanes_left(Warp& w, uint32_t lanes) {
    Block& block = *w.block;
    block.live -= static_cast<uint32_t>(std::popcount(lanes));
    for (uint8_t id = 0; id < 16; ++id) try_release(block, id);
}

bool reschedule(Warp& w) {
    if (w.active) w.groups.push_back({w.next, w.active});
    w.active = 0;
    // Lanes that wait for others of their warp go on when all have come to the same place.
    const auto complete = [&](const Group& group) {
        uint32_t here = 0;
        for (const Group& other : w.groups)
            if (other.wait == Group::Wait::warp &&
                (other.ip == group.ip || (group.barrier && other.barrier)))
                here |= other.mask;
        return (group.needs & ~here & ~w.dead) == 0;
    };
    uint32_t go_on = 0;  // lanes; all are found before any of them stops waiting
    for (const Group& group : w.groups)
        if (group.wait == Group::Wait::warp && complete(group)) go_on |= group.mask;
    for (Group& group : w.groups)
        if (group.mask & go_on) group.wait = Group::Wait::none;
    const Inst* lowest = nowhere();
    for (const Group& group : w.groups)
        if (group.wait == Group::Wait::none) lowest = std::min(lowest, group.ip);
    if (lowest == nowhere()) return false;
    if (w.yields && w.backward > kPatience)  // a loop may wait for lanes elsewhere: these first
        for (const Group& group : w.groups)
            if (group.wait == Group::Wait::none && group.ip != lowest) {
                lowest = group.ip;
                break;
            }
    w.next = lowest;
    w.limit = nowhere();
    std::erase_if(w.groups, [&](const Group& group) {
        if (group.wait != Group::Wait::none) return false;
        if (group.ip == lowest) {
            w.active |= group.mask;
            return true;
        }
        if (group.ip > lowest) w.limit = std::min(w.limit, group.ip);
        return false;
    });
    return true;
}

void run(Warp& w) {
    w.backward = 0;
    w.yields = false;
    uint64_t instructions = 0;
    uint32_t turns = 0;
    const auto count = [&] { w.block->launch.instructions += std::exchange(instructions, 0); };
    w.limit = nullptr;
    while (reschedule(w)) {
        if (w.yields) {
            w.yields = false;
            w.backward = 0;
            if (++turns > 4) break;  // other warps
        }
        const auto weight = [&] { return static_cast<uint32_t>(std::popcount(w.active)); };
        do {
            const Inst& in = *w.next++;
            instructions += weight();
            in.run(w, in);
        } while (w.next < w.limit);
    }
    if (w.active) {
        w.groups.push_back({w.next, w.active});
        w.active = 0;
    }
    count();
}

void add_control_operations(Operations& ops) {
    ops["bra"] = [](Decoder& d, const Statement& s, Inst& in) {
        in.run = &branch;
        d.target(s.operands.at(0).name, in);
    };
    ops["brx"] = [](Decoder& d, const Statement& s, Inst& in) {
        in.run = &branch_indexed;
        in.a = d.source(s.operands.at(0), Type::u32);
        const auto targets = d.function().branch_targets.find(s.operands.at(1).name);
        if (targets == d.function().branch_targets.end()) d.refuse("no such .branchtargets");
        in.imm = targets->second.size();
        d.targets(targets->second, in);
    };
    ops["call"] = &decode_call;
    ops["ret"] = [](Decoder& d, const Statement&, Inst& in) {
        in.run = d.in_entry() ? &leave : &give_back;
    };
    ops["exit"] = [](Decoder&, const Statement&, Inst& in) { in.run = &leave; };
    ops["trap"] = [](Decoder&, const Statement&, Inst& in) {
        in.run = [](Warp& w, const Inst& in) {
            if (const uint32_t m = mask_of(w, in)) stop(w, m, Result::illegal_instruction, "trap");
        };
    };
    ops["brkpt"] = ops["trap"];
    ops["bar"] = [](Decoder& d, const Statement& s, Inst& in) {
        s.has("warp") ? warp_barrier(d, s, in) : decode_barrier(d, s, in);
    };
    ops["barrier"] = &decode_barrier;
    for (const char* name : {"nanosleep", "pmevent", "setmaxnreg", "griddepcontrol"})
        ops[name] = [](Decoder&, const Statement&, Inst& in) {
            in.run = [](Warp&, const Inst&) {};
        };
}

}  // namespace megjit::card::ptx
