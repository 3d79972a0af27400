// backends/cpu/kernels/recurrent.cpp -- recurrent layers: a product with w_hh for each step, and a
// loop over its gates. The weights are packed once in each call, and the product's result stays in
// the cache. Threads that share each product would wait for each other at each step: so an lstm of
// 100 steps, with 32 x 256 states, took 27 ms on two busy cores of a Sapphire Rapids, and 13 ms
// with the batch divided in two.
#include <algorithm>

#include "backends/cpu/convert.h"
#include "backends/cpu/kernels/recurrent_cells.h"
#include "backends/cpu/products.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/window.h"

namespace megjit::cpu {
namespace {

using runtime::inline_stream;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Type;

constexpr int64_t kCellGrain = 2048;  // this many states are worth a thread
constexpr int64_t kPartRows = 8;  // this many rows of a batch are worth a thread for all steps

const RecurrentCells& recurrent_cells() {
    static const RecurrentCells cells = MEGJIT_BEST(recurrent_cells(runtime::has_vnni()));
    return cells;
}

constexpr int64_t kByteGrain = 192 << 10;  // this many weights of a byte are worth a thread

// A few rows are multiplied by the weights as they lie there: packing 4 MB takes as long as reading
// them for several steps, and a step of 1 x 64 states took 6.7 us with oneDNN's product, of which
// 0.3 are arithmetic.
constexpr int64_t kFewRows = 4;
constexpr int64_t kFewGrain = 64 << 10;  // this many weights are worth a thread

// Computes y = x w for [rows, inner] and [inner, columns], with w packed. The rows are divided into
// parts, one for each thread, which go through all steps without waiting for each other; where that
// gives a thread too little, there is one part, and the threads share each product.
class PackedProduct {
public:
    struct Part {
        int64_t first = 0, rows = 0;
        Prepared product;
        size_t result = 0, scratch = 0;  // places in the workspace
    };

    // in_parts: no row depends on others between two products.
    PackedProduct(const OpCall& call, int64_t rows, const Matrix& w, bool in_parts)
        : inner_(w.rows), columns_(w.columns) {
        if (rows <= kFewRows && w.column_step != 1) {
            workspace_ = static_cast<size_t>(rows * columns_) * sizeof(float);
            parts_.emplace_back().rows = rows;
            return;
        }
        const int64_t threads = runtime::thread_count(),
                      count = in_parts && rows >= kPartRows * threads ? threads : 1;
        const PackedFactor factor = pack_factor(call, w, rows / count);
        pack_ = factor.pack;
        workspace_ = weights_ = aligned(factor.bytes);
        for (int64_t i = 0; i < count; ++i) {
            Part part;
            part.first = rows * i / count;
            part.rows = rows * (i + 1) / count - part.first;
            part.product = factor.product(part.rows);
            part.result = workspace_;
            part.scratch =
                part.result + aligned(static_cast<size_t>(part.rows * columns_) * sizeof(float));
            workspace_ = part.scratch + aligned(part.product->workspace_bytes());
            parts_.push_back(std::move(part));
        }
        workspace_ = std::max(workspace_, weights_ + pack_->workspace_bytes());
    }
    size_t workspace_bytes() const { return workspace_; }

    // Packs w unless the rows are few, and calls body(part) for each part.
    template <class Body>
    void each_part(const void* w, char* work, const Body& body) const {
        if (!pack_) return body(parts_[0]);
        void *from = const_cast<void*>(w), *to = work;
        pack_->enqueue(inline_stream(), &from, &to, work + weights_);
        parallel_for(std::ssize(parts_), 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) body(parts_[static_cast<size_t>(i)]);
        });
    }
    // Computes the product of the part's rows of x, then calls step(row, rows, their product).
    template <class Step>
    void run(const Part& part, const float* x, const float* w, char* work, const Step& step) const {
        if (!pack_) {
            auto* const y = reinterpret_cast<float*>(work);
            parallel_for(columns_, std::max<int64_t>(1, kFewGrain / inner_), 16,
                         [&](int64_t lo, int64_t hi) {
                recurrent_cells().few_rows({part.rows, inner_, columns_, x, w, y, lo, hi});
            });
            return over_rows(part, y, step);
        }
        void *in[] = {const_cast<float*>(x) + part.first * inner_, work}, *to = work + part.result;
        part.product->enqueue(inline_stream(), in, &to, work + part.scratch);
        over_rows(part, static_cast<const float*>(to), step);
    }
    template <class Step>
    void over_rows(const Part& part, const float* product, const Step& step) const {
        const int64_t hidden = std::min(inner_, columns_);
        parallel_for(part.rows, std::max<int64_t>(1, kCellGrain / hidden), 1,
                     [&](int64_t lo, int64_t hi) {
            step(part.first + lo, hi - lo, product ? product + lo * columns_ : nullptr);
        });
    }

private:
    int64_t inner_, columns_;
    Prepared pack_;
    std::vector<Part> parts_;
    size_t weights_ = 0, workspace_ = 0;
};

