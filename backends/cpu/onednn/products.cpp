#include "backends/cpu/products.h"

#include "backends/cpu/onednn/dnn.h"

namespace megjit::cpu {
namespace {

using dnnl::memory;
using runtime::DType;
using runtime::OpCall;

memory::desc desc_of(const Matrix& m) {
    return {{m.rows, m.columns}, memory::data_type::f32, dnn::Dims{m.row_step, m.column_step}};
}

dnn::Create create(const memory::desc& x, const memory::desc& w, const memory::desc& y) {
    return [=]() -> dnnl::primitive_desc_base {
        return dnnl::matmul::primitive_desc(dnn::engine(), x, w, y, dnn::attributes());
    };
}

Prepared make(const OpCall& call, const memory::desc& x, const memory::desc& w,
              const memory::desc& y) {
    return dnn::make(
        call, create(x, w, y),
        {{DNNL_ARG_SRC, false, 0, x}, {DNNL_ARG_WEIGHTS, false, 1, w}, {DNNL_ARG_DST, true, 0, y}});
}

}  // namespace

Prepared prepare_product(const OpCall& call, const Matrix& x, const Matrix& w, const Matrix& y) {
    return make(call, desc_of(x), desc_of(w), desc_of(y));
}

PackedFactor pack_factor(const OpCall& call, const Matrix& w, int64_t rows) {
    const memory::desc any({w.rows, w.columns}, memory::data_type::f32, memory::format_tag::any);
    const auto operands = [w](int64_t rows) {
        return std::pair(desc_of(dense_matrix(rows, w.rows)),
                         desc_of(dense_matrix(rows, w.columns)));
    };
    const auto& [x, y] = operands(rows);
    const memory::desc dense = desc_of(w),
                       packed = dnn::preferred(create(x, any, y), DNNL_ARG_WEIGHTS);
    Prepared pack = dnn::make(call, [=] {
        return dnnl::reorder::primitive_desc(dnn::engine(), dense, dnn::engine(), packed,
                                             dnn::attributes());
    }, {{DNNL_ARG_FROM, false, 0, dense}, {DNNL_ARG_TO, true, 0, packed}});
    const auto product = [=](int64_t rows) {
        const auto& [x, y] = operands(rows);
        return make(call, x, packed, y);
    };
    return {std::move(pack), packed.get_size(), product};
}

bool computes_natively(DType dtype) {
    static const auto isa =
        static_cast<unsigned>((dnn::engine(), dnnl::get_effective_cpu_isa()));  // after bound_isa()
    const auto has = [](dnnl::cpu_isa wanted) {
        return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
    };
    if (dtype == DType::bf16) return has(dnnl::cpu_isa::avx512_core_bf16);
    if (dtype == DType::f16) return has(dnnl::cpu_isa::avx512_core_fp16);
    return dtype == DType::f32;
}

}  // namespace megjit::cpu
