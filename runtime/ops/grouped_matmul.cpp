// runtime/ops/grouped_matmul.cpp -- products of groups that data divides, as experts take words.
// Rules: G1 a is a matrix, b a matrix or one for each group    G2 ends are int32, one for each
// group
//        G3 inner extents are equal                             G4 one floating dtype
#include "runtime/ops/grouped_matmul.h"

#include "runtime/ops/builders.h"
#include "runtime/ops/linalg.h"

namespace megjit::runtime {
namespace {

std::vector<Type> infer_grouped_matmul(const OpCall& call) {
    const Type &a = call.inputs[0], &b = call.inputs[1], &ends = call.inputs[2];
    if (a.dtype != b.dtype || !is_floating(a.dtype))
        refuse(call, "both operands have one floating dtype", "cast them", ErrorKind::type);
    if (a.rank() != 2 || (b.rank() != 2 && b.rank() != 3))
        refuse(call, "a is a matrix, and b a matrix or one for each group",
               "use matmul for batches of equal extents");
    if (ends.dtype != DType::i32 || ends.rank() != 1)
        refuse(call, cat("ends are int32[groups], not ", to_string(ends)),
               "give the place behind each group");
    if (b.rank() == 3 && b.shape[0] != ends.shape[0])
        refuse(call, cat("b has ", b.shape[0], " matrices for ", ends.shape[0], " groups"),
               "give one matrix for each group");
    const GroupedProblem p = grouped_problem(call);
    const int64_t rows = b.shape[b.rank() - (p.tb ? 1 : 2)];
    if (rows != p.k)
        refuse(call, cat("a has ", p.k, " columns but b has ", rows, " rows"),
               "transpose one operand");
    if (p.has_group_terms) return {{a.dtype, {p.groups, p.m, p.n}}};
    return {{a.dtype, {p.m, p.n}}};
}

TensorRef product(const TensorRef& a, const TensorRef& b, const TensorRef& ends, bool ta, bool tb) {
    return build::op("grouped_matmul", {a, b, ends}, {int64_t{ta}, int64_t{tb}});
}

// The gradient of groups of rows has groups of terms, and the other way round.
Grads grad_grouped_matmul(const GradCall& g) {
    const GroupedProblem p = grouped_problem(g.call);
    const TensorRef &a = g.inputs[0], &b = g.inputs[1], &ends = g.inputs[2], &dy = g.out_grads[0];
    const auto turned = [](const TensorRef& x, bool turns) { return turns ? transposed(x) : x; };
    Grads grads(3);
    if (p.has_group_terms) {
        // the columns of a and the rows of b are what is divided
        if (g.needs[0]) grads[0] = turned(product(b, dy, ends, p.tb, true), !p.ta);
        if (g.needs[1]) grads[1] = turned(product(a, dy, ends, !p.ta, false), p.tb);
        return grads;
    }
    if (g.needs[0]) grads[0] = turned(product(dy, b, ends, false, !p.tb), p.ta);
    if (g.needs[1])
        grads[1] = p.tb ? product(dy, a, ends, true, p.ta) : product(a, dy, ends, !p.ta, false);
    return grads;
}

Cost cost_grouped_matmul(const OpCall& call, std::span<const Type> outputs) {
    const GroupedProblem p = grouped_problem(call);
    return {2 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k), bytes_of(call, outputs),
            true};
}

}  // namespace

GroupedProblem grouped_problem(const OpCall& call) {
    const Shape &a = call.inputs[0].shape, &b = call.inputs[1].shape;
    GroupedProblem p{.groups = call.inputs[2].shape[0],
                     .has_group_terms = b.rank() == 2,
                     .ta = call.flag("transpose_a"),
                     .tb = call.flag("transpose_b")};
    p.m = a[p.ta ? 1 : 0];
    p.k = a[p.ta ? 0 : 1];
    p.n = b[b.rank() - (p.tb ? 2 : 1)];
    return p;
}

void refuse_ends(int64_t group, int64_t end, int64_t extent) {
    user_error({.what = cat("grouped_matmul: group ", group, " ends at ", end, " of ", extent),
                .why = "ends must not fall, nor go beyond what they divide",
                .fix = "give the cumulative sums of the groups' sizes"},
               ErrorKind::index);
}

OpDef grouped_matmul() {
    return {
        .name = "grouped_matmul",
        .doc =
            "Products of groups, whose ends data gives: group i goes from ends[i - 1] (0 for the first) to ends[i]. With b [groups, k, n] the rows of each group of a [m, k] are multiplied by the group's matrix, and rows behind the last end are 0: [m, n]. With b [k, n] each group of the k terms has a product of its own: [groups, m, n].",
        .inputs = {"a", {"b", OperandKind::weights}, "ends"},
        .attrs = {{"transpose_a", AttrKind::integer, Attr{int64_t{0}}},
                  {"transpose_b", AttrKind::integer, Attr{int64_t{0}}}},
        .takes_64_bits = true,
        .infer = infer_grouped_matmul,
        .grad = grad_grouped_matmul,
        .keeps = Keeps::inputs,
        .checks_values = true,
        .cost = cost_grouped_matmul};
}

}  // namespace megjit::runtime
