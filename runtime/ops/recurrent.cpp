// runtime/ops/recurrent.cpp -- recurrent layers: all steps of one layer in one direction as one op.
// The inputs' part of the gates, x_t W_ih' + b, is one product over all steps, made beforehand:
//   p_t = gates_t + h_{t-1} W'    (W is w_hh; the first step reads the initial states)
//   rnn:   h_t = tanh(p_t), or relu(p_t)
//   lstm:  i, f, o = sigmoid and g = tanh of the quarters of p_t, in the order i, f, g, o
//          c_t = f * c_{t-1} + i * g      h_t = o * tanh(c_t)
//          rounded: the product reads h_{t-1} of all n at the nearest of 256 numbers between
//          their extrema, as dynamic quantization does
//   lstm_of_bytes: as lstm, rounded, with W = int8 times a scale for each column: the product adds
//          level * W in int32, and is converted once
//   gru:   q_t = h_{t-1} W' + b has a bias b of its own, as r scales only a part of q_t
//          r, z = sigmoid of the first two thirds of gates_t + q_t
//          n = tanh(g + r * u), where g and u are the last thirds of gates_t and q_t
//          h_t = n + z * (h_{t-1} - n)
//   gru_reset_first: r scales h_{t-1} before its product with the last third of W
//          n = tanh(g + (r * h_{t-1}) W' + b)
// Backward computes dp_t (for gru also dq_t) step by step; the gradient of W is then one product
// over all steps.
// Source: Elman 1990, "Finding Structure in Time"; Hochreiter & Schmidhuber 1997, "Long Short-Term
// Memory"; Gers et al. 2000, "Learning to Forget"; Cho et al. 2014, "Learning Phrase
// Representations using RNN Encoder-Decoder", with r after the product: Appleyard et al. 2016,
// "Optimizing Performance of Recurrent Neural Networks on GPUs".
// Rules: L1 all operands have one floating dtype    L2 gates are [steps, n, chunks * hidden] and
//        w_hh is [chunks * hidden, hidden], chunks 1, 3 or 4    L3 there is a step
//        L4 a state is [n, hidden], a bias [chunks * hidden], values of all steps [steps, n, ...]
//        L5 the nonlinearity is tanh or relu    L6 lstm_of_bytes: w_hh is int8, the rest float32
#include "runtime/ops/builders.h"
#include "runtime/ops/loop.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

using build::product;

constexpr int64_t kLstmChunks = 4, kGruChunks = 3;
constexpr size_t kLstmGradInputs = 6;  // includes dc, which is left out where only h is used

// --- types ---

struct RecurrentShape {
    Type gates, all, one;  // [steps, n, chunks * hidden], [steps, n, hidden], [n, hidden]
    Type bias;  // [chunks * hidden]
};

// Reads the sizes from operands 0 and 1: gates (or what lies like them) and w_hh.
RecurrentShape recurrent_shape(const OpCall& call, int64_t chunks) {
    const Type &gates = call.inputs[0], &w = call.inputs[1];
    const bool of_bytes = w.dtype == DType::i8;
    for (const Type& input : call.inputs)
        if (!is_floating(gates.dtype) ||
            (input.dtype != gates.dtype && !(of_bytes && &input == &w)))
            refuse(call, "all operands have one floating dtype", "cast them", ErrorKind::type);
    if (gates.rank() != 3 || w.rank() != 2 || w.shape[0] != chunks * w.shape[1] ||
        gates.shape[2] != w.shape[0])
        refuse(call, cat("gates are [steps, n, ", chunks, " * hidden] and w_hh [", chunks,
                         " * hidden, hidden]"));
    if (gates.shape[0] == 0) refuse(call, "there is no step");
    if (chunks == 1 && call.text("nonlinearity") != "tanh" && call.text("nonlinearity") != "relu")
        refuse(call, cat("the nonlinearity is \"", call.text("nonlinearity"), "\""),
               "use \"tanh\" or \"relu\"");
    const int64_t n = gates.shape[1], hidden = w.shape[1];
    return {{gates.dtype, gates.shape},
            {gates.dtype, {gates.shape[0], n, hidden}},
            {gates.dtype, {n, hidden}},
            {gates.dtype, {w.shape[0]}}};
}

