// runtime/ops/matmul.cpp -- matrix product over the last two axes; leading axes broadcast.
// Rules: M1 both operands have at least two axes    M2 inner extents are equal
//        M3 leading axes are equal or 1              M4 one dtype, not complex, not bool
//        M5 matmul_sums takes matrices of floating-point numbers
#include "runtime/ops/matmul.h"

#include <algorithm>

#include "runtime/ops/builders.h"
#include "runtime/ops/epilogue.h"
#include "runtime/ops/known.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using build::op;
using build::product;

std::vector<Type> infer_matmul(const OpCall& call) {
    const Type &a = call.inputs[0], &b = call.inputs[1];
    if (a.dtype != b.dtype)
        refuse(call, "both operands have one dtype", "cast one of them", ErrorKind::type);
    if (info(a.dtype).category == Category::complex || info(a.dtype).category == Category::boolean)
        refuse(call, cat("the dtype cannot be ", info(a.dtype).name), "cast to float32 or int32",
               ErrorKind::type);
    if (a.rank() < 2 || b.rank() < 2)
        refuse(call, "both operands need at least two axes",
               "reshape a vector to a matrix of one row or column");
    const bool ta = call.flag("transpose_a"), tb = call.flag("transpose_b");
    const int ra = a.rank(), rb = b.rank();
    const int64_t m = a.shape[ra - (ta ? 1 : 2)], k = a.shape[ra - (ta ? 2 : 1)];
    const int64_t rows = b.shape[rb - (tb ? 1 : 2)], n = b.shape[rb - (tb ? 2 : 1)];
    if (k != rows)
        refuse(call,
               cat("a has ", k, " columns but b has ", rows, " rows",
                   ta || tb ? " (after transposition)" : ""),
               "transpose one operand, or change in_features of the layer that made b");
    const auto batch =
        broadcast(Shape(a.shape.extents().first(ra - 2)), Shape(b.shape.extents().first(rb - 2)));
    if (!batch)
        refuse(call, "the leading axes are neither equal nor 1",
               "reshape or expand_dims one operand");
    Shape shape = *batch;
    shape.push_back(m);
    shape.push_back(n);
    return {{a.dtype == DType::i8 ? DType::i32 : a.dtype, shape}};
}

// [batch..., r, c] -> [batch * r, c]
TensorRef as_matrix(const TensorRef& x) {
    const Shape& shape = x->shape();
    const int64_t columns = shape[shape.rank() - 1];
    int64_t rows = 1;
    for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
    return build::reshape(x, {rows, columns});
}

Grads grad_matmul(const GradCall& g) {
    const TensorRef &a = g.inputs[0], &b = g.inputs[1], &dy = g.out_grads[0];
    const bool ta = g.call.flag("transpose_a"), tb = g.call.flag("transpose_b");
    Grads grads(2);
    if (g.needs[0])
        grads[0] = build::reduce_to(ta ? product(b, dy, tb, true) : product(dy, b, false, !tb),
                                    a->shape());
    if (!g.needs[1]) return grads;
    // One matrix serves the whole batch: its gradient is one product over batch * rows instead of a
    // sum of products.
    const bool shared = b->shape().rank() == 2 && a->shape().rank() > 2 && !ta;
    const TensorRef x = shared ? as_matrix(a) : a, d = shared ? as_matrix(dy) : dy;
    grads[1] =
        build::reduce_to(tb ? product(d, x, true, ta) : product(x, d, !ta, false), b->shape());
    return grads;
}

std::vector<Type> infer_matmul_epilogue(const OpCall& call) {
    std::vector<Type> types = infer_matmul(call);
    check_epilogue(call, types[0]);
    return types;
}

Grads grad_matmul_epilogue(const GradCall& g) { return grad_of_epilogue(g, ops::matmul()); }
Tensors expand_matmul_epilogue(const OpCall& call, std::span<const TensorRef> inputs) {
    return expand_epilogue(call, inputs, ops::matmul());
}

// Checks rule M5.
std::vector<Type> infer_matmul_sums(const OpCall& call) {
    std::vector<Type> types = infer_matmul(call);
    const int64_t of = call.integer("of");
    if (of != 0 && of != 1)
        refuse(call, cat("of is 0 or 1, not ", of), "name the factor whose rows are added up");
    const Type& factor = call.inputs[static_cast<size_t>(of)];
    if (call.inputs[0].rank() != 2 || call.inputs[1].rank() != 2 || !is_floating(factor.dtype))
        refuse(call, "both operands are matrices of floating-point numbers",
               "use matmul and reduce_sum");
    types.push_back({factor.dtype, {types[0].shape[of == 0 ? 0 : 1]}});
    return types;
}

Tensors expand_matmul_sums(const OpCall& call, std::span<const TensorRef> inputs) {
    const int64_t of = call.integer("of");
    const bool is_turned = call.flag(of == 0 ? "transpose_a" : "transpose_b");
    const int64_t axis = (of == 0) == is_turned ? 0 : 1;
    return {product(inputs[0], inputs[1], call.flag("transpose_a"), call.flag("transpose_b")),
            build::reduce_sum(inputs[static_cast<size_t>(of)], {axis}, false)};
}

Cost matmul_cost(const OpCall& call, std::span<const Type> outputs) {
    const Type& a = call.inputs[0];
    const auto k = static_cast<double>(a.shape[a.rank() - (call.flag("transpose_a") ? 2 : 1)]);
    return {2 * k * static_cast<double>(outputs[0].numel()), bytes_of(call, outputs), true};
}

