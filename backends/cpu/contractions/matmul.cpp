// backends/cpu/contractions/matmul.cpp -- matrix products without oneDNN, and products.h.
#include "runtime/ops/matmul.h"
#include "backends/cpu/convert.h"
#include "backends/cpu/epilogue.h"
#include "backends/cpu/kernels/integer_product.h"
#include "backends/cpu/kernels/matrix_product.h"
#include "backends/cpu/products.h"

namespace megjit::cpu {
namespace {

using runtime::DType;
using runtime::MatmulProblem;
using runtime::OpCall;
using runtime::Type;

Prepared prepare_matmul(const OpCall& call, std::span<const Type> outputs) {
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    if (outputs[0].numel() == 0 || p.k == 0) return make_zeros(outputs);
    if (!is_floating(call.inputs[0].dtype))
        return prepare_integer_product(p, call.inputs[0].dtype, outputs[0].dtype);
    if (Prepared converted = in_float32(call, outputs, prepare_matmul)) return converted;
    return prepare_matrix_products(p, call.inputs[0].dtype);
}

Prepared prepare_matmul_epilogue(const OpCall& call, std::span<const Type> outputs) {
    if (Prepared converted = in_float32(call, outputs, prepare_matmul_epilogue)) return converted;
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    return steps_after(prepare_matmul(call, outputs), p.steps,
                       {p.n ? outputs[0].numel() / p.n : 0, p.n, 1, p.n});
}

}  // namespace

Prepared prepare_product(const OpCall&, const Matrix& x, const Matrix& w, const Matrix& y) {
    return prepare_matrix_products({x, w, y}, DType::f32);
}

PackedFactor pack_factor(const OpCall&, const Matrix& w, int64_t) {
    const auto copy = [w](void* const* in, void* const* out, void*) {
        const auto* from = static_cast<const float*>(in[0]);
        auto* to = static_cast<float*>(out[0]);
        for (int64_t r = 0; r < w.rows; ++r)
            for (int64_t c = 0; c < w.columns; ++c)
                *to++ = from[r * w.row_step + c * w.column_step];
    };
    const auto product = [w](int64_t rows) {
        return prepare_matrix_products({dense_matrix(rows, w.rows), dense_matrix(w.rows, w.columns),
                                        dense_matrix(rows, w.columns)},
                                       DType::f32);
    };
    return {executable(copy), static_cast<size_t>(w.rows * w.columns) * sizeof(float), product};
}

bool computes_natively(DType dtype) { return dtype == DType::f32; }

void register_matmul_kernels() {
    register_kernel("matmul", prepare_matmul);
    register_kernel("matmul_epilogue", prepare_matmul_epilogue);
}

}  // namespace megjit::cpu