void check_recurrent(const OpCall& call, size_t first, std::initializer_list<const Type*> wanted) {
    for (const Type* type : wanted) {
        const Type& got = call.inputs[first];
        if (!(got.shape == type->shape))
            refuse(call, cat(call.op.inputs[first].name, " is ", to_string(got), " and should be ",
                             to_string(*type)));
        ++first;
    }
}

std::vector<Type> infer_rnn(const OpCall& call) {
    const RecurrentShape s = recurrent_shape(call, 1);
    check_recurrent(call, 2, {&s.one});
    return {s.all};
}

std::vector<Type> infer_rnn_grad(const OpCall& call) {
    const RecurrentShape s = recurrent_shape(call, 1);
    check_recurrent(call, 2, {&s.all});
    return {s.gates};
}

std::vector<Type> infer_lstm(const OpCall& call) {
    const RecurrentShape s = recurrent_shape(call, kLstmChunks);
    check_recurrent(call, 2, {&s.one, &s.one});
    return {s.all, s.all, s.gates};
}

std::vector<Type> infer_lstm_of_bytes(const OpCall& call) {
    if (call.inputs[1].dtype != DType::i8 || call.inputs[0].dtype != DType::f32)
        refuse(call, "w_hh is int8, the rest float32", "quantize w_hh", ErrorKind::type);
    const RecurrentShape s = recurrent_shape(call, kLstmChunks);
    check_recurrent(call, 2, {&s.one, &s.one, &s.bias});
    return {s.all, s.all};
}

std::vector<Type> infer_lstm_grad(const OpCall& call) {
    const RecurrentShape s = recurrent_shape(call, kLstmChunks);
    check_recurrent(call, 2, {&s.one, &s.all, &s.all});
    if (call.inputs.size() == kLstmGradInputs) check_recurrent(call, kLstmGradInputs - 1, {&s.all});
    if (call.inputs.size() > kLstmGradInputs)
        refuse(call, cat("it takes ", kLstmGradInputs, " tensors at most"), {}, ErrorKind::type);
    return {s.gates, s.one};
}

std::vector<Type> infer_gru(const OpCall& call) {
    const RecurrentShape s = recurrent_shape(call, kGruChunks);
    check_recurrent(call, 2, {&s.one, &s.bias});
    return {s.all, s.gates, s.all};
}

std::vector<Type> infer_gru_reset_first(const OpCall& call) { return {infer_gru(call)[0]}; }

std::vector<Type> infer_gru_grad(const OpCall& call) {
    const RecurrentShape s = recurrent_shape(call, kGruChunks);
    check_recurrent(call, 2, {&s.one, &s.all, &s.all, &s.all});
    return {s.gates, s.gates, s.one};
}

// --- step by step, in simpler ops ---

using Operands = std::span<const TensorRef>;

Tensors chunks_of(const TensorRef& x, int64_t count) {
    const int64_t hidden = x->shape()[1] / count;
    Tensors chunks;
    for (int64_t k = 0; k < count; ++k)
        chunks.push_back(build::slice(x, 1, k * hidden, (k + 1) * hidden));
    return chunks;
}

TensorRef joined(Operands parts, int64_t axis) { return build::op_n("concat", parts, {axis})[0]; }

// The state that each step gets: the result that `all` has for the step before it, or the first
// state.
TensorRef states_before(const TensorRef& first, const TensorRef& all, bool reverse) {
    const int64_t steps = all->shape()[0];
    Tensors parts{build::reshape(first, {1, first->shape()[0], first->shape()[1]})};
    if (steps > 1)
        parts.insert(reverse ? parts.begin() : parts.end(),
                     build::slice(all, 0, reverse ? 1 : 0, reverse ? steps : steps - 1));
    return joined(parts, 0);
}

TensorRef one_minus(const TensorRef& x) { return build::add(build::neg(x), 1); }
TensorRef through_tanh(const TensorRef& y, const TensorRef& dy) {
    return build::mul(dy, one_minus(build::mul(y, y)));
}
TensorRef through_sigmoid(const TensorRef& y, const TensorRef& dy) {
    return build::mul(build::mul(dy, y), one_minus(y));
}

// The product h w_hh'.
TensorRef from_state(const TensorRef& h, const TensorRef& w) { return product(h, w, false, true); }

