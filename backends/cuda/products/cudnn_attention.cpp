// Attention in the form that cuDNN's engines recognise, in which scores never leave the kernel.
#include <algorithm>
#include <limits>

#include "backends/cuda/products/cudnn_parts.h"
#include "runtime/ops/attention.h"

namespace megjit::cuda::cudnn {
namespace {

using runtime::HeadsPart;
using runtime::OpCall;
using runtime::Type;
using Mode = PointwiseMode;

constexpr size_t kRank = 4;  // [n, heads, length, width]

// In a part that is no whole tensor, an axis of extent 1 gets the stride of an outermost axis.
Dims strides_of(const HeadsPart& part) {
    if (part.view == runtime::dense_view(part.extents))
        return row_major({part.extents.begin(), part.extents.end()});
    Dims strides(part.view.strides.begin(), part.view.strides.end());
    strides.push_back(1);
    int64_t whole = 1;
    for (size_t axis = 0; axis < kRank; ++axis)
        whole = std::max(whole, strides[axis] * part.extents[axis]);
    for (int64_t& stride : strides)
        if (stride == 0) stride = whole;
    return strides;
}

class AttentionGraph {
public:
    explicit AttentionGraph(const OpCall& call)
        : parts(runtime::attention_parts(call)),
          type_(data_type(call.inputs[0])),
          is_causal_(call.flag("causal")),
          rows_(parts.q.extents.begin(), parts.q.extents.end()),
          scores_(rows_) {
        rows_[3] = 1;
        scores_[3] = parts.k.extents[2];
        q = operand(parts.q, Place::input);
        k = transposed(parts.k);
        scale = graph.number(static_cast<float>(call.real("scale")), kRank);
    }

    int operand(const HeadsPart& part, Place place) {
        const Dims dims(part.extents.begin(), part.extents.end());
        const int made = put(graph.inside(type_, dims), place, part.tensor);
        spec(made).strides = strides_of(part);
        spec(made).offset = static_cast<size_t>(part.view.offset) * spec(made).bytes() /
                            static_cast<size_t>(count_of(dims));
        if (spec(made).offset % size_t{kAlignment} != 0)
            throw NoGraph{runtime::cat("cuDNN takes no part of a tensor that begins ",
                                       spec(made).offset, " bytes behind its first element")};
        return made;
    }
    // Adds an input whose last two axes are exchanged.
    int transposed(const HeadsPart& part) {
        const int made = operand(part, Place::input);
        exchange(spec(made));
        return made;
    }
    // Adds a tensor of one float32 for each query.
    int row_operand(Place place, int index) { return put(row(), place, index); }

    // Adds a float32 tensor with the extents of `tensor`.
    int like(int tensor) { return graph.inside(DataType::f32, Dims(spec(tensor).dims)); }

    int full(DataType type = DataType::f32) { return graph.inside(type, scores_); }
    int row() { return graph.inside(DataType::f32, rows_); }
    int apply(PointwiseMode mode, std::vector<int> inputs, int to) {
        graph.pointwise(mode, std::move(inputs), to);
        return to;
    }
    int matmul(int a, int b, int to) {
        graph.matmul(a, b, to);
        return to;
    }
    int reduce(ReduceMode mode, int x, int to) {
        graph.reduce(mode, x, to);
        return to;
    }

    int scaled_scores() { return apply(Mode::mul, {matmul(q, k, full()), scale}, full()); }
    int masked(int x) {
        if (!is_causal_) return x;
        const int query = full(DataType::i32), key = full(DataType::i32);
        graph.pointwise(Mode::coordinate, {x}, query, 2);
        graph.pointwise(Mode::coordinate, {x}, key, 3);
        const int hidden = graph.number(-std::numeric_limits<float>::infinity(), kRank);
        return apply(Mode::select,
                     {x, hidden, apply(Mode::greater_equal, {query, key}, full(DataType::b1))},
                     full());
    }
    // Adds a tensor of the operands' type, with the last two axes of x exchanged.
    int turned(int x) {
        TensorSpec tensor = spec(x);
        exchange(tensor);
        tensor.type = type_;
        tensor.place = Place::inside;
        const int made = graph.add(tensor);
        graph.reshape(x, made);
        return made;
    }