// The steps of a layer.
struct Steps {
    explicit Steps(const OpCall& call)
        : steps(call.inputs[0].shape[0]),
          n(call.inputs[0].shape[1]),
          hidden(call.inputs[1].shape[1]),
          reverse(call.flag("reverse")) {}
    // The number of the step that forward computes as the k-th; -1 for k = -1.
    int64_t place(int64_t k) const { return reverse && k >= 0 ? steps - 1 - k : k; }

    int64_t steps, n, hidden;
    bool reverse;
};

// The steps of a layer, and the product between two of them.
struct Layer : Steps {
    Layer(const OpCall& call, bool backward)
        : Steps(call),
          width(call.inputs[1].shape[0]),
          rounded(runtime::has_attr(call, "rounded") && call.flag("rounded")),
          product(call, n,
                  backward ? dense_matrix(width, hidden) : Matrix{hidden, width, 1, hidden},
                  !rounded) {}

    size_t workspace_bytes() const {
        return place_of_rounded() + (rounded ? static_cast<size_t>(n * hidden) * sizeof(float) : 0);
    }
    // Gives h, or h rounded in the workspace.
    const float* multiplied(const float* h, void* workspace) const {
        if (!rounded) return h;
        auto* const to =
            reinterpret_cast<float*>(static_cast<char*>(workspace) + place_of_rounded());
        recurrent_cells().round_to_8_bits(n * hidden, h, to);
        return to;
    }

    // Calls step(t, before, row, rows, product), in the order of computation; `before` is the step
    // before t, or -1. x_of(t): what the product reads of step t, or before the first step for -1.
    template <class XOf, class Step>
    void forward(const void* w, void* workspace, const XOf& x_of, const Step& step) const {
        char* const work = static_cast<char*>(workspace);
        product.each_part(w, work, [&](const PackedProduct::Part& part) {
            for (int64_t k = 0; k < steps; ++k)
                product.run(part, x_of(place(k - 1)), static_cast<const float*>(w), work,
                            [&](int64_t row, int64_t rows, const float* made) {
                    step(place(k), place(k - 1), row, rows, made);
                });
        });
    }
    // Goes through the steps in reverse; the last step has no product (null).
    // dproduct: the gradient of forward's products, which step() writes.
    template <class Step>
    void backward(const void* w, void* workspace, const float* dproduct, const Step& step) const {
        char* const work = static_cast<char*>(workspace);
        product.each_part(w, work, [&](const PackedProduct::Part& part) {
            for (int64_t k = steps; k-- > 0;) {
                const auto now = [&](int64_t row, int64_t rows, const float* made) {
                    step(place(k), place(k - 1), row, rows, made);
                };
                if (k + 1 == steps) product.over_rows(part, nullptr, now);
                else
                    product.run(part, dproduct + place(k + 1) * n * width,
                                static_cast<const float*>(w), work, now);
            }
        });
    }

    int64_t width;
    bool rounded;
    PackedProduct product;

private:
    size_t place_of_rounded() const { return aligned(product.workspace_bytes()); }
};

// Output `own` may lie on input 0.
template <class Run>
class LayerExecutable final : public runtime::Executable {
public:
    LayerExecutable(const Layer& layer, int own, Run run)
        : layer_(layer), own_(own), run_(std::move(run)) {}
    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        run_(layer_, reinterpret_cast<const float* const*>(inputs),
             reinterpret_cast<float* const*>(outputs), workspace);
    }
    size_t workspace_bytes() const override { return layer_.workspace_bytes(); }
    bool may_alias(int out, int in) const override { return out == own_ && in == 0; }

private:
    Layer layer_;
    int own_ = 0;
    Run run_;
};