// The step that is computed last gets no gradient from a later one.
TensorRef no_state(const OpCall& call, const TensorRef& like) {
    const Shape one{call.inputs[0].shape[1], call.inputs[1].shape[1]};
    return build::full(one, 0, like->dtype(), like->device());
}

Loop rnn_loop(const OpCall& call, Operands inputs) {
    return {.carries = {inputs[2]},
            .slices = {inputs[0]},
            .is_reverse = call.flag("reverse"),
            .step = [w = inputs[1], f = call.text("nonlinearity")](Operands carries, Operands x) {
        const TensorRef h = build::op(f, {build::add(x[0], from_state(carries[0], w))});
        return Tensors{h, h};
    }};
}

// Carries the part of a step's dh that comes from the step after it.
Loop rnn_grad_loop(const OpCall& call, Operands inputs) {
    return {.carries = {no_state(call, inputs[0])},
            .slices = {inputs[0], inputs[2]},
            .is_reverse = !call.flag("reverse"),
            .step = [w = inputs[1], is_tanh = call.text("nonlinearity") == "tanh"](Operands carries,
                                                                                   Operands x) {
        const TensorRef &y = x[0], dh = build::add(x[1], carries[0]), zero = build::number(0, y);
        const TensorRef dp =
            is_tanh ? through_tanh(y, dh) : build::where(build::op("greater", {y, zero}), dh, zero);
        return Tensors{product(dp, w), dp};
    }};
}

TensorRef rounded_to_even(const TensorRef& x) {
    const TensorRef rest = build::op("abs", {build::sub(x, build::op("trunc", {x}))});
    return build::where(build::op("equal", {rest, build::number(0.5, x)}),
                        build::mul(build::op("round", {build::mul(x, 0.5)}), 2),
                        build::op("round", {x}));
}

TensorRef within_bytes(const TensorRef& x) {
    const TensorRef least = build::op("maximum", {x, build::number(0, x)});
    return build::op("minimum", {least, build::number(255, x)});
}

struct Levels {
    TensorRef level, scale;  // whole numbers, 0 for 0; what 1 stands for
};

// The nearest of 256 numbers in equal distances, from the least to the largest element, or 0.
Levels levels_of(const TensorRef& x) {
    const TensorRef zero = build::number(0, x);
    const auto extremum = [&](const char* reduce, const char* with_zero) {
        return build::op(with_zero,
                         {build::op(reduce, {x}, {build::Axes{0, 1}, int64_t{0}}), zero});
    };
    const TensorRef low = extremum("reduce_min", "minimum"),
                    high = extremum("reduce_max", "maximum"),
                    step = build::div(build::sub(high, low), build::number(255, x)),
                    scale =
                        build::where(build::op("equal", {step, zero}), build::number(1, x), step),
                    origin = rounded_to_even(within_bytes(build::neg(build::div(low, scale)))),
                    level = within_bytes(build::add(rounded_to_even(build::div(x, scale)), origin));
    return {build::sub(level, origin), scale};
}

TensorRef rounded_to_8_bits(const TensorRef& x) {
    const Levels levels = levels_of(x);
    return build::mul(levels.level, levels.scale);
}

// Gives h and c of a step, and the gates behind their functions.
Tensors lstm_step(const TensorRef& p, const TensorRef& c_before) {
    Tensors a = chunks_of(p, kLstmChunks);
    for (size_t chunk = 0; chunk < a.size(); ++chunk)
        a[chunk] = build::op(chunk == 2 ? "tanh" : "sigmoid", {a[chunk]});
    const TensorRef c = build::add(build::mul(a[1], c_before), build::mul(a[0], a[2])),
                    y = build::mul(a[3], build::op("tanh", {c}));
    return {y, c, joined(a, 1)};
}

Loop lstm_loop(const OpCall& call, Operands inputs) {
    return {
        .carries = {inputs[2], inputs[3]},
        .slices = {inputs[0]},
        .is_reverse = call.flag("reverse"),
        .step = [w = inputs[1], is_rounded = call.flag("rounded")](Operands carries, Operands x) {
        const TensorRef h = is_rounded ? rounded_to_8_bits(carries[0]) : carries[0];
        const Tensors made = lstm_step(build::add(x[0], from_state(h, w)), carries[1]);
        return Tensors{made[0], made[1], made[0], made[1], made[2]};
    }};
}

