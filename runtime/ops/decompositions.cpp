// runtime/ops/decompositions.cpp -- Cholesky, QR, eigenvalues, systems of equations and
// determinants of (stacks of) matrices.
// Rules: D1 rank at least 2   D2 float32   D3 square (all but qr)
//   solve, solve_triangular D4 b has the rows of a, and the same axes before them
#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"
#include "runtime/ops/linalg.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

const Type& check_matrices(const OpCall& call) {
    for (const Type& x : call.inputs) {
        if (x.rank() < 2) refuse(call, "a matrix has two axes", "reshape to at least two axes");
        if (x.dtype != DType::f32)
            refuse(call, cat("the dtype is float32, not ", info(x.dtype).name), "cast to float32",
                   ErrorKind::type);
    }
    return call.inputs[0];
}

int64_t rows_of(const Shape& shape) { return shape[shape.rank() - 2]; }
int64_t columns_of(const Shape& shape) { return shape[shape.rank() - 1]; }

const Type& check_square(const OpCall& call) {
    const Type& x = check_matrices(call);
    if (rows_of(x.shape) != columns_of(x.shape))
        refuse(call, cat(rows_of(x.shape), " rows and ", columns_of(x.shape), " columns"),
               "give square matrices");
    return x;
}

Shape without_last(const Shape& shape, int axes) {
    return Shape{shape.extents().first(static_cast<size_t>(shape.rank() - axes))};
}

std::vector<Type> infer_cholesky(const OpCall& call) { return {check_square(call)}; }

std::vector<Type> infer_eigh(const OpCall& call) {
    const Type& x = check_square(call);
    return {{DType::f32, without_last(x.shape, 1)}, x};
}

std::vector<Type> infer_qr(const OpCall& call) {
    const Shape& x = check_matrices(call).shape;
    const int64_t m = rows_of(x), n = columns_of(x), k = call.flag("complete") ? m : std::min(m, n);
    return {{DType::f32, with_last(x, m, k)}, {DType::f32, with_last(x, k, n)}};
}

std::vector<Type> infer_slogdet(const OpCall& call) {
    const Type number{DType::f32, without_last(check_square(call).shape, 2)};
    return {number, number};
}

std::vector<Type> infer_solve(const OpCall& call) {
    const Shape &a = check_square(call).shape, &b = call.inputs[1].shape;
    if (rows_of(a) != rows_of(b) || !(without_last(a, 2) == without_last(b, 2)))
        refuse(call, "b has other rows or other axes in front than a",
               "give b as [..., n, k] for a of [..., n, n]");
    return {call.inputs[1]};
}

std::vector<Type> infer_lu(const OpCall& call) {
    const Type& x = check_square(call);
    return {x, {DType::i32, without_last(x.shape, 1)}};
}

std::vector<Type> infer_exchanged_rows(const OpCall& call) {
    const Type& pivots = call.inputs[0];
    if (pivots.dtype != DType::i32 || pivots.rank() < 1)
        refuse(call, cat("pivots are int32 with one axis at least, not ", to_string(pivots)),
               "give what lu gave");
    return {pivots};
}

// --- gradients ------------------------------------------------------------------------------

// [n, n]: `below` under the diagonal, `on` on it, and 0 above.
TensorRef triangle(int64_t n, double below, double on, Device& device) {
    const auto place = [&](int64_t axis) {
        return apply(ops::coordinates(), {build::Axes{n, n}, axis}, {}, &device)[0];
    };
    const TensorRef row = place(0), column = place(1);
    const auto chosen = [&](std::string_view test, double value) {
        return build::mul(build::cast(build::op(test, {row, column}), DType::f32), value);
    };
    return build::add(chosen("greater", below), chosen("equal", on));
}

// Murray 2016, "Differentiation of the Cholesky decomposition", equation 8; made symmetric.
Grads grad_cholesky(const GradCall& g) {
    using namespace build;
    const TensorRef& l = g.outputs[0];
    const TensorRef inverse = op("matinv", {l});
    const TensorRef inner =
        mul(product(l, g.out_grads[0], true), triangle(rows_of(l->shape()), 1, 0.5, l->device()));
    const TensorRef dx = product(product(inverse, inner, true), inverse);
    return {mul(add(dx, transposed(dx)), 0.5)};
}