    DataType type() const { return type_; }

    const runtime::AttentionParts parts;
    Graph graph;
    int q = 0, k = 0, scale = 0;  // k is transposed

private:
    TensorSpec& spec(int tensor) { return graph.tensors[static_cast<size_t>(tensor)]; }
    int put(int tensor, Place place, int index) {
        spec(tensor).place = place;
        spec(tensor).index = index;
        return tensor;
    }
    static void exchange(TensorSpec& tensor) {  // exchanges the last two axes
        std::swap(tensor.dims[2], tensor.dims[3]);
        std::swap(tensor.strides[2], tensor.strides[3]);
    }

    DataType type_;
    bool is_causal_;
    Dims rows_, scores_;
};

void check_form(const OpCall& call) {
    const runtime::AttentionProblem p = runtime::attention_problem(call);
    if (p.masks > 0 || p.seen >= 0 || p.random_key >= 0 || p.heads != p.key_heads)
        throw NoGraph{
            "cuDNN's attention is asked for without mask and dropout, with as many heads "
            "of keys as of queries"};
    for (const Type& type : call.inputs)
        if (type.layout != runtime::Layout::row_major)
            throw NoGraph{
                runtime::cat("cuDNN's attention is asked for row-major tensors only, not for ",
                             to_string(type))};
}

}  // namespace

Problems attention_problems(const OpCall& call, Outputs) {
    check_form(call);
    AttentionGraph a(call);
    const int v = a.operand(a.parts.v, Place::input);
    const int s = a.masked(a.scaled_scores());
    const int top = a.reduce(ReduceMode::max, s, a.row());
    const int e = a.apply(Mode::exp, {a.apply(Mode::sub, {s, top}, a.full())}, a.full());
    const int total = a.reduce(ReduceMode::sum, e, a.row());
    a.apply(Mode::add, {top, a.apply(Mode::log, {total}, a.row())},
            a.row_operand(Place::output, 1));
    a.matmul(a.apply(Mode::div, {e, total}, a.full(a.type())), v,
             a.operand(a.parts.y, Place::output));
    return {{{a.graph}, {}}};
}

Problems attention_grad_problems(const OpCall& call, Outputs) {
    check_form(call);
    AttentionGraph a(call);
    const int v = a.transposed(a.parts.v), y = a.operand(a.parts.y, Place::input),
              lse = a.row_operand(Place::input, 4), dy = a.operand(a.parts.dy, Place::input);
    const int each = a.like(y);
    const int sum = a.reduce(ReduceMode::sum, a.apply(Mode::mul, {dy, y}, each), a.row());
    // Multiplies by a factor, as dropout does, and keeps dq in float32: otherwise no engine keeps
    // the scores inside its kernel.
    const int dot = a.apply(Mode::mul, {sum, a.graph.number(1, kRank)}, a.row());
    const int p = a.apply(
        Mode::exp, {a.masked(a.apply(Mode::sub, {a.scaled_scores(), lse}, a.full()))}, a.full());
    a.matmul(a.turned(p), dy, a.operand(a.parts.dv, Place::output));
    const int dp = a.apply(Mode::sub, {a.matmul(dy, v, a.full()), dot}, a.full());
    const int ds =
        a.apply(Mode::mul, {a.apply(Mode::mul, {dp, p}, a.full()), a.scale}, a.full(a.type()));
    a.matmul(a.turned(ds), a.q, a.operand(a.parts.dk, Place::output));
    const int dq = a.operand(a.parts.dq, Place::output);
    a.apply(Mode::identity, {a.matmul(ds, a.turned(a.k), a.like(dq))}, dq);
    return {{{a.graph}, {}}};
}

}  // namespace megjit::cuda::cudnn