Loop lstm_of_bytes_loop(const OpCall& call, Operands inputs) {
    return {.carries = {inputs[2], inputs[3]},
            .slices = {inputs[0]},
            .is_reverse = call.flag("reverse"),
            .step = [w = build::cast(inputs[1], DType::i32), scale = inputs[4]](Operands carries,
                                                                                Operands x) {
        const Levels h = levels_of(carries[0]);
        const TensorRef sums = from_state(build::cast(h.level, DType::i32), w),
                        p = build::mul(build::cast(sums, DType::f32), build::mul(scale, h.scale));
        const Tensors made = lstm_step(build::add(x[0], p), carries[1]);
        return Tensors{made[0], made[1], made[0], made[1]};
    }};
}

// Carries the parts of a step's dh and dc that come from the step after it.
Loop lstm_grad_loop(const OpCall& call, Operands inputs) {
    const bool reverse = call.flag("reverse");
    const TensorRef none = no_state(call, inputs[0]);
    Loop loop{
        .carries = {none, none},
        .slices = {inputs[0], states_before(inputs[2], inputs[3], reverse), inputs[3], inputs[4]},
        .is_reverse = !reverse,
        .returned = 1};
    if (inputs.size() == kLstmGradInputs) loop.slices.push_back(inputs[5]);
    loop.step = [w = inputs[1]](Operands carries, Operands x) {
        const Tensors a = chunks_of(x[0], kLstmChunks);
        const TensorRef &i = a[0], &f = a[1], &g = a[2], &o = a[3], &before = x[1],
                        squashed = build::op("tanh", {x[2]}), dh = build::add(x[3], carries[0]);
        TensorRef dc = through_tanh(squashed, build::mul(dh, o));
        if (x.size() > 4) dc = build::add(x[4], dc);
        dc = build::add(dc, carries[1]);
        const TensorRef dp = joined(std::array{through_sigmoid(i, build::mul(dc, g)),
                                               through_sigmoid(f, build::mul(dc, before)),
                                               through_tanh(g, build::mul(dc, i)),
                                               through_sigmoid(o, build::mul(dh, squashed))},
                                    1);
        return Tensors{product(dp, w), build::mul(dc, f), dp};
    };
    return loop;
}

Loop gru_loop(const OpCall& call, Operands inputs) {
    return {.carries = {inputs[2]},
            .slices = {inputs[0]},
            .is_reverse = call.flag("reverse"),
            .step = [w = inputs[1], bias = inputs[3]](Operands carries, Operands x) {
        const TensorRef& before = carries[0];
        const Tensors p = chunks_of(x[0], kGruChunks),
                      q = chunks_of(build::add(from_state(before, w), bias), kGruChunks);
        const TensorRef r = build::op("sigmoid", {build::add(p[0], q[0])}),
                        z = build::op("sigmoid", {build::add(p[1], q[1])}),
                        n = build::op("tanh", {build::add(p[2], build::mul(r, q[2]))}),
                        h = build::add(n, build::mul(z, build::sub(before, n)));
        return Tensors{h, h, joined(std::array{r, z, n}, 1), q[2]};
    }};
}

Loop gru_reset_first_loop(const OpCall& call, Operands inputs) {
    const int64_t hidden = call.inputs[1].shape[1], two = 2 * hidden;
    const auto part = [&](size_t operand, int64_t lo, int64_t hi) {
        return build::slice(inputs[operand], 0, lo, hi);
    };
    return {
        .carries = {inputs[2]},
        .slices = {inputs[0]},
        .is_reverse = call.flag("reverse"),
        .step = [w = part(1, 0, two), w_new = part(1, two, two + hidden), bias = part(3, 0, two),
                 bias_new = part(3, two, two + hidden)](Operands carries, Operands x) {
        const TensorRef& before = carries[0];
        const Tensors p = chunks_of(x[0], kGruChunks),
                      q = chunks_of(build::add(from_state(before, w), bias), 2);
        const TensorRef r = build::op("sigmoid", {build::add(p[0], q[0])}),
                        z = build::op("sigmoid", {build::add(p[1], q[1])}),
                        inner = build::add(from_state(build::mul(r, before), w_new), bias_new),
                        n = build::op("tanh", {build::add(p[2], inner)}),
                        h = build::add(n, build::mul(z, build::sub(before, n)));
        return Tensors{h, h};
    }};
}

