// What lanes tell each other, atomics, and the forms of loads and stores.
#include <bit>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

class Warps : public CardTest {
protected:
    // Runs one warp: %l is the lane, %d the result, whose 32 values come back.
    std::vector<uint32_t> of_lanes(const std::string& statements, unsigned threads = 32) {
        const Handle k = load(kernel(".param .u64 out", R"(
    .reg .b64 %out, %at, %g<4>; .reg .b32 %l, %d, %r<10>; .reg .f32 %f<4>; .reg .pred %p<6>;
    .shared .align 16 .b8 s[1024]; .local .align 16 .b8 own[64];
    ld.param.u64 %out, [out]; mov.u32 %l, %tid.x; mad.wide.u32 %at, %l, 4, %out; mov.u32 %d, 0;
)" + statements + "\nst.global.u32 [%at], %d; ret;"),
                              "k");
        const Address out = allocate(threads * 4);
        launch(k, {1}, {threads}, out);
        return download<uint32_t>(out, threads);
    }
    template <class F>
    static std::vector<uint32_t> each(F f) {
        std::vector<uint32_t> v(32);
        for (uint32_t lane = 0; lane < 32; ++lane) v[lane] = f(lane);
        return v;
    }
};

TEST_F(Warps, ShufflesInEachMode) {
    // Segments of 8 lanes; what lies outside gives the lane's own value and a false predicate.
    const auto shuffled = [&](const std::string& mode, int by, int c) {
        return of_lanes("shfl.sync." + mode + ".b32 %r0|%p0, %l, " + std::to_string(by) + ", " +
                        std::to_string(c) +
                        ", -1; selp.u32 %r1, 100, 0, %p0; add.u32 %d, %r0, %r1;");
    };
    EXPECT_EQ(shuffled("up", 3, 0x1800),
              each([](uint32_t i) { return i % 8 >= 3 ? i - 3 + 100 : i; }));
    EXPECT_EQ(shuffled("down", 3, 0x181f),
              each([](uint32_t i) { return i % 8 < 5 ? i + 3 + 100 : i; }));
    EXPECT_EQ(shuffled("bfly", 5, 0x1f), each([](uint32_t i) { return (i ^ 5) + 100; }));
    EXPECT_EQ(shuffled("idx", 6, 0x181f), each([](uint32_t i) { return i / 8 * 8 + 6 + 100; }));
}
TEST_F(Warps, VotesAndMatches) {
    EXPECT_EQ(of_lanes("setp.lt.u32 %p0, %l, 5; vote.sync.ballot.b32 %d, %p0, -1;"),
              each([](uint32_t) { return 31u; }));
    EXPECT_EQ(
        of_lanes(
            "setp.lt.u32 %p0, %l, 5; vote.sync.any.pred %p1, %p0, -1; vote.sync.all.pred %p2, !%p0, -1; selp.u32 %d, 1, 0, %p1; @%p2 add.u32 %d, %d, 2;"),
        each([](uint32_t) { return 1u; }));
    EXPECT_EQ(of_lanes("and.b32 %r0, %l, 3; match.any.sync.b32 %d, %r0, -1;"),
              each([](uint32_t i) { return 0x11111111u << i % 4; }));
    EXPECT_EQ(of_lanes("mov.u32 %r0, 9; match.all.sync.b32 %d|%p0, %r0, -1; @!%p0 mov.u32 %d, 7;"),
              each([](uint32_t) { return ~0u; }));
    EXPECT_EQ(of_lanes("redux.sync.max.u32 %d, %l, -1;"), each([](uint32_t) { return 31u; }));
}
TEST_F(Warps, HalvesOfAWarpWorkWithMasksOfTheirOwn) {
    EXPECT_EQ(
        of_lanes(
            "setp.lt.u32 %p0, %l, 16; selp.b32 %r0, 0xffff, 0xffff0000, %p0; redux.sync.add.s32 %d, %l, %r0;"),
        each([](uint32_t i) { return i < 16 ? 120u : 376u; }));
}
// A warp's product of matrices of small numbers, which are exact in both types: lane by lane as the
// PTX ISA draws the fragments.
TEST_F(Warps, MultiplyMatricesOfHalves) {
    const auto a = [](int m, int k) { return (m * 5 + k * 3) % 13 - 6; };
    const auto b = [](int k, int n) { return (k * 7 + n * 2) % 11 - 5; };
    const auto c = [](int m, int n) { return 100 * m + n; };
    const auto product = [&](int m, int n, int depth) {
        int sum = c(m, n);
        for (int k = 0; k < depth; ++k) sum += a(m, k) * b(k, n);
        return static_cast<float>(sum);
    };
    for (const std::string type : {"f16", "bf16"})
        for (const int depth : {8, 16}) {
            const auto bits = [&](int x) -> uint32_t {
                const auto f = std::bit_cast<uint32_t>(static_cast<float>(x));
                if (type == "bf16") return f >> 16;
                return x ? (f >> 16 & 0x8000) | ((f >> 23 & 255) - 112) << 10 | (f >> 13 & 1023)
                         : 0;
            };
            const auto pair = [&](int low, int high) { return bits(high) << 16 | bits(low); };
            std::vector<uint32_t> in;  // of each lane: a, b, c
            for (int lane = 0; lane < 32; ++lane) {
                const int g = lane / 4, t = lane % 4 * 2;
                for (int k = t; k < depth; k += 8)
                    for (const int m : {g, g + 8}) in.push_back(pair(a(m, k), a(m, k + 1)));
                for (int k = t; k < depth; k += 8) in.push_back(pair(b(k, g), b(k + 1, g)));
                for (const int m : {g, g + 8})
                    for (const int n : {t, t + 1})
                        in.push_back(std::bit_cast<uint32_t>(static_cast<float>(c(m, n))));
            }
            const int words = depth / 8 * 3 + 4;
            std::string loads, names[3];
            for (int i = 0, k = 0; i < words; ++i, ++k) {
                loads += "ld.global.b32 %r" + std::to_string(i) + ", [%i+" + std::to_string(4 * i) +
                         "];";
                names[i < depth / 4       ? 0
                      : i < depth / 8 * 3 ? 1
                                          : 2] +=
                    (names[0].empty() ? "" : ",") + std::string("%r") + std::to_string(i);
            }
            for (std::string& list : names) list = "{" + list.substr(list[0] == ',') + "}";
            const Handle k = load(
                kernel(".param .u64 out, .param .u64 in",
                       "    .reg .b64 %o, %i; .reg .b32 %l, %r<12>, %d<4>;\n"
                       "    ld.param.u64 %o, [out]; ld.param.u64 %i, [in]; mov.u32 %l, %tid.x;\n"
                       "    mad.wide.u32 %o, %l, 16, %o; mad.wide.u32 %i, %l, " +
                           std::to_string(4 * words) + ", %i; " + loads +
                           "\n    mma.sync.aligned.m16n8k" + std::to_string(depth) +
                           ".row.col.f32." + type + "." + type + ".f32 {%d0,%d1,%d2,%d3}, " +
                           names[0] + ", " + names[1] + ", " + names[2] +
                           ";\n"
                           "    st.global.v4.b32 [%o], {%d0,%d1,%d2,%d3}; ret;"),
                "k");
            const Address from = upload(in), out = allocate(32 * 16);
            launch(k, {1}, {32}, out, from);
            const auto got = download<float>(out, 32 * 4);
            for (int lane = 0; lane < 32; ++lane)
                for (int i = 0; i < 4; ++i)
                    EXPECT_EQ(got[lane * 4 + i],
                              product(lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2, depth))
                        << type << " " << depth << ", lane " << lane << ", " << i;
        }
}
TEST_F(Warps, MultiplyWithAllTheirLanes) {
    const std::string half = kernel("", R"(
    .reg .b32 %a<4>, %b<2>; .reg .f32 %d<4>;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0,%d1,%d2,%d3}, {%a0,%a1,%a2,%a3}, {%b0,%b1}, {%d0,%d1,%d2,%d3}; ret;)");
    EXPECT_EQ(result_of(load(half, "k"), {1}, {20}), kIllegalInstruction);
    EXPECT_NE(last_fault().find("all lanes"), std::string::npos) << last_fault();
}
TEST_F(Warps, LanesMeetAtAShuffleByDifferentWays) {
    EXPECT_EQ(of_lanes(R"(
    and.b32 %r0, %l, 1; setp.eq.u32 %p0, %r0, 0; @%p0 bra FAR; add.u32 %r1, %l, 1000;
MEET: shfl.sync.bfly.b32 %d, %r1, 1, 31, -1; bra END;
FAR: add.u32 %r1, %l, 2000; bra MEET;
END:)"),
              each([](uint32_t i) { return i % 2 ? 2000 + i - 1 : 1000 + i + 1; }));
}
TEST_F(Warps, BarriersOfSomeWarpsAndOfVotes) {
    const auto got = of_lanes(R"(
    setp.ge.u32 %p0, %l, 64; @%p0 bra WAIT;
    mov.u32 %r0, s; mad.lo.u32 %r1, %l, 4, %r0; st.shared.u32 [%r1], %l; bar.sync 1, 64;
    xor.b32 %r2, %l, 63; mad.lo.u32 %r1, %r2, 4, %r0; ld.shared.u32 %d, [%r1];
WAIT: setp.lt.u32 %p1, %l, 70; barrier.red.popc.u32 %r3, 2, %p1; mad.lo.u32 %d, %r3, 1000, %d;)",
                              96);
    for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(got[i], (i < 64 ? 63 - i : 0) + 70000) << i;
}
TEST_F(Warps, AtomicsOfGlobalAndSharedMemory) {
    const Handle k = load(kernel(".param .u64 out", R"(
    .reg .b64 %o; .reg .b32 %l, %r<4>; .reg .f32 %f; .reg .f64 %e; .reg .b16 %h; .reg .pred %p; .shared .align 8 .b8 s[8];
    ld.param.u64 %o, [out]; mov.u32 %l, %tid.x; cvt.rn.f32.u32 %f, %l; cvt.f64.f32 %e, %f;
    atom.global.add.u32 %r0, [%o], 2; red.global.add.f32 [%o+4], %f; red.global.add.f64 [%o+8], %e;
    red.global.max.s32 [%o+16], %l; red.global.min.u32 [%o+20], %l; red.global.or.b32 [%o+24], %l;
    atom.global.inc.u32 %r1, [%o+28], 9; atom.global.exch.b32 %r1, [%o+32], %l; atom.cas.b32 %r1, [%o+36], 0, 77;
    mov.b32 %r2, 0x3c003c00; red.global.add.noftz.f16x2 [%o+40], %r2;
    setp.eq.u32 %p, %l, 0; mov.u32 %r3, 5; @%p st.shared.u32 [s], %r3; bar.sync 0;
    red.shared.add.u32 [s], 1; bar.sync 0; ld.shared.u32 %r3, [s]; st.global.u32 [%o+44], %r3; ret;)"),
                          "k");
    const Address out = upload(std::vector<uint32_t>{0, 0, 0, 0, 0, 1000, 0, 0, 500, 0, 0, 0});
    launch(k, {1}, {64}, out);
    const auto got = download<uint32_t>(out, 12);
    EXPECT_EQ(got[0], 128u);
    EXPECT_EQ(std::bit_cast<float>(got[1]), 2016.0f);
    EXPECT_EQ(std::bit_cast<double>(uint64_t{got[3]} << 32 | got[2]), 2016.0);
    EXPECT_EQ(std::vector<uint32_t>(got.begin() + 4, got.begin() + 8),
              (std::vector<uint32_t>{63, 0, 63, 4}));
    EXPECT_LT(got[8], 64u);
    EXPECT_EQ(got[9], 77u);
    EXPECT_EQ(got[10], 0x54005400u);  // 64.0 twice
    EXPECT_EQ(got[11], 69u);
}
TEST_F(Warps, VectorsNarrowTypesAndSpaces) {
    EXPECT_EQ(of_lanes(R"(
    mov.u32 %r0, s; mad.lo.u32 %r0, %l, 16, %r0; add.u32 %r1, %l, 1; add.u32 %r2, %l, 2; add.u32 %r3, %l, 3;
    st.shared.v4.b32 [%r0], {%l, %r1, %r2, %r3}; ld.shared.v2.u32 {%r4, %r5}, [%r0+8]; ld.shared.s8 %r6, [%r0+4];
    mul.lo.u32 %r4, %r4, 100; mad.lo.u32 %r5, %r5, 10000, %r4; add.u32 %d, %r5, %r6;)"),
              each([](uint32_t i) { return (i + 3) * 10000 + (i + 2) * 100 + i + 1; }));
    // Each thread has local memory of its own; generic addresses reach all spaces.
    EXPECT_EQ(of_lanes(R"(
    mov.u64 %g0, own; cvta.local.u64 %g0, %g0; st.u32 [%g0+4], %l; ld.local.u32 %d, [own+4];
    isspacep.local %p0, %g0; isspacep.shared %p1, %g0; @%p0 add.u32 %d, %d, 100; @%p1 add.u32 %d, %d, 1000;
    mov.u64 %g1, s; cvta.shared.u64 %g1, %g1; mad.wide.u32 %g1, %l, 4, %g1; st.u32 [%g1], %d; ld.u32 %d, [%g1];)"),
              each([](uint32_t i) { return i + 100; }));
}
TEST_F(Warps, AsynchronousCopies) {
    EXPECT_EQ(of_lanes(R"(
    add.u32 %r0, %l, 5; st.global.u32 [%at], %r0; mov.u32 %r1, s; mad.lo.u32 %r1, %l, 4, %r1;
    cp.async.ca.shared.global [%r1], [%at], 4; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %d, [%r1];)"),
              each([](uint32_t i) { return i + 5; }));
}
TEST_F(Warps, BranchesByTable) {
    EXPECT_EQ(of_lanes(R"(
    rem.u32 %r0, %l, 3;
targets: .branchtargets A, B, C;
    brx.idx %r0, targets;
A: mov.u32 %d, 10; bra END;
B: mov.u32 %d, 20; bra END;
C: mov.u32 %d, 30;
END: add.u32 %d, %d, %l;)"),
              each([](uint32_t i) { return 10 * (i % 3 + 1) + i; }));
}

}}  // namespace megjit::card_tests
