// tests/codegen/element_walk.h -- what a kernel means, element after element by the words of
// kernel_ir.h: no row plan, no loops, no vectors. Only the order of sums is that of row_plan.h.
// Slow; judges the interpreter.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "codegen/kernel_ir.h"
#include "codegen/scalar_oracle.h"

namespace megjit::codegen {

// A row's reduction, from the kind alone. Element i of the row is element e = i % run of a run,
// which belongs to lane e % lanes.
class RowReduction {
public:
    RowReduction(ScalarType type, int64_t run, int lanes) : type_(type), run_(run), lanes_(lanes) {}

    uint64_t of(Reduce kind, const std::vector<uint64_t>& row) const {
        const auto n = static_cast<double>(row.size());
        const auto square = [](double x) { return x * x; };
        switch (kind) {
            case Reduce::sum:
                return is_real(type_) ? real_bits(sum(row)) : whole(row, 0, std::plus());
            case Reduce::prod:
                return is_real(type_) ? real_bits(product(row)) : whole(row, 1, std::multiplies());
            case Reduce::mean: return real_bits(sum(row) / n);
            case Reduce::variance: {
                const double mean = sum_in_f64(row, std::identity()) / n,
                             variance = sum_in_f64(row, square) / n - mean * mean;
                return real_bits(variance < 0 ? 0 : variance);
            }
            case Reduce::max: return best<std::greater<>>(row).first;
            case Reduce::min: return best<std::less<>>(row).first;
            case Reduce::argmax: return best<std::greater<>>(row).second;
            case Reduce::argmin: return best<std::less<>>(row).second;
            case Reduce::dot: return dot(row, std::vector<uint64_t>(row.size(), real_bits(1)));
        }
        return 0;
    }

    // Each lane adds unrounded products.
    uint64_t dot(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) const {
        std::vector<float> lanes(static_cast<size_t>(lanes_));
        for (size_t i = 0; i < a.size(); ++i) {
            float& sum = lanes[lane(i)];
            sum = std::fma(static_cast<float>(real(a[i])), static_cast<float>(real(b[i])), sum);
        }
        return std::bit_cast<uint32_t>(joined(lanes, std::plus<float>()));
    }

private:
    double real(uint64_t bits) const {
        if (type_ == ScalarType::f64) return std::bit_cast<double>(bits);
        return std::bit_cast<float>(static_cast<uint32_t>(bits));
    }
    uint64_t real_bits(double value) const {
        if (type_ == ScalarType::f64) return std::bit_cast<uint64_t>(value);
        return std::bit_cast<uint32_t>(static_cast<float>(value));
    }
    size_t lane(size_t i) const {
        return static_cast<size_t>(static_cast<int64_t>(i) % run_ % lanes_);
    }
    // Lane j takes lane j + half, until one is left.
    template <class T, class Join>
    T joined(std::vector<T> lanes, const Join& join) const {
        for (size_t half = lanes.size() / 2; half > 0; half /= 2)
            for (size_t j = 0; j < half; ++j) lanes[j] = join(lanes[j], lanes[j + half]);
        return lanes[0];
    }

    // Eight of a lane are added in f32, and these sums in f64.
    double sum(const std::vector<uint64_t>& row) const {
        if (type_ == ScalarType::f64) return sum_in_f64(row, std::identity());
        std::vector<double> lanes(static_cast<size_t>(lanes_)), chains(lanes.size());
        for (size_t i = 0; i < row.size(); ++i) {
            if (static_cast<int64_t>(i) % run_ % (8 * lanes_) == 0)
                for (size_t j = 0; j < lanes.size(); ++j) lanes[j] += std::exchange(chains[j], 0.0);
            double& chain = chains[lane(i)];
            chain = static_cast<float>(chain + real(row[i]));
        }
        for (size_t j = 0; j < lanes.size(); ++j) lanes[j] += chains[j];
        return joined(lanes, std::plus());
    }
    template <class Term>
    double sum_in_f64(const std::vector<uint64_t>& row, const Term& term) const {
        std::vector<double> lanes(static_cast<size_t>(lanes_));
        for (size_t i = 0; i < row.size(); ++i) lanes[lane(i)] += term(real(row[i]));
        return joined(lanes, std::plus());
    }
    double product(const std::vector<uint64_t>& row) const {
        std::vector<double> lanes(static_cast<size_t>(lanes_), 1.0);
        for (size_t i = 0; i < row.size(); ++i) lanes[lane(i)] *= real(row[i]);
        return joined(lanes, std::multiplies());
    }
    template <class Join>
    uint64_t whole(const std::vector<uint64_t>& row, uint64_t start, const Join& join) const {
        const uint64_t all = std::accumulate(row.begin(), row.end(), start, join);  // which wraps
        return type_ == ScalarType::i64 ? all : static_cast<uint32_t>(all);
    }