// Carries the parts of a step's dh that come from the step after it: through the product, and
// directly.
Loop gru_grad_loop(const OpCall& call, Operands inputs) {
    const bool reverse = call.flag("reverse");
    const TensorRef none = no_state(call, inputs[0]);
    return {
        .carries = {none, none},
        .slices = {inputs[0], states_before(inputs[2], inputs[3], reverse), inputs[4], inputs[5]},
        .is_reverse = !reverse,
        .returned = 1,
        .step = [w = inputs[1]](Operands carries, Operands x) {
        const Tensors a = chunks_of(x[0], kGruChunks);
        const TensorRef &r = a[0], &z = a[1], &n = a[2], &before = x[1],
                        dh = build::add(build::add(x[3], carries[0]), carries[1]),
                        dn = through_tanh(n, build::mul(dh, one_minus(z))),
                        dr = through_sigmoid(r, build::mul(dn, x[2])),
                        dz = through_sigmoid(z, build::mul(dh, build::sub(before, n))),
                        dq = joined(std::array{dr, dz, build::mul(dn, r)}, 1);
        return Tensors{product(dq, w), build::mul(dh, z), joined(std::array{dr, dz, dn}, 1), dq};
    }};
}

Grads grad_of_steps(const GradCall& g) { return build::gradients_through(g, unrolled); }

// --- gradients ---

// Adds the gradients of w_hh and of the first h, from the gradient of their product.
void add_products(const GradCall& g, const TensorRef& dproduct, Grads& grads) {
    const TensorRef &w = g.inputs[1], &h = g.inputs[2], &y = g.outputs[0];
    const int64_t steps = y->shape()[0], n = y->shape()[1], hidden = y->shape()[2];
    const bool reverse = g.call.flag("reverse");
    if (g.needs[1])
        grads[1] =
            product(build::reshape(dproduct, {steps * n, w->shape()[0]}),
                    build::reshape(states_before(h, y, reverse), {steps * n, hidden}), true, false);
    if (!g.needs[2]) return;
    const int64_t first = reverse ? steps - 1 : 0;
    grads[2] =
        product(build::reshape(build::slice(dproduct, 0, first, first + 1), {n, w->shape()[0]}), w);
}

Grads grad_rnn(const GradCall& g) {
    Grads grads(3);
    grads[0] = build::op("rnn_grad", {g.outputs[0], g.inputs[1], g.out_grads[0]}, g.call.attrs);
    add_products(g, grads[0], grads);
    return grads;
}

Grads grad_lstm(const GradCall& g) {
    // The third result is for backward alone.
    if (g.out_grads[2] || g.call.flag("rounded")) return grad_of_steps(g);
    const TensorRef &c = g.outputs[1], &dy = g.out_grads[0], &dc = g.out_grads[1];
    Tensors inputs{g.outputs[2], g.inputs[1], g.inputs[3], c, dy ? dy : build::zeros_like(c)};
    if (dc) inputs.push_back(dc);
    const Tensors made = build::op_n("lstm_grad", inputs, {g.call.integer("reverse")});
    Grads grads(4);
    grads[0] = made[0], grads[3] = made[1];
    add_products(g, made[0], grads);
    return grads;
}

Grads grad_gru(const GradCall& g) {
    if (g.out_grads[1] || g.out_grads[2]) return grad_of_steps(g);  // for backward alone
    const Tensors made = build::op_n("gru_grad",
                                     std::array{g.outputs[1], g.inputs[1], g.inputs[2],
                                                g.outputs[0], g.outputs[2], g.out_grads[0]},
                                     g.call.attrs);
    Grads grads(4);
    grads[0] = made[0];
    add_products(g, made[1], grads);
    if (g.needs[2]) grads[2] = build::add(grads[2], made[2]);
    if (g.needs[3]) grads[3] = build::reduce_sum(made[1], {0, 1}, false);
    return grads;
}

