#include "codegen/row_plan.h"

#include <algorithm>
#include <limits>

#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

// Sums of squares lose no digit in f64: the square of an f32 is exact there, and the difference of
// mean squares and squared mean is exact enough for f32. Products leave the range of f32 long
// before that of f64.
std::vector<Accumulator> accumulators_of(Reduce kind, ScalarType type) {
    const bool is_float = type == ScalarType::f32, is_double = type == ScalarType::f64;
    // Booleans count as 0 and 1.
    const ScalarType taken = type == ScalarType::b1 ? ScalarType::i32 : type;
    switch (kind) {
        case Reduce::sum:
        case Reduce::mean:
            return {{.join = Join::add, .type = taken, .wide = is_float, .chains = !is_double}};
        case Reduce::prod:
            return {{.join = Join::mul,
                     .type = taken,
                     .wide = is_float,
                     .chains = !is_float && !is_double}};
        case Reduce::variance: {
            const Accumulator sum{.type = taken, .wide = is_float, .chains = false};
            Accumulator squares = sum;
            squares.squares = true;
            return {sum, squares};
        }
        case Reduce::max: return {{.join = Join::max, .type = taken}};
        case Reduce::min: return {{.join = Join::min, .type = taken}};
        case Reduce::argmax: return {{.join = Join::first_max, .type = taken}};
        case Reduce::argmin: return {{.join = Join::first_min, .type = taken}};
        case Reduce::dot: return {{.join = Join::add, .type = taken, .chains = false}};
    }
    return {};
}

// A product by a number may be simplified, and then it has one factor left.
std::vector<int> taken_by(const KernelIR& kernel, const Reduction& reduction) {
    const ScalarInst& inst = kernel.program[reduction.arg];
    if (reduction.kind == Reduce::dot && inst.op == ScalarOp::mul)
        return {inst.args[0], inst.args[1]};
    return {reduction.arg};
}

Finish finish_of(Reduce kind) {
    switch (kind) {
        case Reduce::mean: return Finish::mean;
        case Reduce::variance: return Finish::variance;
        case Reduce::argmax:
        case Reduce::argmin: return Finish::place;
        default: return Finish::value;
    }
}

// The instructions that `roots` need, in their order, without those that have one value a row.
std::vector<int> needed_elements(const KernelIR& kernel, const std::vector<KernelIR::Level>& levels,
                                 const std::vector<int>& roots) {
    std::vector<bool> needed(levels.size());
    for (const int root : roots) needed[static_cast<size_t>(root)] = true;
    for (size_t id = levels.size(); id-- > 0;) {
        needed[id] = needed[id] && !levels[id].per_row;
        if (!needed[id]) continue;
        const ScalarInst& inst = kernel.program[static_cast<int>(id)];
        for (int k = 0; k < arity_of(inst.op); ++k)
            needed[static_cast<size_t>(inst.args[k])] = true;
    }
    std::vector<int> ids;
    for (size_t id = 0; id < levels.size(); ++id)
        if (needed[id]) ids.push_back(static_cast<int>(id));
    return ids;
}

RowWalk walk_of(const KernelIR& kernel, const std::vector<KernelIR::Level>& levels, int number) {
    const auto is_in = [&](int id) { return levels[static_cast<size_t>(id)].pass == number; };
    RowWalk walk;
    std::vector<int> roots;
    for (size_t r = 0; r < kernel.reductions.size(); ++r) {
        const auto [kind, arg] = kernel.reductions[r];
        if (!is_in(arg)) continue;
        walk.reductions.push_back(
            {.reduction = static_cast<int>(r),
             .takes = taken_by(kernel, kernel.reductions[r]),
             .finish = finish_of(kind),
             .accumulators = accumulators_of(kind, kernel.program[arg].type)});
        const std::vector<int>& takes = walk.reductions.back().takes;
        roots.insert(roots.end(), takes.begin(), takes.end());
    }
    for (size_t k = 0; k < kernel.outputs.size(); ++k) {
        if (kernel.outputs[k].per_row || !is_in(kernel.results[k])) continue;
        walk.outputs.push_back(k);
        roots.push_back(kernel.results[k]);
    }
    for (int id = 0; id < kernel.program.size(); ++id)
        if (levels[static_cast<size_t>(id)].per_row && is_in(id)) walk.row.push_back(id);
    walk.elements = needed_elements(kernel, levels, roots);
    return walk;
}

