#include "tests/fuzz/random_graphs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"
#include "tests/codegen/random_kernels.h"
#include "tests/fuzz/random_convolution.h"
#include "tests/fuzz/rounding.h"

namespace megjit::fuzz {
namespace {

using codegen::Random;
using runtime::Attr;
using runtime::Attrs;
using runtime::DType;
using runtime::OpDef;
using runtime::Promotion;
using runtime::Shape;
using runtime::Type;
using Ints = std::vector<int64_t>;

constexpr int64_t kMostElements = 4096;
constexpr double kLargest = 1e4;  // of tame values

const std::vector<DType> kNumbers = {DType::f32, DType::f32,  DType::f32, DType::f32,
                                     DType::f16, DType::bf16, DType::i32, DType::i16,
                                     DType::i8,  DType::u8,   DType::u16};
const std::vector<DType> kFloats = {DType::f32, DType::f32, DType::f32, DType::f16, DType::bf16};
const std::vector<DType> kIntegers = {DType::i32, DType::i16, DType::i8, DType::u8, DType::u16};

const std::vector<const OpDef*>& elementwise_ops() {
    static const std::vector<const OpDef*> ops = [] {
        std::vector<const OpDef*> found = runtime::all_ops();
        std::erase_if(found,
                      [](const OpDef* op) { return !op->is_elementwise() || op->name == "cast"; });
        return found;
    }();
    return ops;
}

// Adds nodes one by one, and computes each at once: an op is taken only if its results are of use.
class Builder {
public:
    Builder(uint64_t seed, Temper temper) : random_(seed), temper_(temper) {}

    Subject run() {
        draw_spaces();
        const int64_t inputs = random_.range(1, 4),
                      wanted = random_.range(0, 3) ? random_.range(2, 9) : random_.range(10, 24);
        for (int64_t i = 0; i < inputs; ++i) add_input({random_.pick(kNumbers), part_of_a_space()});
        for (int64_t tries = 0; tries < 6 * wanted && nodes_ < wanted; ++tries) step();
        choose_outputs();
        return std::move(subject_);
    }

private:
    using Found = std::optional<ValueId>;

    // --- values

    const Type& type(ValueId id) const { return subject_.graph.type(id); }
    const TensorRef& data(ValueId id) const { return data_[jit::at(id)]; }
    void know(ValueId id, TensorRef tensor, double tolerance) {
        data_.resize(subject_.graph.value_count());
        subject_.tolerance.resize(subject_.graph.value_count());
        data_[jit::at(id)] = std::move(tensor);
        subject_.tolerance[jit::at(id)] = tolerance;
        pool_.push_back(id);
    }
    // One of the latest, mostly: programs have long paths then.
    ValueId pick() {
        return random_.range(0, 2) ? pool_[pool_.size() - 1 -
                                           static_cast<size_t>(random_.range(
                                               0, std::min<int64_t>(3, std::ssize(pool_) - 1)))]
                                   : random_.pick(pool_);
    }

    TensorRef draw(const Type& of) {
        TensorRef tensor = runtime::empty_tensor(runtime::host_device(), of);
        if (temper_ == Temper::wild) {
            random_.fill(of.dtype, tensor->data(), of.numel());
            return tensor;
        }
        for (int64_t i = 0; i < of.numel(); ++i) {
            const auto x = static_cast<float>(random_.range(-512, 512)) / 256;
            const bool is_signed = info(of.dtype).is_signed;
            const uint32_t bits = of.dtype == DType::f32    ? std::bit_cast<uint32_t>(x)
                                  : of.dtype == DType::f16  ? runtime::float_to_half(x)
                                  : of.dtype == DType::bf16 ? runtime::float_to_bfloat(x)
                                  : of.dtype == DType::b8
                                      ? static_cast<uint32_t>(random_.range(0, 1))
                                      : static_cast<uint32_t>(random_.range(is_signed ? -5 : 0, 9));
            std::memcpy(tensor->as<char>() + static_cast<size_t>(i) * size_of(of.dtype), &bits,
                        size_of(of.dtype));
        }
        return tensor;
    }

