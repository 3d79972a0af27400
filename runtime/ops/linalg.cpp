// runtime/ops/linalg.cpp -- inverse and singular values of (stacks of) matrices.
// Rules: matinv V1 rank at least 2 and square     svd V2 rank at least 2; V3 a floating dtype
#include "runtime/ops/linalg.h"

#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {

Shape with_last(const Shape& shape, int64_t rows, int64_t columns) {
    Shape result = shape;
    result[shape.rank() - 2] = rows;
    result[shape.rank() - 1] = columns;
    return result;
}

TensorRef transposed(const TensorRef& x) {
    build::Axes perm;
    for (int i = 0; i < x->shape().rank(); ++i) perm.push_back(i);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return build::transpose(x, perm);
}

namespace {

void check_matrix(const OpCall& call) {
    const Type& x = call.inputs[0];
    if (x.rank() < 2) refuse(call, "a matrix has two axes", "reshape to at least two axes");
    if (x.dtype != DType::f32)
        refuse(call, cat("the dtype is float32, not ", info(x.dtype).name), "cast to float32",
               ErrorKind::type);
}

std::vector<Type> infer_matinv(const OpCall& call) {
    check_matrix(call);
    const Type& x = call.inputs[0];
    if (x.shape[x.rank() - 1] != x.shape[x.rank() - 2])
        refuse(call, cat(x.shape[x.rank() - 2], " rows and ", x.shape[x.rank() - 1], " columns"),
               "only square matrices have an inverse");
    return {{DType::f32, x.shape}};
}

std::vector<Type> infer_svd(const OpCall& call) {
    check_matrix(call);
    const Shape& x = call.inputs[0].shape;
    const int64_t m = x[x.rank() - 2], n = x[x.rank() - 1], k = std::min(m, n);
    const bool full = call.flag("full_matrices");
    Shape s{x.extents().first(static_cast<size_t>(x.rank()) - 2)};
    s.push_back(k);
    return {{DType::f32, with_last(x, m, full ? m : k)},
            {DType::f32, s},
            {DType::f32, with_last(x, full ? n : k, n)}};
}

TensorRef identity_matrix(int64_t n, Device& device) {
    const TensorRef ones = build::full({n}, 1, DType::i32, device);
    const TensorRef labels = build::op("cumsum", {ones}, {int64_t{0}, int64_t{1}, int64_t{0}});
    return build::op("one_hot", {labels}, {n, std::string("float32")});
}
TensorRef row(const TensorRef& s) {  // [..., k] as [..., 1, k]
    Shape shape = s->shape();
    shape[shape.rank() - 1] = 1;
    shape.push_back(s->shape()[s->shape().rank() - 1]);
    return build::reshape(s, shape);
}

// Townsend 2016, "Differentiating the singular value decomposition", for distinct and positive
// singular values.
Grads grad_svd(const GradCall& g) {
    using namespace build;
    const Shape& x = g.inputs[0]->shape();
    const int64_t m = x[x.rank() - 2], n = x[x.rank() - 1], k = std::min(m, n);
    TensorRef u = g.outputs[0], vh = g.outputs[2];
    const TensorRef s = g.outputs[1], &du = g.out_grads[0], &ds = g.out_grads[1],
                    &dvh = g.out_grads[2];
    if (g.call.flag("full_matrices") && m != n) {
        if (du || dvh)
            user_error(
                {.what =
                     "svd: no gradient through u and vh with full_matrices and a matrix that is not square",
                 .fix = "use full_matrices=False"},
                ErrorKind::runtime);
        const auto first = [](const TensorRef& of, const Shape& shape) {
            Axes end(shape.begin(), shape.end());
            return op("slice", {of}, {Axes(end.size(), 0), end, Axes(end.size(), 1)});
        };
        u = first(u, with_last(u->shape(), m, k));
        vh = first(vh, with_last(vh->shape(), k, n));
    }
    const TensorRef eye = identity_matrix(k, s->device());
    TensorRef middle;  // dx = u middle vh + the part outside of u and v
    const auto accumulate = [](TensorRef& to, const TensorRef& more) {
        to = to ? build::add(to, more) : more;
    };
    if (ds) accumulate(middle, mul(eye, row(ds)));
    const TensorRef across = row(s), down = transposed(across);
    const TensorRef gap = sub(op("square", {across}), op("square", {down}));
    const TensorRef f =
        div(sub(number(1, eye), eye), add(gap, eye));  // 1 / (s_j^2 - s_i^2), 0 on the diagonal
    TensorRef outside;
    if (du) {
        const TensorRef inner = product(u, du, true), j = mul(f, inner);
        accumulate(middle, mul(add(j, transposed(j)), across));
        if (m > k) accumulate(outside, product(div(sub(du, product(u, inner)), across), vh));
    }
    if (dvh) {
        const TensorRef inner = product(vh, dvh, false, true), j = mul(f, inner);
        accumulate(middle, mul(down, add(j, transposed(j))));
        if (n > k)
            accumulate(outside, product(u, div(sub(dvh, product(transposed(inner), vh)), down)));
    }
    if (!middle) return Grads(1);
    TensorRef dx = product(product(u, middle), vh);
    if (outside) dx = add(dx, outside);
    return {dx};
}

Cost cost_cubic(const OpCall& call, std::span<const Type> outputs) {
    const Shape& x = call.inputs[0].shape;
    return {20.0 * static_cast<double>(x.numel()) *
                static_cast<double>(std::min(x[x.rank() - 1], x[x.rank() - 2])),
            bytes_of(call, outputs)};
}

}  // namespace

void refuse_singular(std::string_view op, int64_t matrix, int64_t count) {
    user_error({.what = cat(op, ": matrix ", matrix, " of ", count, " is singular"),
                .why = "a pivot is 0",
                .fix = "add a small multiple of the identity"},
               ErrorKind::runtime);
}

std::vector<OpDef> linalg_ops() {
    return {
        {.name = "matinv",
         .dumped_as = "MatrixInverse",
         .doc = "Inverse of each matrix. A singular matrix is an error when the op runs.",
         .inputs = {"x"},
         .promotion = Promotion::floating,
         .infer = infer_matinv,
         .grad = [](const GradCall& g) -> Grads {  // dx = -y^T dy y^T
        const TensorRef& y = g.outputs[0];
        return {
            build::neg(build::product(build::product(y, g.out_grads[0], true), y, false, true))};
    },
         .keeps = Keeps::outputs,
         .checks_values = true,
         .cost = cost_cubic},
        {.name = "svd",
         .dumped_as = "SVD",
         .doc = "u, s, vh with x = u diag(s) vh, s falling; full_matrices makes u and vh square.",
         .inputs = {"x"},
         .attrs = {{"full_matrices", AttrKind::integer, Attr{int64_t{0}}}},
         .promotion = Promotion::floating,
         .infer = infer_svd,
         .grad = grad_svd,
         .keeps = Keeps::outputs,
         .checks_values = true,
         .cost = cost_cubic},
    };
}

}  // namespace megjit::runtime
