#include "codegen/interpret_row.h"

#include <bit>

namespace megjit::codegen {

using runtime::ScalarType;

namespace {

template <class T>
bool wins(Join join, T a, T b, int32_t place_a, int32_t place_b) {
    const bool largest = join == Join::max || join == Join::first_max;
    if (b != b) return a == a || place_b < place_a;
    if (largest ? b > a : b < a) return true;
    return (join == Join::first_max || join == Join::first_min) && b == a && place_b < place_a;
}

uint32_t f32_bits(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }

}  // namespace

RowReduction::RowReduction(const Reduced& reduced, ScalarType type, int lanes)
    : reduced_(reduced), type_(type) {
    for (const Accumulator& by : reduced.accumulators) {
        const std::vector<Cell> start(static_cast<size_t>(lanes), neutral(by));
        growing_.push_back({by, start, start});
    }
}

RowReduction::Cell RowReduction::neutral(const Accumulator& by) {
    const double value = by.neutral();
    return by.type == ScalarType::f32 ? Cell{.real = value}
                                      : Cell{.whole = static_cast<int32_t>(value)};
}

RowReduction::Cell RowReduction::joined(const Accumulator& by, bool in_f64, const Cell& a,
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

void RowReduction::take(uint32_t bits, int64_t e, int64_t place) {
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

void RowReduction::end_chains(Growing& own) {
    for (size_t lane = 0; lane < own.lanes.size(); ++lane) {
        own.lanes[lane] = joined(own.by, own.by.wide, own.lanes[lane], own.chains[lane]);
        own.chains[lane] = neutral(own.by);
    }
}

RowReduction::Cell RowReduction::all(Growing& own) {
    end_chains(own);
    for (size_t half = own.lanes.size() / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; ++lane)
            own.lanes[lane] = joined(own.by, own.by.wide, own.lanes[lane], own.lanes[lane + half]);
    return own.lanes[0];
}

uint32_t RowReduction::result(double elements) {
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

}  // namespace megjit::codegen
