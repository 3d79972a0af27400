// What ScalarProgram::emit promises: equal instructions once, exact folding, exact identities.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/core/scalar.h"
#include "runtime/core/scalar_math.h"

namespace megjit::runtime { namespace {

struct Program {
    ScalarProgram program;
    Expr x{&program, program.input(0, ScalarType::f32)};
    Expr n{&program, program.input(1, ScalarType::i32)};
    Expr c{&program, program.input(2, ScalarType::b1)};
    float value(Expr e) const {
        return std::bit_cast<float>(static_cast<uint32_t>(program[e.id()].bits));
    }
    int32_t integer(Expr e) const { return static_cast<int32_t>(program[e.id()].bits); }
};

TEST(ScalarEmit, FindsEqualInstructions) {
    Program p;
    EXPECT_EQ((exp(p.x) + 1.0).id(), (exp(p.x) + 1.0).id());
}

TEST(ScalarEmit, FoldsArithmeticOnConstants) {
    Program p;
    EXPECT_EQ(p.value(p.x.constant(0.1) * p.x.constant(3)), 0.1f * 3.0f);
}

TEST(ScalarEmit, NeverFoldsWhatTheHostRoundsInItsOwnWay) {
    Program p;
    EXPECT_EQ(p.program[exp(p.x.constant(1)).id()].op, ScalarOp::exp);
}

TEST(ScalarEmit, DividesIntegersTowardsMinusInfinity) {
    Program p;
    EXPECT_EQ(p.integer(p.n.constant(-7) / p.n.constant(2)), -4);
    EXPECT_EQ(p.integer(mod(p.n.constant(-7), p.n.constant(2))), 1);
    EXPECT_EQ(p.integer(p.n.constant(7) / p.n.constant(0)), 0);
}

TEST(ScalarEmit, KeepsTheSignOfZeroInSums) {
    Program p;
    EXPECT_NE((p.x + 0.0).id(), p.x.id());  // -0 + 0 is +0
    EXPECT_EQ((p.x - 0.0).id(), p.x.id());
    EXPECT_EQ((p.x + -0.0).id(), p.x.id());
    EXPECT_EQ((p.n + 0.0).id(), p.n.id());
}

TEST(ScalarEmit, DropsExactIdentities) {
    Program p;
    EXPECT_EQ((p.x * 1.0).id(), p.x.id());
    EXPECT_EQ((-(-p.x)).id(), p.x.id());
    EXPECT_EQ(select(p.c, p.x, p.x).id(), p.x.id());
    EXPECT_EQ((!!p.c).id(), p.c.id());
}

TEST(ScalarEmit, NarrowsConstantsToWhatStorageHolds) {
    Program p;
    EXPECT_EQ(p.value(narrow(p.x.constant(65520), DType::f16)), INFINITY);
    EXPECT_EQ(p.integer(narrow(p.n.constant(-1), DType::u8)), 255);
    EXPECT_EQ(narrow(p.x, DType::f32).id(), p.x.id());
}

TEST(ScalarProgram, KeepOnlyRemovesWhatNoResultNeeds) {
    Program p;
    std::vector<int> results{(p.x * 2.0).id()};
    exp(p.x);
    p.program.keep_only(results);
    EXPECT_EQ(to_string(p.program),
              "%0: f32 = input 0\n%1: f32 = constant 2\n%2: f32 = mul %0 %1\n");
}

TEST(ScalarProgram, InlinesAnotherProgramOnItsOperands) {
    Program inner, outer;
    const int result = (inner.x * inner.x).id();
    const int args[] = {exp(outer.x).id()};
    const int id = outer.program.inline_program(inner.program, result, args);
    EXPECT_EQ(id, (exp(outer.x) * exp(outer.x)).id());
}

TEST(Derivative, IsTheSeedForTheIdentity) {
    Program p;
    EXPECT_EQ(derivative(p.x, 0, p.x.constant(3)).id(), p.x.constant(3).id());
}

TEST(Derivative, IsInvalidForAnInputThatDoesNotMatter) {
    Program p;
    EXPECT_FALSE(derivative(p.x * 2.0, 1, p.x).valid());
    EXPECT_FALSE(derivative(floor(p.x), 0, p.x.constant(1)).valid());
}

TEST(Derivative, SumsOverAllUses) {
    Program p;
    const Expr dy(&p.program, p.program.input(3, ScalarType::f32));
    EXPECT_EQ(derivative(p.x * p.x, 0, dy).id(), (dy * p.x + dy * p.x).id());
}

TEST(ScalarMath, ExpandsToBasicInstructionsOnly) {
    for (int i = static_cast<int>(ScalarOp::exp); i <= static_cast<int>(ScalarOp::digamma); ++i) {
        Program p;
        expand<Expr>(static_cast<ScalarOp>(i), p.x, p.x.constant(2));
        for (const ScalarInst& inst : p.program.insts())
            EXPECT_FALSE(is_transcendental(inst.op))
                << name_of(static_cast<ScalarOp>(i)) << " uses " << name_of(inst.op);
    }
}

}}  // namespace megjit::runtime