template <class Run>
Prepared layer_kernel(const OpCall& call, bool backward, int own, Run run) {
    return std::make_shared<const LayerExecutable<Run>>(Layer(call, backward), own, std::move(run));
}

using In = const float* const*;
using Out = float* const*;

void run_lstm(const Layer& l, In in, Out out, void* workspace) {
    const float *gates = in[0], *c_first = in[3];
    float *y = out[0], *c = out[1], *activations = out[2];
    const int64_t size = l.n * l.hidden;
    const auto h_of = [&](int64_t t) {
        return l.multiplied(t < 0 ? in[2] : y + t * size, workspace);
    };
    l.forward(in[1], workspace, h_of,
              [&](int64_t t, int64_t before, int64_t row, int64_t rows, const float* product) {
        const int64_t own = row * l.hidden, at = t * size + own;
        const float* c_before = before < 0 ? c_first : c + before * size;
        recurrent_cells().lstm({rows, l.hidden, gates + 4 * at, product, c_before + own, y + at,
                                c + at, activations + 4 * at});
    });
}

template <bool has_dc>
void run_lstm_grad(const Layer& l, In in, Out out, void* workspace) {
    const float *activations = in[0], *c_first = in[2], *c = in[3], *dy = in[4];
    float *dgates = out[0], *carried = out[1];
    const int64_t size = l.n * l.hidden;
    std::fill_n(carried, size, 0.0f);
    l.backward(in[1], workspace, dgates,
               [&](int64_t t, int64_t before, int64_t row, int64_t rows, const float* product) {
        const int64_t own = row * l.hidden, at = t * size + own;
        const float* c_before = before < 0 ? c_first : c + before * size;
        recurrent_cells().lstm_grad({rows, l.hidden, activations + 4 * at, c_before + own, c + at,
                                     dy + at, has_dc ? in[5] + at : nullptr, product, carried + own,
                                     dgates + 4 * at});
    });
}

void run_gru(const Layer& l, In in, Out out, void* workspace) {
    const float *gates = in[0], *bias = in[3];
    float *y = out[0], *activations = out[1], *scaled = out[2];
    const int64_t size = l.n * l.hidden;
    const auto h_of = [&](int64_t t) { return t < 0 ? in[2] : y + t * size; };
    l.forward(in[1], workspace, h_of,
              [&](int64_t t, int64_t before, int64_t row, int64_t rows, const float* product) {
        const int64_t own = row * l.hidden, at = t * size + own;
        recurrent_cells().gru({rows, l.hidden, gates + 3 * at, product, bias, h_of(before) + own,
                               y + at, scaled + at, activations + 3 * at});
    });
}

void run_gru_grad(const Layer& l, In in, Out out, void* workspace) {
    const float *activations = in[0], *y = in[3], *scaled = in[4], *dy = in[5];
    float *dgates = out[0], *dproduct = out[1], *carried = out[2];
    const int64_t size = l.n * l.hidden;
    l.backward(in[1], workspace, dproduct,
               [&](int64_t t, int64_t before, int64_t row, int64_t rows, const float* product) {
        const int64_t own = row * l.hidden, at = t * size + own;
        const float* h_before = before < 0 ? in[2] : y + before * size;
        recurrent_cells().gru_grad({rows, l.hidden, activations + 3 * at, h_before + own,
                                    scaled + at, dy + at, product, carried + own, dgates + 3 * at,
                                    dproduct + 3 * at});
    });
}

template <bool relu>
void run_rnn(const Layer& l, In in, Out out, void* workspace) {
    const float* gates = in[0];
    float* y = out[0];
    const int64_t size = l.n * l.hidden;
    const auto h_of = [&](int64_t t) { return t < 0 ? in[2] : y + t * size; };
    l.forward(in[1], workspace, h_of,
              [&](int64_t t, int64_t, int64_t row, int64_t rows, const float* product) {
        const int64_t at = t * size + row * l.hidden;
        recurrent_cells().rnn({rows * l.hidden, relu, gates + at, product, y + at});
    });
}

template <bool relu>
void run_rnn_grad(const Layer& l, In in, Out out, void* workspace) {
    const float *y = in[0], *dy = in[2];
    float* dgates = out[0];
    const int64_t size = l.n * l.hidden;
    l.backward(in[1], workspace, dgates,
               [&](int64_t t, int64_t, int64_t row, int64_t rows, const float* product) {
        const int64_t at = t * size + row * l.hidden;
        recurrent_cells().rnn_grad({rows * l.hidden, relu, y + at, dy + at, product, dgates + at});
    });
}