    ValueId add_input(const Type& of) {
        const ValueId id = subject_.graph.add_input(of, static_cast<int>(subject_.inputs.size()));
        subject_.inputs.push_back(draw(of));
        know(id, subject_.inputs.back(), 0);
        return id;
    }
    ValueId number(DType dtype) {
        static const std::vector<double> numbers = {0, 1, -1, 2, 0.5, -0.25, 3, 0.1, 7};
        const double value = dtype == DType::b8 ? random_.range(0, 1) : random_.pick(numbers);
        const TensorRef tensor =
            runtime::scalar_tensor(info(dtype).is_signed ? value : std::fabs(value), dtype);
        const ValueId id = subject_.graph.add_constant(tensor);
        know(id, tensor, 0);
        pool_.pop_back();  // an operand of one node, no value to go on with
        return id;
    }

    // --- nodes

    std::optional<std::vector<ValueId>> apply_n(const OpDef& op, const Attrs& attrs,
                                                std::vector<ValueId> inputs) {
        const std::vector<Type> types = subject_.graph.types(inputs);
        std::vector<TensorRef> operands;
        std::vector<double> off;
        for (ValueId input : inputs)
            operands.push_back(data(input)), off.push_back(subject_.tolerance[jit::at(input)]);
        std::vector<Type> outputs;
        std::vector<TensorRef> results;
        try {
            outputs = runtime::infer({op, attrs, types});
            for (const Type& output : outputs)
                if (output.numel() > kMostElements) return std::nullopt;
            results = runtime::compute(op, attrs, operands);
        } catch (const runtime::UserError&) { return std::nullopt; }
        std::optional<std::vector<double>> tolerance(std::in_place, results.size(), 0.0);
        if (temper_ == Temper::tame) {
            for (const TensorRef& result : results)
                if (!is_finite(*result) || largest(*result) > kLargest) return std::nullopt;
            tolerance = deviations(op, attrs, operands, off, results,
                                   may_round_otherwise(subject_.graph, op, inputs, outputs[0]));
            if (!tolerance) return std::nullopt;
        }
        const std::vector<ValueId> ids = subject_.graph.add(
            {.kind = jit::NodeKind::op, .op = &op, .attrs = attrs, .inputs = std::move(inputs)},
            outputs);
        for (size_t k = 0; k < ids.size(); ++k) know(ids[k], results[k], (*tolerance)[k]);
        ++nodes_;
        return ids;
    }
    Found apply(std::string_view name, const Attrs& attrs, std::vector<ValueId> inputs) {
        const auto ids = apply_n(runtime::find_op(name), attrs, std::move(inputs));
        return ids ? Found((*ids)[0]) : Found();
    }

    Found as_type(ValueId id, DType dtype) {
        return type(id).dtype == dtype ? Found(id)
                                       : apply("cast", {std::string(info(dtype).name)}, {id});
    }
    Found as_one_of(ValueId id, const std::vector<DType>& dtypes) {
        return std::find(dtypes.begin(), dtypes.end(), type(id).dtype) != dtypes.end()
                   ? Found(id)
                   : as_type(id, random_.pick(dtypes));
    }
    // A value of the type that goes together with `id`'s shape.
    Found partner(ValueId id, DType dtype) {
        if (random_.range(0, 4) == 0) return number(dtype);
        for (int tries = 0; tries < 8; ++tries) {
            const ValueId other = pick();
            const auto both = runtime::broadcast(type(id).shape, type(other).shape);
            if (!both || both->numel() > kMostElements) continue;
            if (type(other).dtype == dtype || tries > 4) return as_type(other, dtype);
        }
        return type(id).dtype == dtype ? Found(id) : number(dtype);
    }

    // --- kinds of steps

    void step() {
        switch (random_.range(0, 19)) {
            case 0: as_type(pick(), random_.pick(codegen::kScalarDTypes)); return;
            case 1:
            case 2:
            case 3: reduce(); return;
            case 4:
            case 5: move(); return;
            case 6: normalize(); return;
            case 7: softmax(); return;
            case 8: gradient(); return;
            case 9: random_.range(0, 2) ? convolve() : barrier(); return;
            default: elementwise();
        }
    }