// Holds for distinct eigenvalues; the gradient is made symmetric.
Grads grad_eigh(const GradCall& g) {
    using namespace build;
    const TensorRef &w = g.outputs[0], &v = g.outputs[1], &dw = g.out_grads[0],
                    &dv = g.out_grads[1];
    const int64_t n = columns_of(w->shape());
    Shape across = w->shape();  // [..., 1, n]
    across[across.rank() - 1] = 1;
    across.push_back(n);
    const TensorRef eye = triangle(n, 0, 1, w->device());
    TensorRef middle;
    if (dw) middle = mul(eye, reshape(dw, across));
    if (dv) {
        const TensorRef along = reshape(w, across);
        const TensorRef gap = sub(along, transposed(along));
        const TensorRef turn =
            mul(product(v, dv, true), div(sub(number(1, eye), eye), add(gap, eye)));
        middle = middle ? add(middle, turn) : turn;
    }
    const TensorRef dx = product(product(v, middle), v, false, true);
    return {mul(add(dx, transposed(dx)), 0.5)};
}

// Walter and Lehmann 2010, "Algorithmic differentiation of linear algebra functions with
// application in optimum experimental design", for matrices of full rank with m >= n.
Grads grad_qr(const GradCall& g) {
    using namespace build;
    const TensorRef &q = g.outputs[0], &r = g.outputs[1];
    const int64_t m = rows_of(q->shape()), n = columns_of(r->shape());
    if (m < n || (g.call.flag("complete") && m != n))
        user_error({.what = cat("qr: no gradient for ", m, " rows and ", n, " columns",
                                g.call.flag("complete") ? " with mode='complete'" : ""),
                    .fix = "give no fewer rows than columns, with mode='reduced'"},
                   ErrorKind::runtime);
    TensorRef inner;  // r dr^T - dq^T q
    if (g.out_grads[1]) inner = product(r, g.out_grads[1], false, true);
    if (g.out_grads[0]) {
        const TensorRef turn = neg(product(g.out_grads[0], q, true));
        inner = inner ? add(inner, turn) : turn;
    }
    const TensorRef lower = mul(inner, triangle(n, 1, 0.5, q->device()));
    TensorRef dx = product(q, add(lower, transposed(lower)));
    if (g.out_grads[0]) dx = add(dx, g.out_grads[0]);
    return {transposed(op("solve", {r, transposed(dx)}))};
}

Grads grad_slogdet(const GradCall& g) {
    using namespace build;
    if (!g.out_grads[1]) return Grads(1);
    const Shape& x = g.inputs[0]->shape();
    return {
        mul(reshape(g.out_grads[1], with_last(x, 1, 1)), transposed(op("matinv", {g.inputs[0]})))};
}

Grads grad_solve(const GradCall& g) {
    using namespace build;
    const TensorRef db = op("solve", {transposed(g.inputs[0]), g.out_grads[0]});
    Grads grads(2);
    grads[1] = db;
    if (g.needs[0]) grads[0] = neg(product(db, g.outputs[0], false, true));
    return grads;
}

TensorRef solve_triangular(const TensorRef& a, const TensorRef& b, bool upper, bool unit) {
    return build::op("solve_triangular", {a, b}, {int64_t{upper}, int64_t{unit}});
}

// [n, n]: 1 in the triangle that the op reads, else 0.
TensorRef read_triangle(int64_t n, bool upper, bool unit, Device& device) {
    const TensorRef lower = triangle(n, 1, unit ? 0 : 1, device);
    return upper ? transposed(lower) : lower;
}

Grads grad_solve_triangular(const GradCall& g) {
    using namespace build;
    const bool upper = g.call.flag("upper"), unit = g.call.flag("unit");
    const TensorRef db = solve_triangular(transposed(g.inputs[0]), g.out_grads[0], !upper, unit);
    Grads grads(2);
    grads[1] = db;
    if (g.needs[0])
        grads[0] = mul(neg(product(db, g.outputs[0], false, true)),
                       read_triangle(rows_of(g.outputs[0]->shape()), upper, unit, db->device()));
    return grads;
}

