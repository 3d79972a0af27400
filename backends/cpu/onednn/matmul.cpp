// backends/cpu/onednn/matmul.cpp -- matrix products: oneDNN for floating dtypes and, where it is
// exact (with VNNI), for int8; kernels/integer_product.h for other integers,
// kernels/matrix_product.h for float64. Transpositions are strides, broadcast batch axes are
// extents of 1. A call costs 0.35 us above the flops (1 x 1 x 1, two cores of a Zen 5; 128 x 64 x
// 256 runs at 410 GFLOP/s).
//
// A large b that is not transposed goes through the layout that oneDNN prefers, in the workspace;
// f32, in GFLOP/s:
//   m x n x k            as it lies   reordered       m x n x k           as it lies   reordered
//   1024 x 768 x 3072    322 - 342    417 - 425       512 x 768 x 3072    340          379
//   1024 x 3072 x 768    330 - 389    418 - 431       512 x 2304 x 768    405          386
//   1024 x 768 x 2304    381          414             128 x 2304 x 768    407          343
//   768 x 3072 x 1024    359          391             1024 x 768 x 768    469          464
// With fewer rows the reorder costs as much as it saves. A transposed b is as fast without it (441
// - 451). A large b is reordered and read some columns at a time, in a small workspace; CPU time of
// one thread:
//   m x n x k             at once   3 parts   6 parts
//   768 x 3072 x 8192     373 ms    376       358 - 373
//   768 x 2304 x 8192     277       266       270
#include "runtime/ops/matmul.h"

#include <array>
#include <map>
#include <mutex>