Cost cost_recurrent(const OpCall& call, std::span<const Type> outputs) {
    const auto hidden = static_cast<double>(call.inputs[1].shape[1]);
    return {(2 * hidden + 16) * static_cast<double>(call.inputs[0].numel()),
            bytes_of(call, outputs)};
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
    const AttrSpec reverse{"reverse", AttrKind::integer, Attr{int64_t{0}}},
        nonlinearity{"nonlinearity", AttrKind::text, Attr{std::string("tanh")}};
    return {
        {.name = "rnn",
         .doc =
             "h_t = tanh (or relu) of gates_t + h_{t-1} w_hh', for all steps of gates [steps, n, hidden]. "
             "reverse = 1: from the last step to the first.",
         .inputs = {"gates", "w_hh", "h"},
         .attrs = {nonlinearity, reverse},
         .promotion = Promotion::floating,
         .infer = infer_rnn,
         .grad = grad_rnn,
         .loop = rnn_loop,
         .cost = cost_recurrent},
        {.name = "rnn_grad",
         .doc = "Gradient of rnn's gates from that of its result.",
         .inputs = {"y", "w_hh", "dy"},
         .attrs = {nonlinearity, reverse},
         .infer = infer_rnn_grad,
         .grad = grad_of_steps,
         .loop = rnn_grad_loop,
         .cost = cost_recurrent},
        {.name = "lstm",
         .doc =
             "Long short-term memory over all steps of gates [steps, n, 4 * hidden], in the order input, forget, "
             "cell, output: h and c of each step, and the gates behind their functions. reverse = 1: from the "
             "last step to the first. rounded = 1: the product with w_hh reads h at the nearest of 256 numbers "
             "between the extrema of its elements and 0.",
         .inputs = {"gates", "w_hh", "h", "c"},
         .attrs = {reverse, {"rounded", AttrKind::integer, Attr{int64_t{0}}}},
         .promotion = Promotion::floating,
         .infer = infer_lstm,
         .grad = grad_lstm,
         .loop = lstm_loop,
         .cost = cost_recurrent},
        {.name = "lstm_of_bytes",
         .doc =
             "lstm with rounded = 1 and w_hh of int8: its product with whole levels of h is a sum in int32, times the "
             "level's size and the column's scale, [4 * hidden]. h and c of each step.",
         .inputs = {"gates", "w_hh", "h", "c", "scale"},
         .attrs = {reverse},
         .infer = infer_lstm_of_bytes,
         .loop = lstm_of_bytes_loop,
         .cost = cost_recurrent},
        {.name = "lstm_grad",
         .doc =
             "Gradients of lstm's gates and first c from those of h and, unless it is left out, of c of each step.",
         .inputs = {"activations", "w_hh", "c_first", "c", "dy", "dc"},
         .variadic = true,
         .attrs = {reverse},
         .infer = infer_lstm_grad,
         .grad = grad_of_steps,
         .loop = lstm_grad_loop,
         .cost = cost_recurrent},
        {.name = "gru",
         .doc =
             "Gated recurrent units over all steps of gates [steps, n, 3 * hidden], in the order reset, update, new; "
             "reset scales the new gate's part of h w_hh' + b_hh: h of each step, the gates behind their functions, "
             "and what reset scales. reverse = 1: from the last step to the first.",
         .inputs = {"gates", "w_hh", "h", "b_hh"},
         .attrs = {reverse},
         .promotion = Promotion::floating,
         .infer = infer_gru,
         .grad = grad_gru,
         .loop = gru_loop,
         .cost = cost_recurrent},
        {.name = "gru_reset_first",
         .doc =
             "gru whose reset scales h before its product with the new gate's part of w_hh, as ONNX has it by default: h "
             "of each step.",
         .inputs = {"gates", "w_hh", "h", "b_hh"},
         .attrs = {reverse},
         .promotion = Promotion::floating,
         .infer = infer_gru_reset_first,
         .grad = grad_of_steps,
         .loop = gru_reset_first_loop,
         .cost = cost_recurrent},
        {.name = "gru_grad",
         .doc =
             "Gradients of gru's gates, of h w_hh' + b_hh of each step, and of the first h but for its product.",
         .inputs = {"activations", "w_hh", "h_first", "y", "scaled", "dy"},
         .attrs = {reverse},
         .infer = infer_gru_grad,
         .grad = grad_of_steps,
         .loop = gru_grad_loop,
         .cost = cost_recurrent},
    };
}

}  // namespace megjit::runtime