// From P x = L U: P dx = L^-T (tril(L^T dL, -1) + triu(dU U^T)) U^-T (Walter and Lehmann 2010). The
// rows of dx are exchanged back by the inverse of P, which is a product with a matrix of 0 and 1.
Grads grad_lu(const GradCall& g) {
    using namespace build;
    const TensorRef &lu = g.outputs[0], &dy = g.out_grads[0];
    if (!dy) return Grads(1);
    const int64_t n = rows_of(lu->shape());
    Device& device = lu->device();
    const TensorRef below = triangle(n, 1, 0, device), eye = triangle(n, 0, 1, device),
                    above = transposed(triangle(n, 1, 1, device));
    const TensorRef lower = add(mul(lu, below), eye), upper = mul(lu, above);
    const TensorRef middle = add(mul(product(lower, mul(dy, below), true), below),
                                 mul(product(mul(dy, above), upper, false, true), above));
    const TensorRef right = transposed(solve_triangular(upper, transposed(middle), true, false));
    const TensorRef rows = op("exchanged_rows", {g.outputs[1]});
    return {product(op("one_hot", {rows}, {n, std::string("float32")}),
                    solve_triangular(transposed(lower), right, true, true), true)};
}

Cost cost_decomposition(const OpCall& call, std::span<const Type> outputs) {
    const Shape& x = call.inputs[0].shape;
    return {4.0 * static_cast<double>(x.numel()) *
                static_cast<double>(std::min(rows_of(x), columns_of(x))),
            bytes_of(call, outputs)};
}

OpDef decomposition(std::string name, std::string doc, std::vector<Type> (*infer)(const OpCall&),
                    Grads (*grad)(const GradCall&), Keeps keeps) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .promotion = Promotion::floating,
            .infer = infer,
            .grad = grad,
            .keeps = keeps,
            .checks_values = true,
            .cost = cost_decomposition};
}

}  // namespace

void refuse_indefinite(int64_t matrix, int64_t count) {
    user_error(
        {.what = cat("cholesky: matrix ", matrix, " of ", count, " is not positive definite"),
         .fix = "add a small multiple of the identity"},
        ErrorKind::runtime);
}

void refuse_pivot(int32_t pivot, int64_t rows) {
    user_error({.what = cat("exchanged_rows: pivot ", pivot, " of ", rows, " rows"),
                .why = cat("valid pivots are 1 to ", rows)},
               ErrorKind::index);
}

std::vector<OpDef> decomposition_ops() {
    OpDef qr = decomposition(
        "qr",
        "q with orthonormal columns and the upper triangle r, x = q r; complete: q is square.",
        infer_qr, grad_qr, Keeps::outputs);
    qr.attrs = {{"complete", AttrKind::integer, Attr{int64_t{0}}}};
    OpDef solve =
        decomposition("solve", "The x with a x = b.", infer_solve, grad_solve, Keeps::both);
    solve.inputs = {"a", "b"};
    OpDef triangular = decomposition(
        "solve_triangular",
        "The x with a x = b, where a is a triangle: `upper` or lower, with 1 on its diagonal (unit) or what stands there. The rest of a is not read, and a 0 on the diagonal gives infinities.",
        infer_solve, grad_solve_triangular, Keeps::both);
    triangular.inputs = {"a", "b"};
    triangular.attrs = {{"upper", AttrKind::integer, Attr{int64_t{0}}},
                        {"unit", AttrKind::integer, Attr{int64_t{0}}}};
    triangular.checks_values = false;
    OpDef lu = decomposition(
        "lu",
        "The triangles l, with 1 on its diagonal, and u of p x = l u in one matrix, and int32 pivots: row i was exchanged with row pivots[i] - 1, as LAPACK tells it. A pivot of 0 stays in u.",
        infer_lu, grad_lu, Keeps::outputs);
    lu.checks_values = false;
    OpDef rows{.name = "exchanged_rows",
               .doc = "int32: the row that comes to each place by the exchanges that lu tells.",
               .inputs = {"pivots"},
               .infer = infer_exchanged_rows,
               .keeps = Keeps::nothing,
               .checks_values = true};
    return {
        decomposition(
            "cholesky",
            "The lower triangle l with x = l l^T; what is above x's diagonal is not read.",
            infer_cholesky, grad_cholesky, Keeps::outputs),
        decomposition(
            "eigh",
            "Rising eigenvalues and eigenvectors, as columns, of symmetric matrices; what is above x's diagonal is not read.",
            infer_eigh, grad_eigh, Keeps::outputs),
        qr,
        decomposition(
            "slogdet",
            "The sign of the determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix.",
            infer_slogdet, grad_slogdet, Keeps::inputs),
        solve,
        triangular,
        lu,
        rows,
    };
}

}  // namespace megjit::runtime