    void elementwise() {
        const OpDef& op = *random_.pick(elementwise_ops());
        Found x = pick();
        if (op.name == "where") {
            x = as_type(*x, DType::b8);
        } else {
            switch (op.promotion) {
                case Promotion::boolean: x = as_type(*x, DType::b8); break;
                case Promotion::integer: x = as_one_of(*x, kIntegers); break;
                case Promotion::floating: x = as_one_of(*x, kFloats); break;
                case Promotion::arithmetic: x = as_one_of(*x, kNumbers); break;
                case Promotion::none: break;
            }
        }
        if (!x) return;
        DType dtype = type(*x).dtype;
        std::vector<ValueId> inputs{*x};
        if (op.name == "where") dtype = random_.pick(codegen::kScalarDTypes);
        while (inputs.size() < op.inputs.size()) {
            const Found other = partner(inputs[0], dtype);
            if (!other) return;
            inputs.push_back(*other);
        }
        if (inputs.size() == 2 && random_.range(0, 2) == 0) std::swap(inputs[0], inputs[1]);
        Attrs attrs;
        for (const runtime::AttrSpec& attr : op.attrs) attrs.push_back(*attr.fallback);
        if (apply_n(op, attrs, inputs) || inputs.size() > 1 || !is_floating(dtype)) return;
        // Tame values must lie where the function is defined.
        Found inside = random_.range(0, 1) ? apply("tanh", {}, {*x}) : apply("abs", {}, {*x});
        if (inside && random_.range(0, 1))
            inside = apply("add", {}, {*inside, number(type(*inside).dtype)});
        if (inside) apply_n(op, attrs, {*inside});
    }

    // Null where there is none: that of digamma, be it in the derivative of another op.
    static auto derivative(const runtime::OpDef& op, std::span<const Type> inputs,
                           const Type& output, int input)
        -> decltype(runtime::derive_grad(op, inputs, output, input)) {
        try {
            return runtime::derive_grad(op, inputs, output, input);
        } catch (const runtime::UserError&) { return nullptr; }
    }

    // The derivative of an element-wise node that is there already.
    void gradient() {
        const jit::Node node = subject_.graph.producer(pick());
        if (node.kind != jit::NodeKind::op || !node.op->is_elementwise()) return;
        const std::vector<Type> types = subject_.graph.types(node.inputs);
        const Type output = type(node.outputs[0]);
        const int input = static_cast<int>(random_.range(0, std::ssize(node.inputs) - 1));
        const auto* grad = derivative(*node.op, types, output, input);
        if (!grad || grad->is_identity) return;
        const Found dy = partner(node.outputs[0], output.dtype);
        if (!dy) return;
        std::vector<ValueId> all = node.inputs, operands;
        all.push_back(node.outputs[0]);
        all.push_back(*dy);
        for (int operand : grad->operands) operands.push_back(all[static_cast<size_t>(operand)]);
        apply_n(*grad->op, node.attrs, operands);
    }

    void reduce() {
        static const std::vector<std::string> kinds = {"reduce_sum",  "reduce_sum", "reduce_mean",
                                                       "reduce_prod", "reduce_max", "reduce_min",
                                                       "argmax",      "argmin"};
        const ValueId x = pick();
        const int rank = type(x).rank();
        if (rank == 0) return;
        const std::string& kind = random_.pick(kinds);
        const Attr keep = random_.range(0, 1);
        if (kind.starts_with("arg")) {
            apply(kind, {random_.range(0, rank - 1), keep}, {x});
            return;
        }
        Ints axes;
        while (axes.empty()) axes = some_axes(rank);
        apply(kind, {axes, keep}, {x});
    }
    Ints some_axes(int rank) {
        Ints axes;
        if (random_.range(0, 2) == 0) return {rank - 1};
        for (int axis = 0; axis < rank; ++axis)
            if (random_.range(0, 1)) axes.push_back(axis);
        return axes;
    }

    void move() {
        const ValueId x = pick();
        const Shape& shape = type(x).shape;
        const int rank = shape.rank();
        Ints extents(shape.begin(), shape.end());
        switch (random_.range(0, 4)) {
            case 0:
            case 1: {
                Ints perm(static_cast<size_t>(rank));
                std::iota(perm.begin(), perm.end(), 0);
                for (int axis = rank - 1; axis > 0; --axis)
                    std::swap(perm[static_cast<size_t>(axis)],
                              perm[static_cast<size_t>(random_.range(0, axis))]);
                if (rank > 1) apply("transpose", {perm}, {x});
                return;
            }
            case 2:  // two axes become one, or an axis of extent 1 comes in
                if (rank > 1 && random_.range(0, 1)) {
                    const auto axis = static_cast<size_t>(random_.range(0, rank - 2));
                    extents[axis] *= extents[axis + 1];
                    extents.erase(extents.begin() + static_cast<ptrdiff_t>(axis) + 1);
                } else if (rank < 5) {
                    extents.insert(extents.begin() + random_.range(0, rank), 1);
                }
                apply("reshape", {extents}, {x});
                return;
            default:
                if (random_.range(0, 2) == 0 && rank < 5)
                    extents.insert(extents.begin(), random_.range(1, 4));
                for (int64_t& extent : extents)
                    if (extent == 1) extent = random_.range(0, 1) ? random_.range(1, 8) : 1;
                if (extents.size() > static_cast<size_t>(rank) ||
                    extents != Ints(shape.begin(), shape.end()))
                    apply("broadcast_to", {extents}, {x});
        }
    }