    // The best value, or the first NaN, and the first place that has it. Of zeros, whose signs may
    // differ, the first of a lane, and then that of the lower lane.
    template <class Better>
    std::pair<uint64_t, uint64_t> best(const std::vector<uint64_t>& row) const {
        constexpr bool kLargest = std::is_same_v<Better, std::greater<>>;
        const auto value = [&](uint64_t bits) -> long double {
            if (is_real(type_)) return real(bits);
            return type_ == ScalarType::i64 ? static_cast<int64_t>(bits)
                                            : static_cast<int32_t>(bits);
        };
        const auto wins = [&](uint64_t a, uint64_t b) {  // over what came before
            const long double x = value(a), y = value(b);
            return std::isnan(x) || std::isnan(y) ? !std::isnan(y) : Better()(x, y);
        };
        const uint64_t least = uint64_t{1} << (type_ == ScalarType::i64 ? 63 : 31);
        const uint64_t neutral = is_real(type_) ? real_bits(kLargest ? -INFINITY : INFINITY)
                                 : type_ == ScalarType::b1 ? !kLargest
                                 : kLargest                ? least
                                                           : least - 1;
        std::vector<uint64_t> lanes(static_cast<size_t>(lanes_), neutral);
        size_t place = 0;
        for (size_t i = 0; i < row.size(); ++i) {
            if (wins(row[i], lanes[lane(i)])) lanes[lane(i)] = row[i];
            if (wins(row[i], row[place])) place = i;
        }
        const uint64_t most =
            joined(lanes, [&](uint64_t a, uint64_t b) { return wins(b, a) ? b : a; });
        return {most, place};
    }

    const ScalarType type_;
    const int64_t run_;
    const int lanes_;
};

inline uint64_t load(runtime::DType dtype, const void* data, int64_t index) {
    const size_t bytes = runtime::size_of(dtype);
    uint64_t stored = 0;
    std::memcpy(&stored, static_cast<const char*>(data) + index * static_cast<int64_t>(bytes),
                bytes);
    return widened(dtype, stored);
}

inline void store(runtime::DType dtype, void* data, int64_t index, uint64_t bits) {
    const size_t bytes = runtime::size_of(dtype);
    const uint64_t stored = shortened(dtype, bits);
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
        over(0, static_cast<size_t>(kernel_.kept()), [&] { run_row(); });
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

    uint64_t read_input(size_t i) const {
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
    // These, and what they are made of.
    void evaluate_needed(const std::vector<int>& roots) {
        std::vector<bool> needed(values_.size());
        for (const int root : roots) needed[static_cast<size_t>(root)] = true;
        for (int id = kernel_.program.size(); id-- > 0;)
            for (int k = 0; k < runtime::arity_of(kernel_.program[id].op); ++k)
                if (needed[static_cast<size_t>(id)])
                    needed[static_cast<size_t>(kernel_.program[id].args[k])] = true;
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (needed[static_cast<size_t>(id)]) evaluate_one(id);
    }
    void evaluate_one(int id) {
        const runtime::ScalarInst& inst = kernel_.program[id];
        if (inst.op == runtime::ScalarOp::constant) values_[id] = inst.bits;
        else if (inst.op != runtime::ScalarOp::input) values_[id] = evaluated(inst);
        else if (inst.bits >= kernel_.inputs.size())
            values_[id] = reduced_[inst.bits - kernel_.inputs.size()];
        else values_[id] = read_input(inst.bits);
    }

    uint64_t evaluated(const runtime::ScalarInst& inst) {
        uint64_t v[3] = {0, 0, 0};
        for (int k = 0; k < runtime::arity_of(inst.op); ++k) v[k] = values_[inst.args[k]];
        const int taken = inst.args[inst.op == runtime::ScalarOp::select ? 1 : 0];
        return evaluate(inst.op, kernel_.program[taken].type, inst.type, inst.narrow_to, v);
    }

    // Walks as often as it takes: a reduction's elements may need the results of others.
    void run_row() {
        std::vector<bool> is_known(reduced_.size());
        for (size_t known = 0; known < reduced_.size();)
            for (size_t r = 0; r < reduced_.size(); ++r)
                if (!is_known[r] && can_be_computed(kernel_.reductions[r].arg, is_known)) {
                    reduce(r);
                    is_known[r] = true;
                    ++known;
                }
        over_row([&] { store_all(false); });
        std::fill(index_.begin() + kernel_.kept(), index_.end(), 0);
        store_all(true);
    }
    template <class Body>
    void over_row(const Body& body) {
        over(static_cast<size_t>(kernel_.kept()), rank_, body);
    }

    bool can_be_computed(int id, const std::vector<bool>& is_known) const {
        const runtime::ScalarInst& inst = kernel_.program[id];
        if (inst.op == runtime::ScalarOp::input && inst.bits >= kernel_.inputs.size())
            return is_known[inst.bits - kernel_.inputs.size()];
        for (int k = 0; k < runtime::arity_of(inst.op); ++k)
            if (!can_be_computed(inst.args[k], is_known)) return false;
        return true;
    }

    void reduce(size_t r) {
        const auto [kind, arg] = kernel_.reductions[r];
        const runtime::ScalarInst& inst = kernel_.program[arg];
        const bool multiplies = kind == Reduce::dot && inst.op == runtime::ScalarOp::mul;
        std::vector<uint64_t> row, factors[2];
        over_row([&] {
            evaluate_needed({arg});
            row.push_back(values_[arg]);
            for (const int f : {0, 1})
                if (multiplies) factors[f].push_back(values_[inst.args[f]]);
        });
        const RowReduction by(inst.type, launch_.extents.back(),
                              kernel_.lanes == Lanes::last ? 16 : 1);
        reduced_[r] = multiplies ? by.dot(factors[0], factors[1]) : by.of(kind, row);
    }

    void store_all(bool per_row) {
        std::vector<int> roots;
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (kernel_.outputs[k].per_row == per_row) roots.push_back(kernel_.results[k]);
        evaluate_needed(roots);
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (kernel_.outputs[k].per_row == per_row) store_one(k);
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
    std::vector<uint64_t> values_;
    std::vector<uint64_t> reduced_;  // of the row at hand
    std::vector<int64_t> gather_strides_;
};

}  // namespace megjit::codegen
