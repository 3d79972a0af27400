// dequantize_blocks, matmul_of_blocks -- weights in blocks of few bits (block_weights.h).
// Rules: B1 blocks are uint8, at least [blocks, bytes]; of a product [rows, blocks, bytes]
//        B2 bits is 4 or 8    B3 a block has 2 bytes and 32, 64 or 128 elements
//        B4 x is float32, and its last axis is as long as the weights' columns (transposed: rows)
#include "runtime/ops/block_weights.h"

#include <cmath>

#include "runtime/ops/builders.h"
#include "runtime/ops/window.h"

namespace megjit::runtime {
namespace {

// Bit `at` and those above it, of an int32.
TensorRef bits_from(const TensorRef& x, int at) {
    return build::op("right_shift", {x, build::number(at, x)});
}
TensorRef lowest_bits(const TensorRef& x, int mask) {
    return build::op("bit_and", {x, build::number(mask, x)});
}
TensorRef as_float(const TensorRef& x) { return build::cast(x, DType::f32); }

// 2^x of integers from 0 to 31, exactly: a factor for each bit of x.
TensorRef power_of_two(const TensorRef& x) {
    TensorRef power;
    for (int bit = 0; bit < 5; ++bit) {
        const TensorRef is_set = as_float(lowest_bits(bits_from(x, bit), 1));
        const double more = static_cast<double>((uint64_t{1} << (1 << bit)) - 1);
        const TensorRef factor = build::add(build::mul(is_set, more), 1);
        power = power ? build::mul(power, factor) : factor;
    }
    return power;
}

// The float32 that is equal to the float16 whose bits are the lower 16 of an int32.
TensorRef half_of_bits(const TensorRef& bits) {
    const TensorRef exponent = lowest_bits(bits_from(bits, 10), 31),
                    mantissa = lowest_bits(bits, 1023);
    const TensorRef zero = build::number(0, bits);
    const TensorRef is_denormal = build::op("equal", {exponent, zero}),
                    is_infinite = build::op("equal", {exponent, build::number(31, bits)});
    const TensorRef whole = as_float(
        build::where(is_denormal, mantissa, build::add(mantissa, build::number(1024, bits))));
    const TensorRef scale = power_of_two(build::op("maximum", {exponent, build::number(1, bits)}));
    const TensorRef finite = build::mul(build::mul(whole, scale), 0x1p-25);
    const TensorRef special =
        build::where(build::op("equal", {mantissa, zero}), build::number(INFINITY, finite),
                     build::number(NAN, finite));
    const TensorRef number = build::where(is_infinite, special, finite);
    const TensorRef sign =
        build::sub(build::number(1, finite), build::mul(as_float(bits_from(bits, 15)), 2));
    return build::mul(number, sign);
}

// [..., blocks, bytes] -> [..., columns]
Shape shape_of_values(const Shape& blocks, const BlockWeights& w) {
    Shape shape(blocks.extents().first(blocks.rank() - 2));
    shape.push_back(w.columns());
    return shape;
}

std::vector<Type> infer_dequantize(const OpCall& call) {
    return {{DType::f32, shape_of_values(call.inputs[0].shape, block_weights_of(call))}};
}

TensorRef last(const TensorRef& x, int64_t begin, int64_t end) {
    return build::slice(x, x->shape().rank() - 1, begin, end);
}

// [..., bytes] -> [..., group]: the integers of a block as float32, around 0.
TensorRef integers_of(const TensorRef& bytes, const BlockWeights& w) {
    if (w.bits == 8) return as_float(build::cast(bytes, DType::i8));
    const TensorRef whole = build::cast(bytes, DType::i32);
    const TensorRef both = build::op("concat", {lowest_bits(whole, 15), bits_from(whole, 4)},
                                     {int64_t{whole->shape().rank() - 1}});
    return as_float(build::sub(both, build::number(8, both)));
}

TensorRef dequantized(const TensorRef& blocks, const BlockWeights& w) {
    const TensorRef lower = build::cast(last(blocks, 0, 1), DType::i32),
                    upper = build::cast(last(blocks, 1, 2), DType::i32);
    const TensorRef scale = half_of_bits(build::add(lower, build::mul(upper, 256)));
    const TensorRef values = integers_of(last(blocks, w.kScaleBytes, w.block_bytes()), w);
    return build::reshape(build::mul(values, scale), shape_of_values(blocks->shape(), w));
}

// A CPU has kernels of its own for both ops, which never hold all weights as float32.
Tensors expand_dequantize(const OpCall& call, std::span<const TensorRef> inputs) {
    if (inputs[0]->device().is_host()) return {};
    return {dequantized(inputs[0], block_weights_of(call))};
}

std::vector<Type> infer_product(const OpCall& call) {
    const Type &x = call.inputs[0], &blocks = call.inputs[1];
    if (blocks.rank() != 3)
        refuse(call, cat("blocks are [rows, blocks, bytes], not of rank ", blocks.rank()));
    const BlockWeights w = block_weights_of(call);
    if (x.dtype != DType::f32)
        refuse(call, cat("x is float32, not ", info(x.dtype).name), "cast it", ErrorKind::type);
    const bool turned = call.flag("transposed");
    const int64_t from = turned ? w.rows : w.columns(), to = turned ? w.columns() : w.rows;
    if (x.rank() < 1 || x.shape[x.rank() - 1] != from)
        refuse(call,
               cat("the last axis of x has to have ", from, " elements, as many as the ",
                   turned ? "rows" : "columns", " of the weights"),
               "pass activations of the layer that has these weights");
    Shape shape = x.shape;
    shape[shape.rank() - 1] = to;
    return {{DType::f32, shape}};
}

Grads grad_product(const GradCall& g) {
    Grads grads(2);
    if (g.needs[0])
        grads[0] = build::op("matmul_of_blocks", {g.out_grads[0], g.inputs[1]},
                             {g.call.integer("bits"), int64_t{!g.call.flag("transposed")}});
    return grads;
}

Tensors expand_product(const OpCall& call, std::span<const TensorRef> inputs) {
    if (inputs[0]->device().is_host()) return {};
    const BlockWeights w = block_weights_of(call);
    const Shape y = infer_product(call)[0].shape, &x = call.inputs[0].shape;
    const int64_t from = x[x.rank() - 1];
    const TensorRef rows = build::reshape(inputs[0], {from ? x.numel() / from : 0, from});
    const TensorRef product =
        build::product(rows, dequantized(inputs[1], w), false, !call.flag("transposed"));
    return {build::reshape(product, y)};
}

Cost cost_product(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    const auto terms = static_cast<double>(x.shape[x.rank() - 1]);
    return {2 * terms * static_cast<double>(outputs[0].numel()), bytes_of(call, outputs), true};
}

const AttrSpec kBits = {"bits", AttrKind::integer};

}  // namespace

BlockWeights block_weights_of(const OpCall& call) {
    const Type& blocks = call.inputs.back();
    const int rank = blocks.rank();
    const int64_t bits = call.integer("bits");
    if (blocks.dtype != DType::u8)
        refuse(call, cat("blocks are uint8, not ", info(blocks.dtype).name), "quantize the weights",
               ErrorKind::type);
    if (rank < 2) refuse(call, "blocks need at least two axes: [..., blocks, bytes]");
    if (bits != 4 && bits != 8) refuse(call, cat("bits is 4 or 8, not ", bits));
    const int64_t bytes = blocks.shape[rank - 1];
    BlockWeights w{.blocks = blocks.shape[rank - 2],
                   .bits = bits,
                   .group = (bytes - BlockWeights::kScaleBytes) * 8 / bits};
    if ((w.group != 32 && w.group != 64 && w.group != 128) || w.block_bytes() != bytes)
        refuse(call,
               cat("a block of ", bytes, " bytes has no 32, 64 or 128 elements of ", bits, " bits"),
               "a block has 2 bytes more than its elements take");
    const int64_t row_bytes = w.row_bytes();
    w.rows = row_bytes ? blocks.shape.numel() / row_bytes : blocks.shape[0];
    return w;
}

std::vector<OpDef> block_weight_ops() {
    return {
        {.name = "dequantize_blocks",
         .doc = "The float32 values of weights in blocks of few bits: [..., blocks, bytes] gives "
                "[..., blocks * group].",
         .inputs = {"blocks"},
         .attrs = {kBits},
         .infer = infer_dequantize,
         .expand = expand_dequantize},
        {.name = "matmul_of_blocks",
         .doc = "x @ w.T of weights w in blocks of few bits, or x @ w if `transposed` is set.",
         .inputs = {"x", "blocks"},
         .attrs = {kBits, {"transposed", AttrKind::integer, Attr{int64_t{0}}}},
         .infer = infer_product,
         .grad = grad_product,
         .keeps = Keeps::inputs,
         .expand = expand_product,
         .multiplies_rows = true,
         .cost = cost_product}};
}

}  // namespace megjit::runtime
