// What ops say of themselves (OpDef) for passes to build on is true.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/eager/dispatch.h"
#include "runtime/ops/known.h"
#include "tests/jit/world.h"

namespace megjit::runtime { namespace {

class OpFacts : public jit::World {
protected:
    static TensorRef tensor(const std::vector<double>& values) {
        const TensorRef made =
            empty_tensor(host_device(), {.dtype = DType::f32, .shape = {std::ssize(values)}});
        for (size_t i = 0; i < values.size(); ++i)
            made->as<float>()[i] = static_cast<float>(values[i]);
        return made;
    }
    static TensorRef run(const OpDef& op, const std::vector<TensorRef>& inputs) {
        return compute(op, {}, inputs)[0];
    }
    static std::vector<const OpDef*> having(bool (*fact)(const OpDef&)) {
        std::vector<const OpDef*> found;
        for (const OpDef* op : all_ops())
            if (fact(*op)) found.push_back(op);
        EXPECT_FALSE(found.empty());
        return found;
    }
    static void expect_same(const TensorRef& a, const TensorRef& b, const OpDef& op) {
        ASSERT_EQ(a->type(), b->type()) << op.name;
        EXPECT_EQ(std::memcmp(a->data(), b->data(), a->type().bytes()), 0) << op.name;
    }
};

TEST_F(OpFacts, AtANumberAnOpIsTheOtherOne) {
    for (const OpDef* op : having([](const OpDef& op) { return !op.at_number.empty(); }))
        for (const AtNumber& rule : op->at_number) {
            const TensorRef x = tensor({-2.5, -1, -0.0, 0, 0.3, 1, 7, HUGE_VAL}),
                            number = scalar_tensor(rule.number, DType::f32);
            expect_same(run(*op, {x, number}), run(rule.op(), {x}), *op);
            if (op->commutative) expect_same(run(*op, {number, x}), run(rule.op(), {x}), *op);
        }
}

TEST_F(OpFacts, OfEqualOperandsAnOpIsItsNumber) {
    for (const OpDef* op : having([](const OpDef& op) { return op.of_equals.has_value(); })) {
        const TensorRef x = tensor({-2.5, -1, 0.3, 7});
        expect_same(run(*op, {x, x}), tensor(std::vector(4, *op->of_equals)), *op);
    }
}

TEST_F(OpFacts, AnInverseUndoesAndIsUndone) {
    for (const OpDef* op : having([](const OpDef& op) { return op.inverse != nullptr; })) {
        EXPECT_EQ(&op->inverse().inverse(), op) << op->name;
        if (op->promotion == Promotion::boolean) continue;
        const TensorRef x = tensor({0.3, 1, 2, 7}), y = run(*op, {run(op->inverse(), {x})});
        for (int i = 0; i < 4; ++i)
            EXPECT_NEAR(y->as<float>()[i], x->as<float>()[i], 1e-6f * x->as<float>()[i]);
    }
}

// Position 0 of the attributes has the axes; keepdims stands behind them.
TEST_F(OpFacts, ReductionsRunOverTheAxesOfTheirAttribute) {
    const Type x{DType::f32, {2, 3, 4}};
    for (const OpDef* op : having([](const OpDef& op) { return op.reduction.has_value(); })) {
        const bool is_one = op->attrs[0].kind == AttrKind::integer;
        const Attrs attrs{is_one ? Attr{int64_t{-2}} : Attr{std::vector<int64_t>{0, 1}},
                          int64_t{1}};
        const OpCall call{*op, attrs, {&x, 1}};
        Shape kept = x.shape;
        for (int axis = 0; axis < 3; ++axis)
            if (reduced_axes(call) >> axis & 1u) kept[axis] = 1;
        EXPECT_EQ(infer(call)[0].shape, kept) << op->name;
        EXPECT_NE(kept, x.shape) << op->name;
    }
}

// Types alone: nothing so large is allocated.
TEST_F(OpFacts, PlacesAlongALongerAxisThanInt32CountsAreRefused) {
    const int64_t most = INT32_MAX;
    const auto refuses = [](const char* name, const Attrs& attrs, std::vector<Type> inputs) {
        const OpDef& op = find_op(name);
        const OpCall call{op, attrs, inputs};
        try {
            if (op.direct) op.direct(call, {});
            else infer(call);
        } catch (const UserError& error) {
            EXPECT_EQ(error.kind, ErrorKind::operands) << name;
            return error.message.text().find("2147483648") != std::string::npos;
        }
        return false;
    };
    const int64_t axis = 1, keep = 0, no = 0, one = 1;
    for (const bool is_long : {false, true}) {
        const Type x{DType::f32, {2, most + is_long}};
        EXPECT_EQ(refuses("argmax", {axis, keep}, {x}), is_long);
        EXPECT_EQ(refuses("argmin", {axis, keep}, {x}), is_long);
        EXPECT_EQ(refuses("sort", {axis, no}, {x}), is_long);
        EXPECT_EQ(refuses("topk", {one, axis, no}, {x}), is_long);
        EXPECT_EQ(refuses("coordinates", {std::vector<int64_t>{2, most + is_long}, axis}, {}),
                  is_long);
    }
    const Type x{DType::f32, {most + 1}}, mask{DType::b8, {most + 1}};
    EXPECT_TRUE(refuses("mask_select", {}, {x, mask}));
    EXPECT_TRUE(refuses("nonzero", {}, {mask}));
}

TEST_F(OpFacts, AProductWithStepsTakesTheOperandsOfTheProduct) {
    for (const OpDef* op : having([](const OpDef& op) { return op.epilogue.has_value(); })) {
        const OpDef& with = op->epilogue->op();
        EXPECT_EQ(&with.epilogue->op(), &with) << op->name;
        EXPECT_EQ(with.attrs.back().name, "epilogue") << op->name;
        EXPECT_EQ(with.weights(), op->weights()) << op->name;
        for (size_t i = 0; i < 2; ++i) EXPECT_EQ(with.kind_of(i), op->kind_of(i)) << op->name;
    }
}

TEST_F(OpFacts, DerivedOpsOfMaskedOnesAreFoundByName) {
    EXPECT_EQ(find_op("where.grad1").kind_of(0), OperandKind::mask);
}

}}  // namespace megjit::runtime
