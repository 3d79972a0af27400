// codegen/loops/builder.h -- writes a loops::Function, one instruction after the other.
// Computations on constants are folded at once.
#pragma once

#include <functional>

#include "codegen/loops/loops.h"

namespace megjit::codegen::loops {

struct Value {
    int id = -1;
    explicit operator bool() const { return id >= 0; }
    bool operator==(const Value&) const = default;
};
using Values = std::vector<Value>;
inline void append(Values& to, const Values& more) {
    to.insert(to.end(), more.begin(), more.end());
}

class Builder {
public:
    Function finish() { return std::move(function_); }
    Type type_of(Value value) const { return function_.type_of(value.id); }

    Value parameter(Type type);
    void take_table(int words) { function_.table_words = words; }
    Value word(Value number, Type type) { return add_inst(Op::word, {number}, type); }
    Value room(Type type, int64_t vectors, bool is_shared = false);
    Value constant(Type type, uint64_t bits);
    Value number(Type type, double value);  // the nearest number of that type
    Value index(int64_t value) { return constant({Kind::index}, static_cast<uint64_t>(value)); }

    // ---- arithmetic ----
    Value compute(ScalarOp op, const Values& args, DType dtype = DType::f32);
    Value add(Value a, Value b) { return compute(ScalarOp::add, {a, b}); }
    Value sub(Value a, Value b) { return compute(ScalarOp::sub, {a, b}); }
    Value mul(Value a, Value b) { return compute(ScalarOp::mul, {a, b}); }
    Value div(Value a, Value b) { return compute(ScalarOp::div, {a, b}); }
    Value mod(Value a, Value b) { return compute(ScalarOp::mod, {a, b}); }
    Value less(Value a, Value b) { return compute(ScalarOp::lt, {a, b}); }
    Value equal(Value a, Value b) { return compute(ScalarOp::eq, {a, b}); }
    Value smaller(Value a, Value b) { return compute(ScalarOp::min, {a, b}); }
    Value larger(Value a, Value b) { return compute(ScalarOp::max, {a, b}); }
    Value both(Value a, Value b) { return compute(ScalarOp::bit_and, {a, b}); }
    Value any(Value a, Value b) { return compute(ScalarOp::bit_or, {a, b}); }
    Value select(Value condition, Value a, Value b) {
        return compute(ScalarOp::select, {condition, a, b});
    }
    Value divided_up(Value a, int64_t by) { return div(add(a, index(by - 1)), index(by)); }
    Value convert(Kind kind, Value a);
    Value bits(Kind kind, Value a);
    Value fence(Value a);
    Value widen(DType dtype, Value stored);
    Value shorten(DType dtype, Value value);

    // ---- lanes ----
    Value lanes(Kind kind, int count);
    Value splat(Value scalar, int lanes);
    Value lane(Value vector, int number);
    Value half(Value vector, bool upper);
    Value zip(Value a, Value b, bool upper);
    Values transposed(Values rows);  // takes as many rows as they have lanes

    // ---- memory ----
    Value at(Value pointer, Value elements);
    Value address(Value pointer) { return add_inst(Op::address, {pointer}, {}); }
    Value load(Value pointer, int lanes, bool is_aligned, Value mask = {});
    Value load_of_others(Value pointer);  // loads what another block of a GPU stored
    Value gather(Value pointer, Value offsets);
    void store(Value pointer, Value value, bool is_aligned, Value mask = {});
    void store_past_caches(Value pointer, Value value);
    void scatter(Value pointer, Value offsets, Value value, Value mask = {});

    // ---- control ----
    using Body = std::function<Values(Value at, const Values& state)>;
    // for (at = from; at < to; at += step) state = body(at, state)
    Values loop(Value from, Value to, Value step, const Values& start, const Body& body);
    Values loop(Value from, Value to, int64_t step, const Values& start, const Body& body) {
        return loop(from, to, index(step), start, body);
    }
    using Arm = std::function<Values()>;
    Values choose(Value condition, const Arm& then, const Arm& otherwise);
    void branch(Value condition, const std::function<void()>& then);

    // ---- threads ----
    Value where(Where what);
    Value from_thread(Value word, int mask);
    Value multiply(DType halves, const Values& args);
    void barrier(bool of_warp);
    void publish() { add_inst(Op::publish, {}); }
    Value count(Value pointer) { return add_inst(Op::count, {pointer}, {Kind::i32}); }

private:
    Value value(Type type) {
        function_.values.push_back({type});
        return {static_cast<int>(function_.values.size()) - 1};
    }
    std::optional<int64_t> known(Value value) const;  // the number, if an index is constant
    Value folded(ScalarOp op, const Values& args);  // null: it is not folded
    Inst& add_inst(Op op, const Values& args);
    Value add_inst(Op op, const Values& args, Type type, int64_t number = 0);
    Block block(const Values& parameters, const std::function<Values()>& body);

    Function function_;
    Block* here_ = &function_.body;
};

}  // namespace megjit::codegen::loops
