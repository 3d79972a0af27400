// tests/memory/lifetimes.h -- buffers as training steps of real networks make them.
// A Tape plays a schedule: each step reads and writes buffers; reading keeps a buffer live.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "memory/planner.h"

namespace megjit::memory {

class Tape {
public:
    // One step: reads the operands, writes one result. Returns the result's index.
    uint32_t op(size_t bytes, std::initializer_list<uint32_t> operands, size_t workspace = 0) {
        const auto id = static_cast<uint32_t>(buffers.size());
        buffers.push_back({.id = id, .live = {now_, now_ + 1}, .bytes = bytes});
        if (workspace != 0)
            buffers.push_back({.id = id + 1, .live = {now_, now_ + 1}, .bytes = workspace});
        for (const uint32_t operand : operands) buffers[operand].live.last = now_ + 1;
        ++now_;
        return id;
    }

    std::vector<Buffer> buffers;

private:
    uint32_t now_ = 0;
};

// linear + relu, `layers` times: 4 buffers a layer. The weight is updated as soon as its gradient
// is known. Weights live outside the arena.
inline std::vector<Buffer> mlp_step(int layers, size_t batch, size_t width) {
    Tape tape;
    const size_t act = batch * width * 4;
    std::vector<uint32_t> acts = {tape.op(act, {})};
    for (int i = 0; i < layers; ++i) {
        const uint32_t z = tape.op(act, {acts.back()});
        acts.push_back(tape.op(act, {z}));
    }
    uint32_t grad = tape.op(act, {acts.back()});
    for (int i = layers; i > 0; --i) {
        const uint32_t dz = tape.op(act, {grad, acts[i]});
        const uint32_t dw = tape.op(width * width * 4, {dz, acts[i - 1]});
        grad = tape.op(act, {dz});
        tape.op(4, {dw});
    }
    return tape.buffers;
}

// One convolution + batch norm + relu with what its backward needs.
struct ConvLayer {
    uint32_t in = 0;  // activations, as buffer indices
    uint32_t conv = 0;  // kept: batch norm's backward reads it
    uint32_t stat = 0;  // mean and inverse deviation
    uint32_t out = 0;
    size_t in_bytes = 0;
    size_t out_bytes = 0;
    size_t weight_bytes = 0;
    size_t workspace = 0;
};

inline ConvLayer conv_forward(Tape& tape, uint32_t in, size_t in_bytes, size_t out_bytes,
                              size_t channels, size_t weight_bytes, size_t workspace) {
    ConvLayer l = {.in = in,
                   .in_bytes = in_bytes,
                   .out_bytes = out_bytes,
                   .weight_bytes = weight_bytes,
                   .workspace = workspace};
    l.conv = tape.op(out_bytes, {in}, workspace);
    l.stat = tape.op(channels * 8, {l.conv});
    const uint32_t normal = tape.op(out_bytes, {l.conv, l.stat});
    l.out = tape.op(out_bytes, {normal});
    return l;
}

// Returns the gradient with respect to the layer's input. Gradients of weights are kept to the
// end, for the optimizer: they are pushed to `weight_grads`.
inline uint32_t conv_backward(Tape& tape, const ConvLayer& l, uint32_t grad,
                              std::vector<uint32_t>& weight_grads) {
    const uint32_t drelu = tape.op(l.out_bytes, {grad, l.out});
    const uint32_t dbn = tape.op(l.out_bytes, {drelu, l.conv, l.stat});
    weight_grads.push_back(tape.op(l.weight_bytes, {dbn, l.in}, l.workspace));
    return tape.op(l.in_bytes, {dbn}, l.workspace);
}

inline void optimizer(Tape& tape, const std::vector<uint32_t>& weight_grads) {
    for (const uint32_t g : weight_grads) tape.op(4, {g});
}

// Bottleneck blocks with skips, four stages as in He et al. 2016, figure 5.
inline std::vector<Buffer> resnet_step(std::vector<int> blocks, size_t batch) {
    struct Block {
        ConvLayer a, b, c;
        uint32_t out = 0;
    };
    Tape tape;
    std::vector<Block> net;
    std::vector<uint32_t> weight_grads;
    size_t pixels = 56 * 56;
    size_t in_channels = 64;
    uint32_t x = tape.op(batch * in_channels * pixels * 4, {});
    for (size_t stage = 0; stage < blocks.size(); ++stage) {
        const size_t mid = size_t{64} << stage;
        for (int i = 0; i < blocks[stage]; ++i) {
            const size_t unit = batch * pixels * 4;
            const size_t out_pixels = i == 0 && stage > 0 ? pixels / 4 : pixels;
            const size_t out = batch * out_pixels * 4;
            Block b;
            b.a = conv_forward(tape, x, in_channels * unit, mid * unit, mid, in_channels * mid * 4,
                               0);
            b.b = conv_forward(tape, b.a.out, mid * unit, mid * out, mid, mid * mid * 36,
                               mid * mid * 64);
            b.c = conv_forward(tape, b.b.out, mid * out, 4 * mid * out, 4 * mid, mid * mid * 16, 0);
            b.out = tape.op(4 * mid * out, {x, b.c.out});  // the skip
            x = b.out;
            in_channels = 4 * mid;
            pixels = out_pixels;
            net.push_back(b);
        }
    }
    uint32_t grad = tape.op(batch * pixels * in_channels * 4, {x});
    for (size_t i = net.size(); i-- > 0;) {
        const Block& b = net[i];
        uint32_t g = conv_backward(tape, b.c, grad, weight_grads);
        g = conv_backward(tape, b.b, g, weight_grads);
        g = conv_backward(tape, b.a, g, weight_grads);
        const size_t in_bytes = b.a.in_bytes;
        grad = tape.op(in_bytes, {g, grad});
    }
    optimizer(tape, weight_grads);
    return tape.buffers;
}

// Down and up again, with a skip across at each depth (Ronneberger et al. 2015).
inline std::vector<Buffer> unet_step(int depth, size_t batch, size_t side) {
    Tape tape;
    std::vector<uint32_t> weight_grads;
    std::vector<ConvLayer> down, up;
    std::vector<uint32_t> joined, pooled;
    const auto bytes = [&](int d, size_t channels) {
        return batch * (side >> d) * (side >> d) * channels * 4;
    };
    uint32_t x = tape.op(bytes(0, 3), {});
    size_t in = 3;
    for (int d = 0; d < depth; ++d) {
        const size_t c = size_t{32} << d;
        for (int i = 0; i < 2; ++i, in = c) {
            down.push_back(conv_forward(tape, x, bytes(d, in), bytes(d, c), c, in * c * 36, 0));
            x = down.back().out;
        }
        if (d + 1 < depth) x = tape.op(bytes(d + 1, c), {x});
        pooled.push_back(x);
    }
    for (int d = depth - 1; d-- > 0;) {
        const size_t c = size_t{32} << d;
        const uint32_t wide = tape.op(bytes(d, c), {x});
        joined.push_back(tape.op(bytes(d, 2 * c), {wide, down[2 * d + 1].out}));
        x = joined.back();
        for (int i = 0; i < 2; ++i) {
            const size_t from = i == 0 ? 2 * c : c;
            up.push_back(conv_forward(tape, x, bytes(d, from), bytes(d, c), c, from * c * 36, 0));
            x = up.back().out;
        }
    }
    uint32_t grad = tape.op(bytes(0, 32), {x});
    std::vector<uint32_t> skip_grads(depth, 0);
    for (int d = 0; d + 1 < depth; ++d) {
        const size_t c = size_t{32} << d;
        for (int i = 0; i < 2; ++i) {
            grad = conv_backward(tape, up.back(), grad, weight_grads);
            up.pop_back();
        }
        skip_grads[d] = tape.op(bytes(d, c), {grad});
        const uint32_t dwide = tape.op(bytes(d, c), {grad});
        grad = tape.op(bytes(d + 1, 2 * c), {dwide});
    }
    for (int d = depth - 1; d >= 0; --d) {
        const size_t c = size_t{32} << d;
        if (d + 1 < depth) {
            grad = tape.op(bytes(d, c), {grad, pooled[d]});
            grad = tape.op(bytes(d, c), {grad, skip_grads[d]});
        }
        for (int i = 0; i < 2; ++i) {
            grad = conv_backward(tape, down.back(), grad, weight_grads);
            down.pop_back();
        }
    }
    optimizer(tape, weight_grads);
    return tape.buffers;
}

// Attention blocks of a transformer; scores are kept for backward.
inline std::vector<Buffer> transformer_step(int layers, size_t tokens, size_t width) {
    struct Block {
        uint32_t in, normal, qkv, scores, mixed, sum, normal2, hidden, gelu;
    };
    Tape tape;
    std::vector<Block> net;
    std::vector<uint32_t> weight_grads;
    const size_t act = tokens * width * 4;
    const size_t att = tokens * tokens * 4 * (width / 64);
    const size_t w = width * width * 4;
    uint32_t x = tape.op(act, {});
    for (int i = 0; i < layers; ++i) {
        Block b = {};
        b.in = x;
        b.normal = tape.op(act, {x});
        b.qkv = tape.op(3 * act, {b.normal});
        b.scores = tape.op(att, {tape.op(att, {b.qkv})});
        b.mixed = tape.op(act, {b.scores, b.qkv});
        b.sum = tape.op(act, {x, tape.op(act, {b.mixed})});
        b.normal2 = tape.op(act, {b.sum});
        b.hidden = tape.op(4 * act, {b.normal2});
        b.gelu = tape.op(4 * act, {b.hidden});
        x = tape.op(act, {b.sum, tape.op(act, {b.gelu})});
        net.push_back(b);
    }
    uint32_t g = tape.op(act, {x});
    for (size_t i = net.size(); i-- > 0;) {
        const Block& b = net[i];
        weight_grads.push_back(tape.op(4 * w, {g, b.gelu}));
        const uint32_t dgelu = tape.op(4 * act, {tape.op(4 * act, {g}), b.hidden});
        weight_grads.push_back(tape.op(4 * w, {dgelu, b.normal2}));
        const uint32_t dn2 = tape.op(act, {tape.op(act, {dgelu}), b.sum});
        g = tape.op(act, {g, dn2});
        weight_grads.push_back(tape.op(w, {g, b.mixed}));
        const uint32_t dmixed = tape.op(act, {g});
        const uint32_t dscores = tape.op(att, {dmixed, b.qkv});
        const uint32_t dsoft = tape.op(att, {dscores, b.scores});
        const uint32_t dqkv = tape.op(3 * act, {dsoft, dmixed, b.scores, b.qkv});
        weight_grads.push_back(tape.op(3 * w, {dqkv, b.normal}));
        const uint32_t dn = tape.op(act, {tape.op(act, {dqkv}), b.in});
        g = tape.op(act, {g, dn});
    }
    optimizer(tape, weight_grads);
    return tape.buffers;
}

// No structure at all: the hard case.
inline std::vector<Buffer> random_buffers(uint32_t seed, int count, uint32_t steps,
                                          size_t max_bytes) {
    std::mt19937 random(seed);
    std::vector<Buffer> buffers;
    for (int i = 0; i < count; ++i) {
        const uint32_t a = random() % steps;
        const uint32_t b = random() % steps;
        buffers.push_back({.id = static_cast<uint32_t>(i),
                           .live = {std::min(a, b), std::max(a, b) + uint32_t{random() % 2 == 0}},
                           .bytes = random() % (max_bytes + 1),
                           .align = size_t{1} << random() % 9});
    }
    return buffers;
}

}  // namespace megjit::memory