// The steps of lstm_of_bytes: levels of h as whole numbers, their product, and the gates.
class ByteLstm final : public runtime::Executable {
public:
    explicit ByteLstm(const OpCall& call) : s_(call) {}

    size_t workspace_bytes() const override { return place_of_product() + 4 * floats(); }

    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const auto* const in = reinterpret_cast<const float* const*>(inputs);
        float *const y = static_cast<float*>(outputs[0]), *const c =
                                                              static_cast<float*>(outputs[1]);
        const int64_t size = s_.n * s_.hidden;
        const float *h = in[2], *c_before = in[3];
        for (int64_t k = 0; k < s_.steps; ++k) {
            const int64_t at = s_.place(k) * size;
            const float* const product = multiply(h, inputs, static_cast<char*>(workspace));
            recurrent_cells().lstm(
                {s_.n, s_.hidden, in[0] + 4 * at, product, c_before, y + at, c + at, nullptr});
            h = y + at;
            c_before = c + at;
        }
    }

private:
    size_t floats() const { return static_cast<size_t>(s_.n * s_.hidden) * sizeof(float); }
    size_t place_of_product() const {
        return aligned(static_cast<size_t>(s_.n * (s_.hidden + stride_of_byte_rows(s_.hidden))));
    }

    const float* multiply(const float* h, void* const* inputs, char* work) const {
        auto* const levels = reinterpret_cast<uint8_t*>(work);
        auto* const terms = levels + s_.n * s_.hidden;
        auto* const product = reinterpret_cast<float*>(work + place_of_product());
        const ByteLevels of_h = recurrent_cells().levels_of(s_.n * s_.hidden, h, levels);
        lay_out_byte_rows(levels, s_.n, s_.hidden, terms);
        multiply_byte_rows({.rows = s_.n,
                            .inner = s_.hidden,
                            .columns = 4 * s_.hidden,
                            .x = terms,
                            .origin = of_h.origin,
                            .w = static_cast<const int8_t*>(inputs[1]),
                            .scale = static_cast<const float*>(inputs[4]),
                            .step = of_h.step,
                            .y = product});
        return product;
    }

    Steps s_;
};

Prepared prepare_lstm_of_bytes(const OpCall& call, std::span<const Type> outputs) {
    if (call.inputs[0].numel() == 0) return make_zeros(outputs);
    return std::make_shared<const ByteLstm>(call);
}

// The steps of gru_reset_first: two products each, the second of what the first one has scaled.
class GruResetFirst final : public runtime::Executable {
public:
    explicit GruResetFirst(const OpCall& call)
        : s_(call),
          gates_(call, s_.n, Matrix{s_.hidden, 2 * s_.hidden, 1, s_.hidden}, false),
          new_(call, s_.n, Matrix{s_.hidden, s_.hidden, 1, s_.hidden}, false) {}

    size_t workspace_bytes() const override { return place_of_states() + 2 * states(); }

    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const auto* const in = reinterpret_cast<const float* const*>(inputs);
        char *const work = static_cast<char*>(workspace), *const second = work + place_of_new();
        const float* const w_new = in[1] + 2 * s_.hidden * s_.hidden;
        gates_.each_part(in[1], work, [&](const PackedProduct::Part& of_gates) {
            new_.each_part(w_new, second, [&](const PackedProduct::Part& of_new) {
                const float* before = in[2];
                for (int64_t k = 0; k < s_.steps; ++k) {
                    const int64_t t = s_.place(k);
                    float* const y = static_cast<float*>(outputs[0]) + t * s_.n * s_.hidden;
                    step({of_gates, of_new, work, second}, in, t, before, y);
                    before = y;
                }
            });
        });
    }

