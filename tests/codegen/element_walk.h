// tests/codegen/element_walk.h -- what a kernel means, element after element by the words of
// kernel_ir.h and row_plan.h: no loops of codegen/loops, no vectors. Slow; judges the interpreter.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>

#include "codegen/row_plan.h"
#include "codegen/scalar_oracle.h"

namespace megjit::codegen {

class RowReduction {
public:
    // Of elements of `type`.
    RowReduction(const Reduced& reduced, runtime::ScalarType type, int lanes);
    // The bits of the element at `e` of a run, and at `place` of the row; in order.
    void take(uint32_t bits, int64_t e, int64_t place);
    uint32_t result(double elements);  // its bits, when all were taken

private:
    // What a lane or a chain holds. f32 and f64 are doubles, but rounded.
    struct Cell {
        double real = 0;
        int32_t whole = 0, place = 0;
    };
    struct Growing {
        const Accumulator& by;
        std::vector<Cell> lanes, chains;
    };
    static Cell neutral(const Accumulator& by);
    static Cell joined(const Accumulator& by, bool in_f64, const Cell& a, const Cell& b);
    static void end_chains(Growing& growing);
    static Cell all(Growing& growing);

    const Reduced& reduced_;
    runtime::ScalarType type_;
    std::vector<Growing> growing_;  // per accumulator
};

template <class T>
bool wins(Join join, T a, T b, int32_t place_a, int32_t place_b) {
    const bool largest = join == Join::max || join == Join::first_max;
    if (b != b) return a == a || place_b < place_a;
    if (largest ? b > a : b < a) return true;
    return (join == Join::first_max || join == Join::first_min) && b == a && place_b < place_a;
}

inline uint32_t f32_bits(double value) {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
}

inline RowReduction::RowReduction(const Reduced& reduced, ScalarType type, int lanes)
    : reduced_(reduced), type_(type) {
    for (const Accumulator& by : reduced.accumulators) {
        const std::vector<Cell> start(static_cast<size_t>(lanes), neutral(by));
        growing_.push_back({by, start, start});
    }
}

inline RowReduction::Cell RowReduction::neutral(const Accumulator& by) {
    const double value = by.neutral();
    return by.type == ScalarType::f32 ? Cell{.real = value}
                                      : Cell{.whole = static_cast<int32_t>(value)};
}

inline RowReduction::Cell RowReduction::joined(const Accumulator& by, bool in_f64, const Cell& a,
                                               const Cell& b) {
    const auto rounded = [&](double exact) {
        return Cell{.real = in_f64 ? exact : static_cast<double>(static_cast<float>(exact))};
    };
    const auto wrapped = [](int64_t exact) { return Cell{.whole = static_cast<int32_t>(exact)}; };
    const bool is_float = by.type == ScalarType::f32;
    if (by.join == Join::add)
        return is_float ? rounded(a.real + b.real) : wrapped(int64_t{a.whole} + b.whole);
    if (by.join == Join::mul)
        return is_float ? rounded(a.real * b.real) : wrapped(int64_t{a.whole} * b.whole);
    const bool b_wins = is_float ? wins(by.join, a.real, b.real, a.place, b.place)
                                 : wins(by.join, a.whole, b.whole, a.place, b.place);
    return b_wins ? b : a;
}

inline void RowReduction::take(uint32_t bits, int64_t e, int64_t place) {
    for (Growing& own : growing_) {
        const auto count = static_cast<int64_t>(own.lanes.size());
        if (e % (count * kChain) == 0) end_chains(own);
        Cell cell{.real = static_cast<double>(std::bit_cast<float>(bits)),
                  .whole = static_cast<int32_t>(bits),
                  .place = static_cast<int32_t>(place)};
        if (own.by.squares) cell.real *= cell.real;
        const auto lane = static_cast<size_t>(e % count);
        Cell& to = own.by.chains ? own.chains[lane] : own.lanes[lane];
        to = joined(own.by, own.by.wide && !own.by.chains, to, cell);
    }
}

inline void RowReduction::end_chains(Growing& own) {
    for (size_t lane = 0; lane < own.lanes.size(); ++lane) {
        own.lanes[lane] = joined(own.by, own.by.wide, own.lanes[lane], own.chains[lane]);
        own.chains[lane] = neutral(own.by);
    }
}

inline RowReduction::Cell RowReduction::all(Growing& own) {
    end_chains(own);
    for (size_t half = own.lanes.size() / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane)
            own.lanes[lane] = joined(own.by, own.by.wide, own.lanes[lane], own.lanes[lane + half]);
    return own.lanes[0];
}

inline uint32_t RowReduction::result(double elements) {
    const Cell cell = all(growing_[0]);
    switch (reduced_.finish) {
        case Finish::place: return static_cast<uint32_t>(cell.place);
        case Finish::mean: return f32_bits(cell.real / elements);
        case Finish::variance: {
            const double mean = cell.real / elements,
                         variance = all(growing_[1]).real / elements - mean * mean;
            return f32_bits(variance < 0 ? 0 : variance);
        }
        case Finish::value: break;
    }
    if (type_ == ScalarType::f32) return f32_bits(cell.real);
    if (type_ == ScalarType::i32) return static_cast<uint32_t>(cell.whole);
    // Of no truths at all none is true, and none is false.
    return reduced_.accumulators[0].join == Join::max ? cell.whole > 0 : cell.whole != 0;
}

inline uint32_t load(runtime::DType dtype, const void* data, int64_t index) {
    const size_t bytes = runtime::size_of(dtype);
    uint32_t stored = 0;
    std::memcpy(&stored, static_cast<const char*>(data) + index * static_cast<int64_t>(bytes),
                bytes);
    return widened(dtype, stored);
}

inline void store(runtime::DType dtype, void* data, int64_t index, uint32_t bits) {
    const size_t bytes = runtime::size_of(dtype);
    const uint32_t stored = shortened(dtype, bits);
    std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(bytes), &stored, bytes);
}

