// A launch: blocks one after the other, in any order, their warps in turn.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <numeric>

#include "tests/card/emulator/ptx/code.h"

namespace megjit::card::ptx {
namespace {

constexpr double kLaunchNs = 2000;
constexpr uint64_t kMostInstructions = uint64_t{1} << 40;  // of threads in a launch: then it hangs

std::atomic<uint64_t> all_instructions = 0;

using What = Code::What;

// Gives what does not change from one block to the next; fill_block_special writes the others.
uint32_t special(const Launch& launch, const Warp& w, What what, uint32_t lane) {
    const Dim3 n = launch.shape.block;
    const uint32_t thread = w.index * kLanes + lane;
    const Block& block = *w.block;
    switch (what) {
        case What::tid_x: return thread % n.x;
        case What::tid_y: return thread / n.x % n.y;
        case What::tid_z: return thread / n.x / n.y;
        case What::ntid_x: return n.x;
        case What::ntid_y: return n.y;
        case What::ntid_z: return n.z;
        case What::ctaid_x: return block.index.x;
        case What::ctaid_y: return block.index.y;
        case What::ctaid_z: return block.index.z;
        case What::nctaid_x: return launch.shape.grid.x;
        case What::nctaid_y: return launch.shape.grid.y;
        case What::nctaid_z: return launch.shape.grid.z;
        case What::laneid: return lane;
        case What::warpid: return w.index;
        case What::nwarpid: return static_cast<uint32_t>(block.warps.size());
        case What::smid:
            return (block.index.x +
                    launch.shape.grid.x * (block.index.y + launch.shape.grid.y * block.index.z)) %
                   static_cast<uint32_t>(launch.card.description().multiprocessors);
        case What::nsmid: return static_cast<uint32_t>(launch.card.description().multiprocessors);
        case What::lanemask_eq: return 1u << lane;
        case What::lanemask_le: return kAll >> (31 - lane);
        case What::lanemask_lt: return (1u << lane) - 1;
        case What::lanemask_ge: return kAll << lane;
        case What::lanemask_gt: return ~(kAll >> (31 - lane));
        case What::dynamic_smem_size: return launch.shape.dynamic_shared_bytes;
        case What::total_smem_size: return block.shared_bytes;
        case What::one: return 1;
        case What::gridid:
        case What::zero: return 0;
    }
    return 0;
}
bool changes_by_block(What what) {
    return what == What::ctaid_x || what == What::ctaid_y || what == What::ctaid_z ||
           what == What::smid;
}

template <class T>
void fill(std::byte* at, uint64_t bits) {
    std::fill_n(reinterpret_cast<T*>(at), kLanes, static_cast<T>(bits));
}

// The memory of one block's threads, used by all blocks in turn.
class Team {
public:
    Team(Launch& launch, uint32_t threads)
        : launch_(launch),
          block_(launch, launch.code.static_shared_bytes + launch.shape.dynamic_shared_bytes) {
        const Code& code = launch.code;
        const uint32_t count = (threads + kLanes - 1) / kLanes;
        file_bytes_ = (code.file_bytes + 63) / 64 * 64;
        const size_t local = size_t{code.local_bytes} * kLanes;
        memory_.reset(new std::byte[64 + count * (file_bytes_ + local) + block_.shared_bytes]);
        std::byte* at = memory_.get();
        at += -reinterpret_cast<uintptr_t>(at) & 63;
        block_.warps.resize(count);
        for (uint32_t i = 0; i < count; ++i) {
            Warp& w = block_.warps[i];
            w.index = i;
            w.block = &block_;
            w.registers = at + i * file_bytes_;
            w.local = at + count * file_bytes_ + i * local;
            const uint32_t here = std::min<uint32_t>(threads - i * kLanes, kLanes);
            missing_ = here == kLanes ? 0 : kAll << here;  // of the last
            prepare(w);
        }
        block_.shared = at + count * (file_bytes_ + local);
        block_.live = threads;
        threads_ = threads;
    }

    void run(Dim3 index) {
        block_.index = index;
        block_.live = threads_;
        block_.barriers = {};
        block_.log.barrier();
        std::memset(block_.shared, 0xff, block_.shared_bytes);
        const size_t count = block_.warps.size();
        for (size_t i = 0; i < count; ++i) start(block_.warps[i], i + 1 == count ? missing_ : 0);
        random_ = random_ * 1664525 + 1013904223;
        const size_t first = random_ >> 8;
        while (block_.live) {
            const uint64_t before = launch_.instructions;
            for (size_t k = 0; k < count; ++k) {
                current_ = &block_.warps[(first + k) % count];
                if (!current_->finished()) ptx::run(*current_);
            }
            if (launch_.instructions == before && block_.live) deadlock();
            if (launch_.instructions > kMostInstructions)
                stop(*current_, kAll, Result::launch_timeout, "the kernel does not end");
        }
    }

