// tests/backends/vm_testing.h -- scalar programs and element-wise ops on small vectors, through the
// VM.
#pragma once

#include <cstdlib>
#include <functional>
#include <vector>

#include "backends/cpu/vm/vm.h"
#include "codegen/kernel_ir.h"
#include "runtime/core/op.h"

namespace megjit::cpu::testing {

using namespace runtime;

// T is float, int32_t, or the storage of a narrower type.
template <class Out, class... In>
std::vector<Out> run_program(const std::function<Expr(std::vector<Expr>)>& build, DType out,
                             std::vector<DType> in_types, const std::vector<In>&... inputs) {
    codegen::KernelIR kernel;
    std::vector<Expr> args;
    for (size_t i = 0; i < in_types.size(); ++i) {
        kernel.inputs.push_back({.dtype = in_types[i]});
        args.emplace_back(&kernel.program,
                          kernel.program.input(static_cast<int>(i), compute_type(in_types[i])));
    }
    kernel.results = {narrow(to_type(build(args), compute_type(out)), out).id()};
    kernel.outputs = {{out}};
    const void* pointers[] = {inputs.data()...};
    const int64_t n = static_cast<int64_t>(std::get<0>(std::tie(inputs...)).size());
    std::vector<Out> result(static_cast<size_t>(n));
    void* outputs[] = {result.data()};
    const codegen::LaunchShape launch{{n}, std::vector<int64_t>(in_types.size(), 1)};
    prepare_vm(kernel, launch)
        ->enqueue(runtime::inline_stream(), const_cast<void**>(pointers), outputs, nullptr);
    return result;
}

inline std::vector<float> run_unary(Expr (*f)(Expr), const std::vector<float>& x) {
    return run_program<float>([&](std::vector<Expr> a) { return f(a[0]); }, DType::f32,
                              {DType::f32}, x);
}

inline std::vector<float> run_binary(Expr (*f)(Expr, Expr), const std::vector<float>& x,
                                     const std::vector<float>& y) {
    return run_program<float>([&](std::vector<Expr> a) { return f(a[0], a[1]); }, DType::f32,
                              {DType::f32, DType::f32}, x, y);
}

// One op on vectors of float32.
inline std::vector<float> run_op(const OpDef& op, const Attrs& attrs,
                                 const std::vector<std::vector<float>>& inputs) {
    const int64_t n = static_cast<int64_t>(inputs[0].size());
    const std::vector<Type> types(inputs.size(), Type{.dtype = DType::f32, .shape = Shape{n}});
    const OpCall call{op, attrs, types};
    const Type output = infer(call)[0];
    const codegen::BoundKernel bound = codegen::elementwise_kernel(call, output);
    std::vector<void*> pointers;
    for (const auto& input : inputs) pointers.push_back(const_cast<float*>(input.data()));
    std::vector<float> result(static_cast<size_t>(n));
    void* outputs[] = {result.data()};
    prepare_vm(bound.kernel, bound.launch)
        ->enqueue(runtime::inline_stream(), pointers.data(), outputs, nullptr);
    return result;
}

}  // namespace megjit::cpu::testing