private:
    struct Parts {
        const PackedProduct::Part &of_gates, &of_new;
        char *work, *second;
    };

    void step(const Parts& parts, const float* const* in, int64_t t, const float* before,
              float* y) const {
        auto *const reset = reinterpret_cast<float*>(parts.work + place_of_states()),
                    *const z = reset + states() / sizeof(float);
        const float* const gates = in[0] + t * s_.n * 3 * s_.hidden;
        gates_.run(parts.of_gates, before, in[1], parts.work,
                   [&](int64_t row, int64_t rows, const float* product) {
            const int64_t at = row * s_.hidden;
            recurrent_cells().gru_reset(
                {rows, s_.hidden, gates + 3 * at, product, in[3], before + at, reset + at, z + at});
        });
        new_.run(parts.of_new, reset, in[1] + 2 * s_.hidden * s_.hidden, parts.second,
                 [&](int64_t row, int64_t rows, const float* product) {
            const int64_t at = row * s_.hidden;
            recurrent_cells().gru_new({rows, s_.hidden, gates + 3 * at, product,
                                       in[3] + 2 * s_.hidden, before + at, z + at, y + at});
        });
    }

    size_t states() const { return aligned(static_cast<size_t>(s_.n * s_.hidden) * sizeof(float)); }
    size_t place_of_new() const { return aligned(gates_.workspace_bytes()); }
    size_t place_of_states() const { return aligned(place_of_new() + new_.workspace_bytes()); }

    Steps s_;
    PackedProduct gates_, new_;
};

Prepared prepare_gru_reset_first(const OpCall& call, std::span<const Type> outputs) {
    if (Prepared converted = in_float32(call, outputs, prepare_gru_reset_first)) return converted;
    if (call.inputs[0].numel() == 0) return make_zeros(outputs);
    return std::make_shared<const GruResetFirst>(call);
}

Prepared prepare_recurrent(const OpCall& call, std::span<const Type> outputs) {
    if (Prepared converted = in_float32(call, outputs, prepare_recurrent)) return converted;
    if (call.inputs[0].numel() == 0) return make_zeros(outputs);
    const std::string_view op = call.op.name;
    if (op == "lstm") return layer_kernel(call, false, 2, run_lstm);
    if (op == "lstm_grad")
        return layer_kernel(call, true, 0,
                            call.inputs.size() == 6 ? run_lstm_grad<true> : run_lstm_grad<false>);
    if (op == "gru") return layer_kernel(call, false, 1, run_gru);
    if (op == "gru_grad") return layer_kernel(call, true, 0, run_gru_grad);
    const bool relu = call.text("nonlinearity") == "relu";
    if (op == "rnn") return layer_kernel(call, false, 0, relu ? run_rnn<true> : run_rnn<false>);
    return layer_kernel(call, true, 0, relu ? run_rnn_grad<true> : run_rnn_grad<false>);
}

}  // namespace

int64_t stride_of_byte_rows(int64_t inner) {
    constexpr int64_t kAtOnce = 64;  // terms, at most
    return (inner + kAtOnce - 1) / kAtOnce * kAtOnce;
}

int lay_out_byte_rows(const uint8_t* from, int64_t rows, int64_t inner, uint8_t* to) {
    const int64_t stride = stride_of_byte_rows(inner);
    for (int64_t row = 0; row < rows; ++row, from += inner, to += stride) {
        std::copy_n(from, inner, to);
        std::fill_n(to + inner, stride - inner, uint8_t{0});
    }
    return 0;
}

int lay_out_byte_rows(const int8_t* from, int64_t rows, int64_t inner, uint8_t* to) {
    constexpr uint8_t kOrigin = 128;
    lay_out_byte_rows(reinterpret_cast<const uint8_t*>(from), rows, inner, to);
    const int64_t size = rows * stride_of_byte_rows(inner);
    for (int64_t i = 0; i < size; ++i) to[i] ^= kOrigin;
    return kOrigin;
}

void multiply_byte_rows(const FewByteRows& p) {
    parallel_for(p.columns, std::max<int64_t>(1, kByteGrain / (p.rows * p.inner)), 16,
                 [&](int64_t lo, int64_t hi) {
        FewByteRows part = p;
        part.first = lo;
        part.end = hi;
        recurrent_cells().few_byte_rows(part);
    });
}

void register_recurrent_kernels() {
    for (const char* op : {"rnn", "rnn_grad", "lstm", "lstm_grad", "gru", "gru_grad"})
        register_kernel(op, prepare_recurrent, [](const OpCall&) { return true; });
    register_kernel("gru_reset_first", prepare_gru_reset_first, [](const OpCall&) { return true; });
    register_kernel("lstm_of_bytes", prepare_lstm_of_bytes, [](const OpCall&) { return true; });
}

}  // namespace megjit::cpu