std::optional<Contraction> matmul_contraction(const OpCall& call) {
    const Shape y = infer_matmul(call)[0].shape;
    const int rank = y.rank();
    if (rank + 1 > kMaxRank) return {};
    Contraction made{.space = y};
    const Shape& a = call.inputs[0].shape;
    made.space.push_back(a[a.rank() - (call.flag("transpose_a") ? 2 : 1)]);
    for (const size_t i : {0, 1}) {
        const Shape& own = call.inputs[i].shape;
        const bool turned = call.flag(i ? "transpose_b" : "transpose_a");
        const auto rows = own.row_major_strides();
        std::vector<int64_t>& strides = made.strides[i];
        for (int axis = 0; axis < rank - 2; ++axis) {
            const int mine = axis - (rank - own.rank());
            strides.push_back(mine < 0 || own[mine] == 1 ? 0 : rows[static_cast<size_t>(mine)]);
        }
        const auto last = static_cast<size_t>(own.rank()) - 1;
        const int64_t first = turned ? rows[last] : rows[last - 1],  // turned: [k, m]
            second = turned ? rows[last - 1] : rows[last];
        const std::vector<int64_t> mnk = i == 0 ? std::vector<int64_t>{first, 0, second}
                                                : std::vector<int64_t>{0, second, first};
        strides.insert(strides.end(), mnk.begin(), mnk.end());
    }
    return made;
}

const AttrSpec kTransposeA = {"transpose_a", AttrKind::integer, Attr{int64_t{0}}},
               kTransposeB = {"transpose_b", AttrKind::integer, Attr{int64_t{0}}};

}  // namespace

MatmulProblem matmul_problem(const OpCall& call, std::span<const Type> outputs) {
    const Type &a = call.inputs[0], &b = call.inputs[1], &y = outputs[0];
    MatmulProblem p{.ta = call.flag("transpose_a"), .tb = call.flag("transpose_b")};
    if (has_attr(call, "epilogue")) p.steps = epilogue_of(call);
    const int rank = y.rank();
    p.m = y.shape[rank - 2];
    p.n = y.shape[rank - 1];
    p.k = a.shape[a.rank() - (p.ta ? 2 : 1)];
    const auto extent = [&](const Type& of, int axis) {
        const int mine = axis - (rank - of.rank());
        return mine < 0 ? 1 : of.shape[mine];
    };
    for (int axis = 0; axis < rank - 2; ++axis) {
        const int64_t e = y.shape[axis], ea = extent(a, axis), eb = extent(b, axis);
        if (e == 1) continue;
        if (!p.batch.empty() && (ea == e) == (p.a_batch.back() == p.batch.back()) &&
            (eb == e) == (p.b_batch.back() == p.batch.back())) {
            p.batch.back() *= e, p.a_batch.back() *= ea, p.b_batch.back() *= eb;
            continue;
        }
        p.batch.push_back(e), p.a_batch.push_back(ea), p.b_batch.push_back(eb);
    }
    if (p.batch.size() == 1 && p.b_batch[0] == 1 && !p.ta) {
        p.m *= p.batch[0];
        p.batch.clear(), p.a_batch.clear(), p.b_batch.clear();
    }
    return p;
}

const OpDef& matmul_sums() {
    static const OpDef& op = find_op("matmul_sums");
    return op;
}

bool have_aligned_rows(std::span<const Type> matrices) {
    return std::ranges::all_of(matrices, [](const Type& type) {
        return static_cast<size_t>(type.shape[type.rank() - 1]) * size_of(type.dtype) % 16 == 0;
    });
}

std::vector<OpDef> matmul_ops() {
    const OperandSpec b{"b", OperandKind::weights};
    return {
        {.name = "matmul",
         .dumped_as = "MatrixMul",
         .doc =
             "Matrix product over the last two axes; leading axes broadcast. float64 accumulates in float64, other floating "
             "dtypes in float32; products of int8 are int32, other integers wrap in their own dtype.",
         .inputs = {"a", b},
         .attrs = {kTransposeA, kTransposeB},
         .promotion = Promotion::arithmetic,
         .takes_64_bits = true,
         .infer = infer_matmul,
         .grad = grad_matmul,
         .keeps = Keeps::inputs,
         .contraction = matmul_contraction,
         .epilogue = EpilogueSpec{ops::matmul_epilogue, -1, true},
         .cost = matmul_cost},
        {.name = "matmul_epilogue",
         .doc = "matmul, then the steps of `epilogue` (bias, add, relu) on its result.",
         .inputs = {"a", b, "operands"},
         .variadic = true,
         .attrs = {kTransposeA, kTransposeB, {"epilogue", AttrKind::text}},
         .infer = infer_matmul_epilogue,
         .grad = grad_matmul_epilogue,
         .expand = expand_matmul_epilogue,
         .epilogue = EpilogueSpec{ops::matmul_epilogue, -1, true},
         .cost = matmul_cost},
        {.name = "matmul_sums",
         .doc =
             "matmul of two matrices, and the sums of operand `of` over the axis that the product sums over: "
             "the gradients of a layer's weights and bias.",
         .inputs = {"a", "b"},
         .attrs = {kTransposeA, kTransposeB, {"of", AttrKind::integer}},
         .infer = infer_matmul_sums,
         .has_gpu_product = true,
         .expand = expand_matmul_sums,
         .cost = matmul_cost}};
}

}  // namespace megjit::runtime