std::string_view word_of(Join join) {
    constexpr std::string_view kNames[] = {"add", "mul", "max", "min", "first_max", "first_min"};
    return kNames[static_cast<int>(join)];
}
std::string_view word_of(Finish finish) {
    constexpr std::string_view kNames[] = {"value", "place", "mean", "variance"};
    return kNames[static_cast<int>(finish)];
}

std::string word_of(const Accumulator& accumulator) {
    return cat(word_of(accumulator.join), accumulator.squares ? " of squares" : "",
               accumulator.chains ? cat(" in chains of ", kChain) : "", ", ",
               name_of(accumulator.wide ? ScalarType::f64 : accumulator.type));
}

// Follows which values are known while it reads a plan.
class Verifier {
public:
    Verifier(const KernelIR& kernel, const RowPlan& plan)
        : kernel_(kernel),
          plan_(plan),
          levels_(kernel.levels()),
          of_row_(levels_.size()),
          reduced_(kernel.reductions.size()),
          stored_(kernel.outputs.size()) {}

    std::string fault() {
        if (plan_.lanes != (kernel_.lanes == Lanes::last ? kRowLanes : 1)) return "other lanes";
        for (size_t w = 0; w < plan_.walks.size(); ++w)
            if (const std::string fault = fault_of(plan_.walks[w]); !fault.empty())
                return cat("walk ", w, ": ", fault);
        for (const size_t k : plan_.outputs)
            if (const std::string fault = store(k, of_row_, true); !fault.empty()) return fault;
        if (const auto r = std::find(reduced_.begin(), reduced_.end(), false); r != reduced_.end())
            return cat("reduction ", r - reduced_.begin(), " is never known");
        if (const auto k = std::find(stored_.begin(), stored_.end(), false); k != stored_.end())
            return cat("output ", k - stored_.begin(), " is never stored");
        return "";
    }

private:
    std::string fault_of(const RowWalk& walk) {
        for (const int id : walk.row)
            if (const std::string fault = compute(id, of_row_, true); !fault.empty()) return fault;
        std::vector<bool> known = of_row_;
        for (const int id : walk.elements)
            if (const std::string fault = compute(id, known, false); !fault.empty()) return fault;
        for (const size_t k : walk.outputs)
            if (const std::string fault = store(k, known, false); !fault.empty()) return fault;
        for (const Reduced& reduced : walk.reductions)
            if (const std::string fault = complete(reduced, known); !fault.empty()) return fault;
        return "";
    }

    std::string compute(int id, std::vector<bool>& known, bool per_row) {
        const auto at = static_cast<size_t>(id);
        const ScalarInst& inst = kernel_.program[id];
        if (levels_[at].per_row != per_row)
            return cat("%", id, per_row ? " is not a value of a row" : " is one value a row");
        for (int k = 0; k < arity_of(inst.op); ++k)
            if (!known[static_cast<size_t>(inst.args[k])])
                return cat("%", id, " needs %", inst.args[k], " before it");
        const int r = reduction_read_by(kernel_, id);
        if (r >= 0 && !reduced_[static_cast<size_t>(r)])
            return cat("%", id, " needs reduction ", r);
        known[at] = true;
        return "";
    }