#include "backends/cpu/in_parts.h"
#include "backends/cpu/kernels/integer_product.h"
#include "backends/cpu/kernels/matrix_product.h"
#include "backends/cpu/onednn/dnn.h"
#include "backends/cpu/onednn/dnn_epilogue.h"
#include "backends/cpu/onednn/dnn_packed.h"
#include "backends/cpu/onednn/row_runs.h"
#include "runtime/host/isa.h"
#include "runtime/host/mutex.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu {
namespace {

using dnn::Dims;
using dnnl::memory;
using runtime::DType;
using runtime::MatmulProblem;
using runtime::OpCall;
using runtime::Type;

memory::desc matrix(const Dims& batch, int64_t rows, int64_t columns, bool transposed,
                    DType dtype) {
    Dims dims = batch, strides(batch.size() + 2);
    dims.push_back(rows), dims.push_back(columns);
    const size_t r = batch.size(), c = r + 1;
    strides[r] = transposed ? 1 : columns;
    strides[c] = transposed ? rows : 1;
    int64_t step = rows * columns;
    for (size_t axis = batch.size(); axis-- > 0;) {
        strides[axis] = step;
        step *= batch[axis];
    }
    return {dims, dnn::data_type(dtype), strides};
}

// Is b read often enough that it pays to reorder it?
bool is_b_reordered(const MatmulProblem& p, DType dtype) {
    return dtype == DType::f32 && p.batch.empty() && !p.tb && p.m >= 768 &&
           p.k * p.n >= 1024 * 1024;
}

// At most kMostCopied bytes of b are copied at once, where its columns can be divided into equal
// parts that are not too narrow. Shapes alone decide, not limits of memory: each part adds its
// terms in an order of its own, and the bits must not change.
constexpr size_t kMostCopied = size_t{16} << 20;  // in bytes
constexpr int64_t kLeastColumns = 512;

int64_t parts_of_columns(const MatmulProblem& p, const Type& right) {
    if (runtime::is_packed(right.layout) || !is_b_reordered(p, right.dtype)) return 1;
    int64_t parts = 1;
    for (int64_t more = 2; p.n / more >= kLeastColumns; ++more) {
        if (right.bytes() / static_cast<size_t>(parts) <= kMostCopied) break;
        if (p.n % more == 0) parts = more;
    }
    return parts;
}

memory::desc right_matrix(const MatmulProblem& p, DType dtype) {
    return matrix(p.b_batch, p.k, p.n, p.tb, dtype);
}

// The three operands as oneDNN sees them; of b and c one part of the columns, where these are
// divided.
struct Matrices {
    Matrices(const MatmulProblem& p, const Type& right, DType result, int64_t parts = 1)
        : b_is_free(runtime::is_packed(right.layout) || is_b_reordered(p, right.dtype)),
          a(matrix(p.a_batch, p.m, p.k, p.ta, right.dtype)),
          b(dnn::desc_of_weights(right, right_matrix(p, right.dtype))),
          c(matrix(p.batch, p.m, p.n, false, result)) {
        if (parts == 1) return;
        for (memory::desc* each : {&b, &c})
            *each = {{each->get_dims()[0], p.n / parts}, each->get_data_type(), Dims{p.n, 1}};
    }
    dnnl::primitive_desc_base create(const dnnl::primitive_attr& attr) const {
        const memory::desc any(b.get_dims(), b.get_data_type(), memory::format_tag::any);
        return dnnl::matmul::primitive_desc(dnn::engine(), a, b_is_free ? any : b, c, attr);
    }
    std::vector<dnn::Operand> operands() const {
        return {{DNNL_ARG_SRC, false, 0, a},
                {DNNL_ARG_WEIGHTS, false, 1, b},
                {DNNL_ARG_DST, true, 0, c}};
    }
    bool b_is_free = false;  // oneDNN chooses its layout
    memory::desc a, b, c;
};

// Runs a product and its epilogue by parts of the columns. All operands but a have columns.
Prepared by_columns(Prepared part, const OpCall& call, const MatmulProblem& p, int64_t parts) {
    if (parts == 1) return part;
    const size_t step = static_cast<size_t>(p.n / parts) * sizeof(float);
    std::vector<size_t> steps(call.inputs.size(), step);
    steps[0] = 0;
    return in_parts(std::move(part), {.count = parts,
                                      .input_steps = std::move(steps),
                                      .output_step = step,
                                      .output_bytes = step});
}

Prepared prepare_matmul(const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    if (y.numel() == 0 || p.k == 0) return make_zeros(outputs);
    const DType dtype = call.inputs[0].dtype;
    if (dtype == DType::f64) return prepare_matrix_products(p, dtype);
    if (!is_floating(dtype)) {
        if (dtype != DType::i8 || !runtime::has_vnni() ||
            is_product_of_few_bytes(p, dtype, y.dtype))
            return prepare_integer_product(p, dtype, y.dtype);
    } else if (!computes_natively(dtype)) {
        return in_float32(call, outputs, prepare_matmul);
    }
    if (!dnn::is_packed_for(right_matrix(p, dtype), call.inputs[1]))
        return dnn::unpacking(call, outputs, prepare_matmul);
    if (Prepared runs = by_row_runs(call, outputs, p)) return runs;
    const int64_t parts = parts_of_columns(p, call.inputs[1]);
    const Matrices m(p, call.inputs[1], y.dtype, parts);
    return by_columns(dnn::make(call, [m] { return m.create(dnn::attributes()); }, m.operands()),
                      call, p, parts);
}

Prepared prepare_matmul_epilogue(const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    const MatmulProblem p = runtime::matmul_problem(call, outputs);
    if (y.numel() == 0) return make_zeros(outputs);
    if (y.dtype != DType::f32) return in_float32(call, outputs, prepare_matmul_epilogue);
    if (!dnn::is_packed_for(right_matrix(p, y.dtype), call.inputs[1]))
        return dnn::unpacking(call, outputs, prepare_matmul_epilogue);
    if (p.k > 0)
        if (Prepared runs = by_row_runs(call, outputs, p)) return runs;
    const int64_t parts = parts_of_columns(p, call.inputs[1]);
    const Matrices m(p, call.inputs[1], y.dtype, parts);
    const int columns = m.c.get_ndims() - 1;
    if (p.k == 0) return dnn::epilogue_after(make_zeros(outputs), p.steps, m.c, columns);
    const auto create = [m](const dnnl::primitive_attr& attr, const memory::desc&) {
        return m.create(attr);
    };
    return by_columns(dnn::make_with_epilogue(call, p.steps, create, m.operands(), m.c, columns),
                      call, p, parts);
}

// Asking oneDNN takes 20 us, which a new number of rows would pay for each product.
runtime::Layout preferred_layout(const MatmulProblem& p, const Type& w) {
    using Key = std::array<int64_t, 5>;
    constexpr size_t kMostKnown = 4096;
    static auto* const lock = new runtime::Mutex("the layouts of factors");
    static auto* const known = new std::map<Key, runtime::Layout>;
    const Key key{p.m, p.n, p.k, p.tb, runtime::thread_count()};
    {
        const std::lock_guard held(*lock);
        if (const auto found = known->find(key); found != known->end()) return found->second;
    }
    Matrices m(p, {w.dtype, w.shape}, w.dtype);
    m.b_is_free = true;
    const runtime::Layout layout = dnn::packed_layout(
        dnn::preferred([&] { return m.create(dnn::attributes()); }, DNNL_ARG_WEIGHTS),
        right_matrix(p, w.dtype));
    const std::lock_guard held(*lock);
    if (known->size() == kMostKnown) known->clear();
    known->emplace(key, layout);
    return layout;
}

runtime::Layout packed_matmul_weights(const OpCall& call, std::span<const Type> outputs) {
    const Type& w = call.inputs[1];
    MatmulProblem p = runtime::matmul_problem(call, outputs);
    if (w.dtype != DType::f32 || w.rank() != 2 || !p.batch.empty() || outputs[0].numel() == 0 ||
        p.k == 0)
        return runtime::Layout::row_major;
    p.m = longest_run(p, w.dtype);
    return preferred_layout(p, w);
}

// Generated kernels convert halves to float32; the CPU's own instructions for halves take half the
// time.
bool has_instructions(const OpCall& call) {
    const DType dtype = call.inputs[0].dtype;
    return dtype != DType::f32 && dtype != DType::f64 && computes_natively(dtype);
}

}  // namespace

void register_matmul_kernels() {
    register_kernel("matmul", prepare_matmul, has_instructions);
    register_kernel("matmul_epilogue", prepare_matmul_epilogue);
    for (const char* op : {"matmul", "matmul_epilogue"})
        register_packing(op, packed_matmul_weights);
}

}  // namespace megjit::cpu
