#include "codegen/tiles.h"

#include <algorithm>

#include "codegen/row_plan.h"

namespace megjit::codegen {

using runtime::ScalarOp;

namespace {

// For each instruction: does its value differ between the rows of a tile, and between its columns?
struct Differs {
    bool by_row = false, by_column = false;
};

Differs of_operand(const KernelIR& kernel, size_t i) {
    const Operand& input = kernel.inputs[i];
    Differs differs{!input.repeats, input.inner != Inner::broadcast};
    if (input.by < 0) return differs;
    const Differs index = of_operand(kernel, static_cast<size_t>(input.by));
    return {differs.by_row || index.by_row, differs.by_column || index.by_column};
}

std::vector<Differs> differences(const KernelIR& kernel) {
    std::vector<Differs> all;
    for (const runtime::ScalarInst& inst : kernel.program.insts()) {
        Differs own;
        if (inst.op == runtime::ScalarOp::input)
            own = inst.bits < kernel.inputs.size() ? of_operand(kernel, inst.bits)
                                                   : Differs{true, true};  // the result of a dot
        for (int k = 0; k < runtime::arity_of(inst.op); ++k) {
            const Differs& arg = all[static_cast<size_t>(inst.args[k])];
            own.by_row = own.by_row || arg.by_row;
            own.by_column = own.by_column || arg.by_column;
        }
        all.push_back(own);
    }
    return all;
}

}  // namespace

bool is_contraction(std::span<const Reduction> reductions) {
    return !reductions.empty() && std::ranges::all_of(reductions, [](const Reduction& r) {
        return r.kind == Reduce::dot;
    });
}

bool has_dot_rows(const KernelIR& kernel) {
    return kernel.lanes == Lanes::last && kernel.kept() > 0 && is_contraction(kernel.reductions) &&
           kernel.passes() == 1 &&
           std::ranges::all_of(kernel.outputs, [](const Operand& out) { return out.per_row; }) &&
           std::ranges::none_of(kernel.inputs, [](const Operand& in) { return in.by >= 0; });
}

std::vector<int> same_for_rows(const KernelIR& kernel, std::span<const int> elements) {
    const std::vector<Differs> all = differences(kernel);
    std::vector<int> same;
    std::ranges::copy_if(elements, std::back_inserter(same),
                         [&](int id) { return !all[static_cast<size_t>(id)].by_row; });
    return same;
}

bool TilePlan::is_of_columns(int id) const {
    return std::ranges::find(of_columns, id) != of_columns.end();
}

std::optional<TilePlan> tile_plan_of(const KernelIR& kernel) {
    if (kernel.lanes == Lanes::last || kernel.kept() < 2 || kernel.passes() != 1 ||
        !is_contraction(kernel.reductions) ||
        (kernel.lanes == Lanes::panels && kernel.reductions.size() != 1))
        return {};
    const RowPlan plan = row_plan_of(kernel);
    const RowWalk& walk = plan.walks[0];
    if (!walk.outputs.empty()) return {};
    const std::vector<Differs> differs = differences(kernel);
    const auto differs_of = [&](int id) { return differs[static_cast<size_t>(id)]; };
    const auto is_gathered = [&](int id) {
        const runtime::ScalarInst& inst = kernel.program[id];
        return inst.op == runtime::ScalarOp::input && kernel.inputs[inst.bits].by >= 0;
    };
    TilePlan tile;
    for (const int id : walk.elements) {
        const Differs own = differs_of(id);
        if ((own.by_row && own.by_column) || is_gathered(id)) return {};
        if (!own.by_row) tile.of_columns.push_back(id);
        if (!own.by_column) tile.of_rows.push_back(id);
    }
    for (const int id : walk.row) {
        if (!differs_of(id).by_row) tile.known_of_columns.push_back(id);
        if (!differs_of(id).by_column) tile.known_of_rows.push_back(id);
    }
    for (const Reduced& reduced : walk.reductions) {
        const auto in = [&](size_t k) {
            return k < reduced.takes.size() && tile.is_of_columns(reduced.takes[k]);
        };
        const auto is_element = [&](int id) {
            return std::ranges::find(walk.elements, id) != walk.elements.end();
        };
        if (reduced.takes.size() != 2 || in(0) == in(1) ||
            !std::ranges::all_of(reduced.takes, is_element))
            return {};
    }
    return tile;
}

// Is it a float whose lower bits are 0, as legal code (codegen/legalize.h) makes of a bfloat16?
static bool is_short_float(const runtime::ScalarProgram& program, int id) {
    const runtime::ScalarInst& inst = program[id];
    const auto constant = [&]() -> std::optional<uint64_t> {
        const runtime::ScalarInst& arg = program[inst.args[1]];
        if (arg.op != ScalarOp::constant) return {};
        return arg.bits;
    };
    switch (inst.op) {
        case ScalarOp::bits_i32_to_f32: return is_short_float(program, inst.args[0]);
        case ScalarOp::shl: return constant() == 16;
        case ScalarOp::bit_and: return constant() == 0xFFFF0000;
        default: return false;
    }
}

std::optional<DType> halves_of(const KernelIR& kernel) {
    const auto type_of = [&](int id) -> std::optional<DType> {
        const runtime::ScalarInst& inst = kernel.program[id];
        std::optional<DType> dtype;
        if (inst.op == ScalarOp::input) dtype = kernel.inputs[inst.bits].dtype;
        else if (inst.op == ScalarOp::narrow) dtype = inst.narrow_to;
        else if (is_short_float(kernel.program, id)) dtype = DType::bf16;
        const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
        return is_half ? dtype : std::nullopt;
    };
    const std::vector<int> takes = row_plan_of(kernel).walks[0].reductions[0].takes;
    const std::optional<DType> first = type_of(takes[0]);
    return first == type_of(takes[1]) ? first : std::nullopt;
}

bool is_one_product(const KernelIR& kernel) {
    return kernel.lanes > Lanes::kept && kernel.reductions.size() == 1;
}

}  // namespace megjit::codegen