    // Who was running, for messages.
    const Warp& current() const { return *current_; }
    const Block& block() const { return block_; }

private:
    void prepare(Warp& w) {
        for (const Code::Constant& c : launch_.code.constants) {
            std::byte* at = w.registers + c.offset;
            switch (c.element_bytes) {
                case 1: fill<uint8_t>(at, c.bits); break;
                case 2: fill<uint16_t>(at, c.bits); break;
                case 4: fill<uint32_t>(at, c.bits); break;
                default: fill<uint64_t>(at, c.bits); break;
            }
        }
        for (const Code::Special& s : launch_.code.specials) fill_special(w, s);
    }
    void fill_special(Warp& w, const Code::Special& s) {
        uint32_t* at = row<uint32_t>(w, s.offset);
        for (uint32_t lane = 0; lane < kLanes; ++lane) at[lane] = special(launch_, w, s.what, lane);
    }
    void start(Warp& w, uint32_t missing) {
        for (const Code::Special& s : launch_.code.specials)
            if (changes_by_block(s.what))
                fill<uint32_t>(w.registers + s.offset, special(launch_, w, s.what, 0));
        w.dead = missing;
        w.active = 0;
        w.groups.clear();
        w.groups.push_back({launch_.code.insts.data() + launch_.code.entry, ~missing});
        for (auto& calls : w.calls) calls.clear();
    }
    [[noreturn]] void deadlock() {
        for (Warp& w : block_.warps)
            for (const Group& group : w.groups) {
                current_ = &w;
                w.next = group.ip + 1;
                stop(w, group.mask, Result::launch_timeout,
                     group.wait == Group::Wait::barrier
                         ? text("threads wait at barrier %u for others that never come",
                                group.barrier)
                         : text("lanes wait for others of the mask 0x%08x that never come here",
                                group.needs));
            }
        throw Fault(Result::launch_timeout, "a block stands still");
    }

    Launch& launch_;
    Block block_;
    std::unique_ptr<std::byte[]> memory_;
    size_t file_bytes_ = 0;
    uint32_t missing_ = 0, threads_ = 0, random_ = 1;
    Warp* current_ = nullptr;
};

// In an order of its own in each launch: a card promises none.
template <class Visit>
void each_block(Dim3 grid, const Visit& visit) {
    static std::atomic<uint64_t> launches = 0;
    const uint64_t count = grid.count(), launch = ++launches;
    uint64_t step = launch * 0x9e3779b97f4a7c15 % count + 1;
    while (std::gcd(step, count) != 1) ++step;
    uint64_t at = launch % count;
    for (uint64_t i = 0; i < count; ++i, at = (at + step) % count)
        visit({static_cast<uint32_t>(at % grid.x), static_cast<uint32_t>(at / grid.x % grid.y),
               static_cast<uint32_t>(at / grid.x / grid.y)});
}

std::string where(const Launch& launch, const Team& team) {
    const Warp& w = team.current();
    const Inst& in = w.next[-1];
    const Statement& s = launch.code.statements[in.statement];
    const uint32_t thread = w.index * kLanes + static_cast<uint32_t>(first_lane(w.faulty)) % kLanes;
    const Dim3 n = launch.shape.block, at = team.block().index;
    return text("kernel %s, ptx line %d: ", launch.kernel.name.c_str(), s.line) + s.text +
           text("\n  thread (%u, %u, %u) of block (%u, %u, %u)\n  ", thread % n.x,
                thread / n.x % n.y, thread / n.x / n.y, at.x, at.y, at.z);
}

}  // namespace

void stop(Warp& w, uint32_t lanes, Result result, const std::string& why) {
    w.faulty = lanes;
    throw Fault(result, why);
}

uint64_t take_thread_instructions() { return all_instructions.exchange(0); }

double execute(Card& card, const Kernel& kernel, const Shape& shape) {
    Launch launch{.card = card,
                  .kernel = kernel,
                  .code = *kernel.code,
                  .shape = shape,
                  .extents = {},
                  .printed = {}};
    launch.extents.resize(launch.code.extents);
    Team team(launch, static_cast<uint32_t>(shape.block.count()));
    const auto print = [&] {
        if (launch.printed.empty()) return;
        std::fwrite(launch.printed.data(), 1, launch.printed.size(), stdout);
        std::fflush(stdout);
    };
    try {
        each_block(shape.grid, [&](Dim3 index) { team.run(index); });
    } catch (const Fault& fault) {
        print();
        throw Fault(fault.result, where(launch, team) + fault.text);
    }
    print();
    all_instructions += launch.instructions;
    const Description& d = card.description();
    return kLaunchNs +
           std::max(static_cast<double>(launch.bytes) / d.bytes_per_ns(),
                    static_cast<double>(launch.instructions) / d.thread_instructions_per_ns());
}

}  // namespace megjit::card::ptx
