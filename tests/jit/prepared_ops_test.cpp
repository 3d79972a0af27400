// PreparedOps: an op is made ready once, and stays so while it is in use.
#include <thread>

#include "runtime/eager/dispatch.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/ops/builders.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using runtime::PreparedOps;
namespace build = runtime::build;

using PreparedOpsTest = World;

TensorRef zeros_of(int64_t n) {
    const std::vector<float> values(static_cast<size_t>(n));
    return runtime::tensor_from_host(runtime::host_device(), {.shape = {n}}, values.data());
}

uint64_t made_by(const auto& work) {
    const uint64_t before = PreparedOps::instance().made();
    work();
    return PreparedOps::instance().made() - before;
}

TEST_F(PreparedOpsTest, ThreeHundredHotCallsAreMadeReadyOnce) {
    std::vector<TensorRef> inputs;
    for (int64_t n = 7001; n <= 7300; ++n) inputs.push_back(zeros_of(n));
    const auto round = [&] {
        for (const TensorRef& x : inputs) build::add(x, x);
    };
    EXPECT_EQ(made_by(round), 300u);
    EXPECT_EQ(made_by(round), 0u);
    EXPECT_EQ(made_by([&] { std::thread(round).join(); }), 0u);  // nor in another thread
}

TEST_F(PreparedOpsTest, WhatWasUsedLastStays) {
    const TensorRef x = zeros_of(77777);
    build::mul(x, x);
    const auto elsewhere = [&] { std::thread([&] { build::mul(x, x); }).join(); };
    for (int64_t n = 1; n <= 20000; ++n) {
        build::mul(zeros_of(n), zeros_of(n));
        if (n % 100 == 0) { EXPECT_EQ(made_by(elsewhere), 0u) << n; }
    }
}

// A program of another size held its ops, with a library's code, as long as the process ran.
TEST_F(PreparedOpsTest, WhatAProgramAskedForGoesWithItUnlessACallNeedsItToo) {
    const TensorRef x = zeros_of(66666);
    const Type type = x->type();
    const std::vector<Type> inputs = {type, type};
    auto& ops = PreparedOps::instance();
    const auto of_program = [&] {
        return ops.of_program({runtime::find_op("sub"), {}, inputs}, {&type, 1},
                              runtime::host_device());
    };
    auto held = of_program();
    EXPECT_EQ(made_by(of_program), 0u);
    held = nullptr;
    EXPECT_EQ(made_by(of_program), 1u);
    {
        const runtime::Planning planning, within;
        EXPECT_EQ(made_by(of_program), 1u);
        EXPECT_EQ(made_by(of_program), 0u);
        EXPECT_EQ(made_by([&] { build::sub(x, x); }), 0u);  // the call keeps it
    }
    EXPECT_EQ(made_by(of_program), 0u);
}

}}  // namespace megjit::jit