class ElementWalk {
public:
    ElementWalk(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
                void* const* outputs)
        : kernel_(kernel),
          launch_(launch),
          inputs_(inputs),
          outputs_(outputs),
          rank_(launch.extents.size()),
          index_(rank_, 0),
          values_(static_cast<size_t>(kernel.program.size())),
          reduced_(kernel.reductions.size()) {
        size_t next = (kernel.inputs.size() + kernel.outputs.size()) * rank_;
        for (const Operand& input : kernel.inputs)
            gather_strides_.push_back(input.by >= 0 ? launch.strides[next++] : 0);
    }

    void run() {
        if (kernel_.reduced == 0) {
            int64_t element = 0;
            over(0, rank_, [&] {
                evaluate_all();
                for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                    store(kernel_.outputs[k].dtype, outputs_[k], element,
                          values_[kernel_.results[k]]);
                ++element;
            });
            return;
        }
        const RowPlan plan = row_plan_of(kernel_);
        over(0, static_cast<size_t>(kernel_.kept()), [&] { run_row(plan); });
    }

private:
    template <class Body>
    void over(size_t first, size_t last, const Body& body) {
        std::fill(index_.begin() + static_cast<ptrdiff_t>(first),
                  index_.begin() + static_cast<ptrdiff_t>(last), 0);
        for (size_t axis = first; axis < last; ++axis)
            if (launch_.extents[axis] == 0) return;
        for (;;) {
            body();
            size_t axis = last;
            for (; axis-- > first;) {
                if (++index_[axis] < launch_.extents[axis]) break;
                index_[axis] = 0;
            }
            if (axis + 1 == first || first == last) return;
        }
    }

    int64_t offset_of(size_t operand) const {
        int64_t offset = 0;
        for (size_t axis = 0; axis < rank_; ++axis)
            offset += index_[axis] * launch_.strides[operand * rank_ + axis];
        return offset;
    }

    uint32_t read_input(size_t i) const {
        const Operand& input = kernel_.inputs[i];
        int64_t offset = offset_of(i);
        if (input.is_offset) return static_cast<uint32_t>(offset);
        if (input.by >= 0)
            offset += static_cast<int32_t>(load(DType::i32, inputs_[input.by],
                                                offset_of(static_cast<size_t>(input.by)))) *
                      gather_strides_[i];
        return load(input.dtype, inputs_[i], offset);
    }

    void evaluate_all() {
        for (int id = 0; id < kernel_.program.size(); ++id) evaluate_one(id);
    }
    void evaluate_one(int id) {
        const runtime::ScalarInst& inst = kernel_.program[id];
        if (inst.op == runtime::ScalarOp::constant) values_[id] = inst.bits;
        else if (inst.op != runtime::ScalarOp::input) values_[id] = evaluated(inst);
        else if (const int r = reduction_read_by(kernel_, id); r >= 0) values_[id] = reduced_[r];
        else values_[id] = read_input(inst.bits);
    }

    uint32_t evaluated(const runtime::ScalarInst& inst) {
        uint32_t v[3] = {0, 0, 0};
        for (int k = 0; k < runtime::arity_of(inst.op); ++k) v[k] = values_[inst.args[k]];
        const int taken = inst.args[inst.op == runtime::ScalarOp::select ? 1 : 0];
        return evaluate(inst.op, kernel_.program[taken].type, inst.narrow_to, v);
    }

    void run_row(const RowPlan& plan) {
        for (const RowWalk& walk : plan.walks) {
            std::fill(index_.begin() + kernel_.kept(), index_.end(), 0);
            for (const int id : walk.row) evaluate_one(id);
            if (walk.walks()) run_walk(walk, plan.lanes);
        }
        std::fill(index_.begin() + kernel_.kept(), index_.end(), 0);
        for (const size_t k : plan.outputs) store_one(k);
    }

    void run_walk(const RowWalk& walk, int lanes) {
        std::vector<RowReduction> reductions;
        for (const Reduced& reduced : walk.reductions)
            reductions.emplace_back(reduced, kernel_.program[reduced.arg].type, lanes);
        int64_t place = 0;
        over(static_cast<size_t>(kernel_.kept()), rank_, [&] {
            for (const int id : walk.elements) evaluate_one(id);
            for (const size_t k : walk.outputs) store_one(k);
            for (size_t r = 0; r < reductions.size(); ++r)
                reductions[r].take(values_[walk.reductions[r].arg], index_.back(), place);
            ++place;
        });
        for (size_t r = 0; r < reductions.size(); ++r)
            reduced_[walk.reductions[r].reduction] =
                reductions[r].result(static_cast<double>(place));
    }

    void store_one(size_t k) {
        store(kernel_.outputs[k].dtype, outputs_[k], offset_of(kernel_.inputs.size() + k),
              values_[kernel_.results[k]]);
    }

    const KernelIR& kernel_;
    const LaunchShape& launch_;
    void* const* inputs_;
    void* const* outputs_;
    size_t rank_;
    std::vector<int64_t> index_;
    std::vector<uint32_t> values_;
    std::vector<uint32_t> reduced_;  // of the row at hand
    std::vector<int64_t> gather_strides_;
};

}  // namespace megjit::codegen
