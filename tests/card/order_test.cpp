// What a card may do in any order: shared memory between barriers, blocks.
#include <set>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

class Order : public CardTest {
protected:
    // Threads have 4 bytes each at %s and, of another warp, at %o; `body` works on them.
    int run(const std::string& body, unsigned threads = 64) {
        const Handle k = load(kernel("",
                                     ".shared .align 4 .b8 memory[256];\n"
                                     "    .reg .b32 %t, %s, %o, %v, %w; .reg .pred %p;\n"
                                     "    mov.u32 %t, %tid.x; mov.u32 %s, memory;\n"
                                     "    mov.u32 %v, 63; sub.u32 %o, %v, %t;\n"
                                     "    mad.lo.u32 %o, %o, 4, %s;\n"
                                     "    mad.lo.u32 %s, %t, 4, %s;\n" +
                                         body + "\n    ret;"),
                              "k");
        return result_of(k, {1}, {threads});
    }
    // Whichever warp comes second is told.
    void expect_missing(const std::string& body, const std::string& did = "since the last one") {
        EXPECT_EQ(run(body), kLaunchFailed) << body;
        EXPECT_NE(last_fault().find("kernel k, ptx line"), std::string::npos) << last_fault();
        EXPECT_NE(last_fault().find("a barrier is missing: warp "), std::string::npos)
            << last_fault();
        EXPECT_NE(last_fault().find(did), std::string::npos) << last_fault();
    }
    static constexpr int kLaunchFailed = 719;
};

TEST_F(Order, AReadBesideTheWriteOfAnotherWarpIsAFault) {
    expect_missing("st.shared.b32 [%s], %t; ld.shared.b32 %w, [%o];");
}
TEST_F(Order, AWriteBesideTheReadOfAnotherWarpIsAFault) {
    expect_missing("ld.shared.b32 %w, [%o]; st.shared.b32 [%s], %t;");
}
TEST_F(Order, AWriteBesideAReadOfAllIsAFault) {
    expect_missing("mov.u32 %o, memory; ld.shared.b32 %w, [%o]; st.shared.b32 [%o], %t;",
                   "byte 0 of shared memory");
}
TEST_F(Order, TwoWritesAreAFault) {
    expect_missing("mov.u32 %o, memory; st.shared.b32 [%o], %t;", "has written since");
}
TEST_F(Order, AnAtomicBesideAPlainReadIsAFault) {
    expect_missing("mov.u32 %o, memory; ld.shared.b32 %w, [%o]; red.shared.add.u32 [%o], 1;");
}
TEST_F(Order, GenericAddressesAreSeen) {
    expect_missing(R"(.reg .b64 %a, %b;
    cvt.u64.u32 %a, %s; cvta.shared.u64 %a, %a; cvt.u64.u32 %b, %o; cvta.shared.u64 %b, %b;
    st.b32 [%a], %t; ld.b32 %w, [%b];)");
}
TEST_F(Order, ASecondRoundNeedsABarrierToo) {
    expect_missing(R"(st.shared.b32 [%s], %t; bar.sync 0; ld.shared.b32 %w, [%o];
    st.shared.b32 [%s], %w;)");
}

TEST_F(Order, BarriersOrderAtomicsDoAndWarpsHaveTheirOwn) {
    EXPECT_EQ(run("st.shared.b32 [%s], %t; bar.sync 0; ld.shared.b32 %w, [%o]; bar.sync 0;\n"
                  "    st.shared.b32 [%s], %w;"),
              0)
        << last_fault();
    EXPECT_EQ(run("mov.u32 %o, memory; red.shared.add.u32 [%o], 1;"), 0) << last_fault();
    EXPECT_EQ(run("mov.u32 %o, memory; ld.shared.b32 %w, [%o];"), 0) << last_fault();
    EXPECT_EQ(run("st.shared.b32 [%s], %t; ld.shared.b32 %w, [%s];"), 0) << last_fault();
    EXPECT_EQ(run("st.shared.b8 [%s], %t; ld.shared.b32 %w, [%s];"), 0) << last_fault();
    EXPECT_EQ(run("mov.u32 %o, memory; st.shared.b32 [%o], %t;", 32), 0) << last_fault();
}

TEST_F(Order, BlocksRunInAnotherOrderEachTime) {
    const Handle k = load(kernel(".param .u64 p", R"(
    .reg .b64 %p, %a; .reg .b32 %c, %n;
    ld.param.u64 %p, [p]; mov.u32 %c, %ctaid.x;
    atom.global.add.u32 %n, [%p], 1;
    mad.wide.u32 %a, %n, 4, %p; st.global.u32 [%a+4], %c;
    ret;)"),
                          "k");
    std::set<std::vector<uint32_t>> orders;
    for (int i = 0; i < 8; ++i) {
        const Address p = upload(std::vector<uint32_t>(17, 0));
        launch(k, {16}, {1}, p);
        std::vector<uint32_t> order = download<uint32_t>(p, 17);
        ASSERT_EQ(order[0], 16u);
        order.erase(order.begin());
        orders.insert(order);
        std::sort(order.begin(), order.end());
        for (uint32_t block = 0; block < 16; ++block) EXPECT_EQ(order[block], block);
    }
    EXPECT_GT(orders.size(), 4u);
}

}}  // namespace megjit::card_tests
