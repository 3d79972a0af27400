#include "backends/halide/operands.h"

#include "backends/halide/emit_scalar.h"

namespace megjit::halide_backend {

using namespace Halide::Internal;
using codegen::Inner;
using codegen::Operand;
using Halide::cast;
using Halide::Type;

namespace {

constexpr char kMemory[] = "memory";

Expr element(const Type& type, const std::string& array, const Expr& index, const Expr& mask) {
    return Load::make(type, array, index, {}, Halide::Parameter(), mask, ModulusRemainder());
}

Expr argument(const Type& type, const char* array, size_t position) {
    return element(type, array, make_const(Halide::Int(64), static_cast<int64_t>(position)),
                   const_true());
}

}  // namespace

Piece partial(Code& code, const Expr& at, int lanes, const Expr& left) {
    const Expr numbers = Ramp::make(Expr(0), Expr(1), lanes);
    return {.at = at,
            .lanes = lanes,
            .left = left,
            .mask = code.let("mask", LT::make(numbers, Broadcast::make(left, lanes)))};
}

Operands::Arguments Operands::of_kernel_fn() {
    return {
        .input = [](size_t i) { return argument(Halide::Handle(), "inputs", i); },
        .output = [](size_t k) { return argument(Halide::Handle(), "outputs", k); },
        .extent = [](size_t axis) { return argument(Halide::Int(64), "extents", axis); },
        .stride = [](size_t position) { return argument(Halide::Int(64), "strides", position); }};
}

Operands::Operands(const codegen::KernelIR& kernel, Code& code, const Arguments& arguments)
    : kernel_(kernel) {
    const size_t inputs = kernel.inputs.size(), rank = static_cast<size_t>(kernel.rank);
    const size_t strides = (inputs + kernel.outputs.size()) * rank;
    for (size_t axis = 0; axis < rank; ++axis)
        extents_.push_back(code.let("extent", arguments.extent(axis)));
    for (size_t i = 0; i < strides; ++i)
        strides_.push_back(code.let("stride", arguments.stride(i)));
    size_t next = strides;
    for (size_t i = 0; i < inputs; ++i) {
        gather_strides_.push_back(
            kernel.inputs[i].by < 0 ? Expr() : code.let("gather", arguments.stride(next++)));
        pointers_.push_back(kernel.inputs[i].is_offset ? Expr()
                                                       : code.let("input", arguments.input(i)));
    }
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        pointers_.push_back(code.let("output", arguments.output(k)));
}

Bases Operands::start() const {
    return Bases(kernel_.inputs.size() + kernel_.outputs.size(), make_zero(Halide::Int(64)));
}

Bases Operands::moved(Code& code, const Bases& bases, int axis, const Expr& index) const {
    Bases result;
    for (size_t operand = 0; operand < bases.size(); ++operand)
        result.push_back(code.let("base", bases[operand] + index * stride(operand, axis)));
    return result;
}

Bases Operands::at_position(Code& code, Expr index, int axes) const {
    Bases bases = start();
    for (int axis = axes - 1; axis > 0; --axis) {
        const Expr size = cast<uint64_t>(extent(axis)), rest = cast<uint64_t>(index);
        bases = moved(code, bases, axis, code.let("at", cast<int64_t>(rest % size)));
        index = code.let("rest", cast<int64_t>(rest / size));
    }
    return axes > 0 ? moved(code, bases, 0, index) : bases;
}

// Offsets of the lanes: one where all have the same, a ramp where they are neighbours, else one a
// lane. `in_bounds`: lanes that are not there take the offset of the last one that is.
Expr Operands::lane_offsets(const Operand& operand, size_t number, const Expr& base,
                            const Piece& piece, bool in_bounds) const {
    if (operand.inner == Inner::broadcast) return base;
    const int lanes = piece.lanes;
    const Expr step = operand.inner == Inner::contiguous ? make_one(Halide::Int(64))
                                                         : stride(number, kernel_.lane_axis());
    const Expr first = base + piece.at * step;
    if (!in_bounds || !piece.left.defined())
        return lanes == 1 ? first : Ramp::make(first, step, lanes);
    const Expr lane =
        Min::make(Ramp::make(Expr(0), Expr(1), lanes), Broadcast::make(piece.left - 1, lanes));
    return Add::make(
        Broadcast::make(first, lanes),
        Mul::make(Cast::make(Halide::Int(64, lanes), lane), Broadcast::make(step, lanes)));
}

Expr Operands::load(Code& code, size_t i, const Bases& bases, const Piece& piece) const {
    const Operand& input = kernel_.inputs[i];
    if (input.is_offset) {  // i32 by contract, so that 32 bits of base and stride are enough
        const Expr offsets = lane_offsets(input, i, bases[i], piece, false);
        const Ramp* ramp = offsets.as<Ramp>();
        if (!ramp) return code.let("offset", cast<int32_t>(offsets));
        return code.let("offset", Ramp::make(cast<int32_t>(ramp->base), cast<int32_t>(ramp->stride),
                                             ramp->lanes));
    }
    // Neighbours are read under the mask, all others without one: a mask would be a branch for each
    // lane. What a gather goes by must hold in every lane.
    const Expr by = input.by < 0 ? Expr() : [&] {
        const auto index = static_cast<size_t>(input.by);
        const Expr offsets = lane_offsets(kernel_.inputs[index], index, bases[index], piece, true);
        const Expr value = Let::make(kMemory, pointers_[index],
                                     element(Halide::Int(32, offsets.type().lanes()), kMemory,
                                             offsets, const_true(offsets.type().lanes())));
        return code.let("by", Cast::make(Halide::Int(64, value.type().lanes()), value));
    }();
    const bool by_lane = by.defined() && by.type().is_vector();
    const Expr base = by.defined() && !by_lane ? bases[i] + by * gather_strides_[i] : bases[i];
    const bool is_dense = input.inner == Inner::contiguous && !by_lane;
    Expr offsets = lane_offsets(input, i, base, piece, !is_dense);
    if (by_lane)
        offsets = Add::make(spread(offsets, piece.lanes),
                            Mul::make(by, spread(gather_strides_[i], piece.lanes)));
    const int lanes = offsets.type().lanes();
    const Expr mask = is_dense && piece.mask.defined() ? piece.mask : const_true(lanes);
    const Expr stored = code.let(
        "stored", Let::make(kMemory, pointers_[i],
                            element(storage_type(input.dtype, lanes), kMemory, offsets, mask)));
    return code.let("v", widen(input.dtype, stored));
}

void Operands::store(Code& code, size_t k, const Bases& bases, const Piece& piece,
                     const Expr& value) const {
    Operand output = kernel_.outputs[k];
    if (kernel_.reduced == 0) output.inner = Inner::contiguous;  // by contract
    const size_t number = kernel_.inputs.size() + k;
    const Expr offsets = lane_offsets(output, number, bases[number], piece, false);
    const int lanes = offsets.type().lanes();
    const Expr stored = shorten(output.dtype, spread(value, lanes));
    const Expr mask = lanes > 1 && piece.mask.defined() ? piece.mask : const_true(lanes);
    code.add(LetStmt::make(
        kMemory, pointers_[number],
        Store::make(kMemory, stored, offsets, Halide::Parameter(), mask, ModulusRemainder())));
}

}  // namespace megjit::halide_backend