    // softmax or log_softmax, and often its gradient as tapes write it.
    void softmax() {
        const Found x = as_one_of(pick(), kFloats);
        if (!x || type(*x).rank() == 0) return;
        const bool log = random_.range(0, 1);
        const int64_t axis =
            random_.range(0, 1) ? type(*x).rank() - 1 : random_.range(0, type(*x).rank() - 1);
        const Found y = apply(log ? "log_softmax" : "softmax", {axis}, {*x});
        const Found dy = y && random_.range(0, 1) ? partner(*y, type(*y).dtype) : Found();
        if (!dy) return;
        const Attrs along = {Ints{axis}, int64_t{1}};
        const Found spread =
            apply("broadcast_to", {Ints(type(*y).shape.begin(), type(*y).shape.end())}, {*dy});
        const Found product = spread ? (log ? spread : apply("mul", {}, {*y, *spread})) : Found();
        const Found sum = product ? apply("reduce_sum", along, {*product}) : Found();
        if (!sum) return;
        if (!log) {
            if (const Found rest = apply("sub", {}, {*spread, *sum})) apply("mul", {}, {*y, *rest});
        } else if (const Found e = apply("exp", {}, {*y})) {
            if (const Found part = apply("mul", {}, {*e, *sum})) apply("sub", {}, {*spread, *part});
        }
    }

    void normalize() {
        const Found x = as_one_of(pick(), kFloats);
        if (!x || type(*x).rank() < 2) return;
        const Type of = type(*x);
        const bool is_batch = random_.range(0, 1), affine = is_batch || random_.range(0, 1),
                   has_grad = random_.range(0, 1);
        const int64_t axes = random_.range(1, of.rank() - 1);
        Shape inner;
        if (is_batch) inner.push_back(of.shape[1]);
        else
            for (int64_t axis = of.rank() - axes; axis < of.rank(); ++axis)
                inner.push_back(of.shape[static_cast<int>(axis)]);
        std::vector<ValueId> inputs{*x};
        if (affine)
            inputs.push_back(add_input({of.dtype, inner})),
                inputs.push_back(add_input({of.dtype, inner}));
        const Attr eps =
            0.1;  // small enough to matter, large enough for rows that are nearly constant
        const auto y = is_batch ? apply_n(runtime::find_op("batch_norm"), {eps}, inputs)
                                : apply_n(runtime::find_op("layer_norm"),
                                          {axes, eps, int64_t{affine}}, inputs);
        const Found dy = y && has_grad ? as_type(pick(), of.dtype) : Found();
        const Found spread =
            dy ? apply("broadcast_to", {Ints(of.shape.begin(), of.shape.end())}, {*dy}) : Found();
        if (!spread) return;
        if (is_batch) {
            apply("batch_norm_grad", {eps}, {*x, (*y)[1], (*y)[2], inputs[1], *spread});
        } else {
            std::vector<ValueId> operands{*x, (*y)[1], (*y)[2], *spread};
            if (affine) operands.push_back(inputs[1]);
            apply("layer_norm_grad", {axes, int64_t{affine}}, operands);
        }
    }

    // A convolution, mostly with what stands behind one in a network, and often its gradients.
    void convolve() {
        Found x = as_one_of(pick(), kFloats);
        if (!x || type(*x).rank() < 3 || type(*x).rank() > 5)
            x = add_input({random_.pick(kFloats), random_images(random_)});
        const RandomConvolution conv = random_convolution(random_, type(*x).shape);
        const ValueId w = add_input({type(*x).dtype, conv.w});
        const Found y = apply("conv", conv.window, {*x, w});
        if (!y) return;
        const Type of = type(*y);
        Shape channels = of.shape;
        for (int axis = 0; axis < channels.rank(); ++axis)
            if (axis != 1) channels[axis] = 1;
        Found last = y;
        if (random_.range(0, 1)) last = apply("add", {}, {*y, add_input({of.dtype, channels})});
        if (last && random_.range(0, 1)) last = apply("relu", {}, {*last});
        if (!last || random_.range(0, 1)) return;
        Found dy = add_input(of);
        if (random_.range(0, 1)) dy = apply("mul", {}, {*dy, *last});
        if (dy && random_.range(0, 3))
            apply("conv_backward_data", conv.of_gradient(conv.x), {*dy, w});
        if (dy && random_.range(0, 3))
            apply("conv_backward_filter", conv.of_gradient(conv.w), {*x, *dy});
    }