    std::string store(size_t k, const std::vector<bool>& known, bool per_row) {
        if (kernel_.outputs[k].per_row != per_row || stored_[k])
            return cat("output ", k, " is stored elsewhere");
        if (!known[static_cast<size_t>(kernel_.results[k])])
            return cat("output ", k, " is not known");
        stored_[k] = true;
        return "";
    }

    std::string complete(const Reduced& reduced, const std::vector<bool>& known) {
        const auto r = static_cast<size_t>(reduced.reduction);
        if (r >= reduced_.size() || reduced_[r]) return cat("reduction ", r, " is known already");
        const auto [kind, arg] = kernel_.reductions[r];
        const auto is_known = [&](int id) { return known[static_cast<size_t>(id)]; };
        if (reduced.takes != taken_by(kernel_, kernel_.reductions[r]) ||
            !std::ranges::all_of(reduced.takes, is_known))
            return cat("reduction ", r, ": its values are not known");
        if (reduced.finish != finish_of(kind) ||
            reduced.accumulators != accumulators_of(kind, kernel_.program[arg].type))
            return cat("reduction ", r, " is no ", codegen::name_of(kind));
        reduced_[r] = true;
        return "";
    }

    const KernelIR& kernel_;
    const RowPlan& plan_;
    const std::vector<KernelIR::Level> levels_;
    std::vector<bool> of_row_;  // values of the row that are known so far
    std::vector<bool> reduced_, stored_;
};

}  // namespace

double Accumulator::neutral() const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double least = runtime::is_real(type)    ? -kInfinity
                         : type == ScalarType::i64 ? -0x1p63
                                                   : -0x1p31;
    switch (join) {
        case Join::add: return 0;
        case Join::mul: return 1;
        case Join::max:
        case Join::first_max: return least;
        case Join::min:
        case Join::first_min: return runtime::is_real(type) ? kInfinity : -least - 1;
    }
    return 0;
}

int reduction_read_by(const KernelIR& kernel, int id) {
    const ScalarInst& inst = kernel.program[id];
    const bool reads = inst.op == ScalarOp::input && inst.bits >= kernel.inputs.size();
    return reads ? static_cast<int>(inst.bits - kernel.inputs.size()) : -1;
}

RowPlan row_plan_of(const KernelIR& kernel) {
    RowPlan plan{.lanes = kernel.lanes == Lanes::last ? kRowLanes : 1, .walks = {}, .outputs = {}};
    const std::vector<KernelIR::Level> levels = kernel.levels();
    for (int number = 0; number <= kernel.passes(); ++number)
        plan.walks.push_back(walk_of(kernel, levels, number));
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        if (kernel.outputs[k].per_row) plan.outputs.push_back(k);
    return plan;
}

std::string print(const RowPlan& plan) {
    const auto list = [](std::string_view title, const auto& numbers, const char* prefix) {
        std::string text;
        for (const auto number : numbers) text += cat(" ", prefix, number);
        return text.empty() ? text : cat("  ", title, text, "\n");
    };
    std::string text = cat("lanes ", plan.lanes, "\n");
    for (const RowWalk& walk : plan.walks) {
        text += list("row", walk.row, "%");
        if (!walk.walks()) continue;
        text += "walk\n" + list("elements", walk.elements, "%");
        for (const Reduced& reduced : walk.reductions) {
            text += cat("  reduction ", reduced.reduction, " of %", reduced.takes[0],
                        reduced.takes.size() > 1 ? cat(" times %", reduced.takes[1]) : "", ": ",
                        word_of(reduced.finish), " of");
            for (const Accumulator& accumulator : reduced.accumulators)
                text += cat(&accumulator == reduced.accumulators.data() ? " " : "; ",
                            word_of(accumulator));
            text += "\n";
        }
        text += list("store", walk.outputs, "");
    }
    return text + list("store", plan.outputs, "");
}

std::string fault_of(const KernelIR& kernel, const RowPlan& plan) {
    return Verifier(kernel, plan).fault();
}

}  // namespace megjit::codegen
