#include "codegen/expand_math.h"

#include <algorithm>

#include "runtime/core/scalar_math.h"
#include "runtime/host/error.h"

namespace megjit::codegen {

using namespace runtime;

namespace {

bool is_of_doubles(const ScalarInst& inst) {
    return is_transcendental(inst.op) && inst.type == ScalarType::f64;
}

}  // namespace

bool can_expand_math(const ScalarProgram& program) {
    return std::ranges::none_of(program.insts(), is_of_doubles);
}

KernelIR expand_math(const KernelIR& kernel) {
    if (const auto found = std::ranges::find_if(kernel.program.insts(), is_of_doubles);
        found != kernel.program.insts().end())
        user_error({.what = cat("no kernel is generated for ", name_of(found->op), " of float64"),
                    .why = "functions of float64 are the C library's, on CPUs",
                    .fix = "compute it in float32, or on the CPU"},
                   ErrorKind::type);
    const std::span<const ScalarInst> insts = kernel.program.insts();
    if (std::none_of(insts.begin(), insts.end(),
                     [](const ScalarInst& inst) { return is_transcendental(inst.op); }))
        return kernel;
    KernelIR expanded = kernel;
    expanded.program = {};
    std::vector<int> renamed;
    for (ScalarInst inst : insts) {
        for (int k = 0; k < arity_of(inst.op); ++k) inst.args[k] = renamed[inst.args[k]];
        if (is_transcendental(inst.op)) {
            const Expr a(&expanded.program, inst.args[0]);
            const Expr b = arity_of(inst.op) > 1 ? Expr(&expanded.program, inst.args[1]) : a;
            renamed.push_back(expand<Expr>(inst.op, a, b).id());
        } else {
            renamed.push_back(expanded.program.emit(inst));
        }
    }
    std::vector<int> roots;
    for (int result : expanded.results) roots.push_back(renamed[result]);
    for (const Reduction& reduction : expanded.reductions) roots.push_back(renamed[reduction.arg]);
    expanded.program.keep_only(roots);
    std::copy_n(roots.begin(), expanded.results.size(), expanded.results.begin());
    for (size_t r = 0; r < expanded.reductions.size(); ++r)
        expanded.reductions[r].arg = roots[expanded.results.size() + r];
    return expanded;
}

}  // namespace megjit::codegen