    // A product with weights of 8 bits, which a kernel makes as it reads them where rows are few.
    void small_weights(ValueId a) {
        const Found x = as_type(a, DType::f32);
        if (!x) return;
        const int64_t terms = type(*x).shape[type(*x).rank() - 1], columns = random_.range(1, 19);
        Found weights = as_type(add_input({DType::i8, {columns, terms}}), DType::f32);
        if (weights && random_.range(0, 1))
            weights = apply("mul", {}, {*weights, add_input({DType::f32, {columns, 1}})});
        if (weights) apply("matmul", {int64_t{0}, int64_t{1}}, {*x, *weights});
    }

    // What no kernel takes in.
    void barrier() {
        const ValueId x = pick();
        const Shape shape = type(x).shape;
        const int rank = shape.rank();
        if (rank == 0) return;
        switch (random_.range(0, 2)) {
            case 0: {
                const Found a = as_one_of(x, kFloats);
                if (rank < 2 || !a) return;
                if (random_.range(0, 1)) return small_weights(*a);
                const bool turned = random_.range(0, 1);
                const int64_t terms = shape[rank - 1], columns = random_.range(1, 40);
                const Shape weights = turned ? Shape{columns, terms} : Shape{terms, columns};
                apply("matmul", {int64_t{0}, int64_t{turned}},
                      {*a, add_input({type(*a).dtype, weights})});
                return;
            }
            case 1: {
                Ints begin, end, step;
                for (int64_t extent : shape) {
                    begin.push_back(extent ? random_.range(0, std::min<int64_t>(extent - 1, 2))
                                           : 0);
                    end.push_back(extent);
                    step.push_back(random_.range(1, 2));
                }
                apply("slice", {begin, end, step}, {x});
                return;
            }
            default: apply("concat", {random_.range(0, rank - 1)}, {x, x});
        }
    }

    // --- shapes and outputs

    void draw_spaces() {
        static const Ints extents = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64, 100};
        const bool has_empty = random_.range(0, 39) == 0;
        for (int64_t i = random_.range(1, 2); i > 0; --i) {
            Shape space;
            for (int64_t rank = random_.range(0, 4); rank > 0; --rank) {
                const int64_t extent =
                    has_empty && random_.range(0, 2) == 0 ? 0 : random_.pick(extents);
                if (space.numel() * extent <= kMostElements / 2) space.push_back(extent);
            }
            spaces_.push_back(space);
        }
    }
    Shape part_of_a_space() {
        const Shape space = random_.pick(spaces_);
        Shape shape;
        const int64_t dropped = random_.range(0, 3) ? 0 : random_.range(0, space.rank());
        for (int axis = 0; axis < space.rank(); ++axis)
            if (axis >= dropped) shape.push_back(random_.range(0, 5) ? space[axis] : 1);
        return shape;
    }

    // All that nobody reads, and some that others read too.
    void choose_outputs() {
        std::vector<bool> is_read(subject_.graph.value_count());
        for (const jit::Node& node : subject_.graph.nodes())
            for (ValueId input : node.inputs) is_read[jit::at(input)] = true;
        for (ValueId id : pool_)
            if (subject_.graph.producer(id).kind == jit::NodeKind::op &&
                (!is_read[jit::at(id)] || random_.range(0, 9) == 0))
                subject_.graph.outputs.push_back(id);
        if (subject_.graph.outputs.empty()) subject_.graph.outputs.push_back(pool_.back());
    }

    Random random_;
    Temper temper_;
    Subject subject_;
    std::vector<TensorRef> data_;  // by value
    std::vector<ValueId> pool_;
    std::vector<Shape> spaces_;
    int64_t nodes_ = 0;
};

}  // namespace

Subject random_subject(uint64_t seed, Temper temper) { return Builder(seed, temper).run(); }

}  // namespace megjit::fuzz
