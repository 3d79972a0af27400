#include "backends/mlir/frame.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace megjit::mlir_backend {

using namespace mlir;
using codegen::Inner;
using codegen::Operand;
using runtime::DType;
using runtime::ScalarInst;
using runtime::ScalarOp;

namespace {

unsigned alignment(DType dtype) { return static_cast<unsigned>(runtime::size_of(dtype)); }

}  // namespace

Frame::Frame(ImplicitLocOpBuilder& builder, const codegen::KernelIR& kernel_ir,
             VectorTarget vectors, Block::BlockArgListType arguments)
    : b(builder),
      kernel(kernel_ir),
      target(vectors),
      scalars(builder, vectors),
      i64(builder.getI64Type()),
      pointer(LLVM::LLVMPointerType::get(builder.getContext())),
      lo(arguments[4]),
      hi(arguments[5]),
      arguments_(arguments) {
    for (int axis = 0; axis < kernel.rank; ++axis)
        extents.push_back(load_number(i64, arguments[2], static_cast<size_t>(axis)));
}

Frame::Frame(ImplicitLocOpBuilder& builder, const codegen::KernelIR& kernel_ir,
             VectorTarget vectors, LaunchValues numbers)
    : b(builder),
      kernel(kernel_ir),
      target(vectors),
      scalars(builder, vectors),
      i64(builder.getI64Type()),
      pointer(LLVM::LLVMPointerType::get(builder.getContext())),
      extents(std::move(numbers.extents)),
      bases(std::move(numbers.bases)),
      strides(std::move(numbers.strides)),
      gather_strides_(std::move(numbers.gather_strides)) {}

void Frame::read_operands() {
    const size_t inputs = kernel.inputs.size(), outputs = kernel.outputs.size(),
                 rank = static_cast<size_t>(kernel.rank);
    size_t gather = (inputs + outputs) * rank;
    for (size_t i = 0; i < inputs; ++i) {
        const Operand& input = kernel.inputs[i];
        bases.push_back(input.is_offset ? index(0) : load_number(pointer, arguments_[0], i));
        gather_strides_.push_back(input.by >= 0 ? load_number(i64, arguments_[3], gather++)
                                                : Value());
    }
    for (size_t k = 0; k < outputs; ++k) bases.push_back(load_number(pointer, arguments_[1], k));
    for (size_t i = 0; i < (kernel.reduced > 0 ? inputs + outputs : inputs); ++i) {
        auto& own = strides.emplace_back();
        for (size_t axis = 0; axis < rank; ++axis)
            own.push_back(load_number(i64, arguments_[3], i * rank + axis));
    }
}

// ---- small words
// -----------------------------------------------------------------------------------

Value Frame::index(int64_t value) {
    return arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
}
Value Frame::add(Value a, Value c) { return arith::AddIOp::create(b, a, c); }
Value Frame::sub(Value a, Value c) { return arith::SubIOp::create(b, a, c); }
Value Frame::mul(Value a, Value c) { return arith::MulIOp::create(b, a, c); }
Value Frame::less(Value a, Value c) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, a, c);
}
Value Frame::equal(Value a, Value c) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, a, c);
}
Value Frame::smaller(Value a, Value c) { return arith::MinSIOp::create(b, a, c); }
Value Frame::splat(Value scalar) {
    return vector::BroadcastOp::create(b, scalars.vector_of(scalar.getType()), scalar);
}
Value Frame::i32_of(Value wide) { return arith::TruncIOp::create(b, b.getI32Type(), wide); }
unsigned Frame::vector_alignment(DType dtype) const {
    return alignment(dtype) * (target.is_aligned ? static_cast<unsigned>(target.width) : 1);
}
Value Frame::zeros(VectorType type) {
    return arith::ConstantOp::create(b, cast<TypedAttr>(b.getZeroAttr(type)));
}

Value Frame::lanes(Type element) {
    SmallVector<Attribute> numbers;
    for (int lane = 0; lane < target.width; ++lane)
        numbers.push_back(b.getIntegerAttr(element, lane));
    return arith::ConstantOp::create(b,
                                     DenseElementsAttr::get(scalars.vector_of(element), numbers));
}

Values Frame::loop(Value from, Value to, int64_t step, const Values& start, const Body& body) {
    auto loop = scf::ForOp::create(b, from, to, index(step), start);
    const OpBuilder::InsertionGuard restore(b);
    b.setInsertionPointToStart(loop.getBody());
    const Values next = body(loop.getInductionVar(), Values(loop.getRegionIterArgs()));
    if (!start.empty()) scf::YieldOp::create(b, next);
    return Values(loop.getResults());
}

void Frame::branch(Value condition, const std::function<void()>& then) {
    auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
    const OpBuilder::InsertionGuard restore(b);
    b.setInsertionPointToStart(branch.thenBlock());
    then();
}

Values Frame::choose(Value condition, TypeRange types, const std::function<Values()>& then,
                     const std::function<Values()>& otherwise) {
    auto branch = scf::IfOp::create(b, types, condition, /*withElseRegion=*/true);
    const OpBuilder::InsertionGuard restore(b);
    b.setInsertionPointToStart(branch.thenBlock());
    const Values first = then();
    if (!types.empty()) scf::YieldOp::create(b, first);
    b.setInsertionPointToStart(branch.elseBlock());
    const Values second = otherwise();
    if (!types.empty()) scf::YieldOp::create(b, second);
    return Values(branch.getResults());
}

Value Frame::offset_by(Type element, Value from, Value elements) {
    return LLVM::GEPOp::create(b, pointer, element, from, ArrayRef<LLVM::GEPArg>{elements});
}

Value Frame::load_number(Type type, Value from, size_t position) {
    return LLVM::LoadOp::create(b, type,
                                offset_by(type, from, index(static_cast<int64_t>(position))));
}

// ---- places
// ----------------------------------------------------------------------------------------

const Operand& Frame::operand(size_t i) const {
    return i < kernel.inputs.size() ? kernel.inputs[i] : kernel.outputs[i - kernel.inputs.size()];
}

Values Frame::moved(const Values& from, const std::function<Value(size_t)>& elements) {
    Values to = from;
    for (size_t i = 0; i < from.size(); ++i) {
        const Value step = elements(i);
        if (!step) continue;
        to[i] = operand(i).is_offset
                    ? add(from[i], step)
                    : offset_by(scalars.storage_type(operand(i).dtype), from[i], step);
    }
    return to;
}

Values Frame::along(const Values& from, int axis, Value steps) {
    return moved(from, [&](size_t i) -> Value {
        if (i >= strides.size() || (axis >= kernel.kept() && operand(i).per_row)) return {};
        return mul(steps, strides[i][static_cast<size_t>(axis)]);
    });
}

bool Frame::is_unit_index(const Operand& index) const {
    return index.inner == Inner::broadcast && (kernel.reduced == 0 || index.per_row);
}

Values Frame::gathered(Values from) {
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
        const Operand& input = kernel.inputs[i];
        if (input.by >= 0 && is_unit_index(kernel.inputs[static_cast<size_t>(input.by)]))
            from[i] = jump(i, from, index(0));
    }
    return from;
}

// Where the index at lane position `at`, the same for all lanes, leads input i.
Value Frame::jump(size_t i, const Values& from, Value at) {
    const auto by = static_cast<size_t>(kernel.inputs[i].by);
    Value place = from[by];
    if (kernel.inputs[by].inner != Inner::broadcast) place = offset_by(b.getI32Type(), place, at);
    const Value number =
        arith::ExtSIOp::create(b, i64, LLVM::LoadOp::create(b, b.getI32Type(), place));
    return offset_by(scalars.storage_type(kernel.inputs[i].dtype), from[i],
                     mul(number, gather_strides_[i]));
}

// ---- pieces
// ----------------------------------------------------------------------------------------

Piece Frame::partial(Value at, Value left) {
    const Value count = splat(i32_of(left));
    return {at, left,
            arith::CmpIOp::create(b, arith::CmpIPredicate::slt, lanes(b.getI32Type()), count)};
}

Piece Frame::either(Value at, Value ahead) {
    return {.at = at,
            .left = ahead,
            .is_whole =
                arith::CmpIOp::create(b, arith::CmpIPredicate::sge, ahead, index(target.width))};
}

Value Frame::mask_of(const Piece& piece) {
    if (!piece.is_whole) return piece.mask;
    return choose(piece.is_whole, scalars.vector_of(b.getI1Type()), [&] {
        return Values{scalars.constant(runtime::ScalarType::b1, 1)};
    }, [&] { return Values{partial(piece.at, piece.left).mask}; })[0];
}

void Frame::evaluate(ArrayRef<int> ids, ArrayRef<Values> at, const Piece& piece,
                     MutableArrayRef<Values> values) {
    SmallVector<size_t> inputs;
    SmallVector<int> loaded;
    for (const int id : ids)
        if (kernel.program[id].op == ScalarOp::input) {
            loaded.push_back(id);
            inputs.push_back(kernel.program[id].bits);
        }
    const Values read = load_all(inputs, at, piece);
    for (size_t n = 0; n < read.size(); ++n) {
        const size_t input = n % inputs.size();
        values[n / inputs.size()][static_cast<size_t>(loaded[input])] =
            scalars.widen(kernel.inputs[inputs[input]].dtype, read[n]);
    }
    for (Values& own : values)
        for (const int id : ids) {
            const ScalarInst& inst = kernel.program[id];
            if (inst.op == ScalarOp::input) continue;
            SmallVector<Value, 3> operands;
            for (int k = 0; k < runtime::arity_of(inst.op); ++k)
                operands.push_back(own[static_cast<size_t>(inst.args[k])]);
            own[static_cast<size_t>(id)] = scalars.emit(kernel.program, id, operands);
        }
}

// As they are stored, base after base.
Values Frame::load_all(ArrayRef<size_t> inputs, ArrayRef<Values> at, const Piece& piece) {
    const auto load_as = [&](const Piece& what) {
        Values loaded;
        for (const Values& own : at)
            for (const size_t i : inputs) loaded.push_back(load(i, own, what));
        return loaded;
    };
    if (!piece.is_whole || inputs.empty()) return load_as(piece);
    SmallVector<Type> types;
    for (size_t n = 0; n < at.size(); ++n)
        for (const size_t i : inputs)
            types.push_back(scalars.storage_vector(kernel.inputs[i].dtype));
    return choose(piece.is_whole, types, [&] { return load_as({piece.at}); },
                  [&] { return load_as(partial(piece.at, piece.left)); });
}

Value Frame::load(size_t i, const Values& at, const Piece& piece) {
    const Operand& input = kernel.inputs[i];
    if (input.is_offset) return coordinate(i, at[i], piece);
    if (input.by < 0 || is_unit_index(kernel.inputs[static_cast<size_t>(input.by)]))
        return load_lanes(i, at[i], piece);
    const auto by = static_cast<size_t>(input.by);
    if (kernel.inputs[by].inner == Inner::broadcast)
        return load_lanes(i, jump(i, at, piece.at), piece);
    const VectorType wide = scalars.vector_of(i64);
    const Value numbers = arith::ExtSIOp::create(
        b, wide, load_lanes(by, at[by], piece));  // 0 where no lane takes part
    Value offsets = mul(numbers, splat(gather_strides_[i]));
    Value base = at[i];
    if (input.inner != Inner::broadcast) {
        offsets = add(offsets, lane_offsets(i, piece));
        base = offset_by(scalars.storage_type(input.dtype), base, mul(piece.at, lane_stride(i)));
    }
    return gather(i, base, offsets);
}

Value Frame::load_lanes(size_t i, Value base, const Piece& piece) {
    const DType dtype = kernel.inputs[i].dtype;
    const Type element = scalars.storage_type(dtype);
    const VectorType type = scalars.storage_vector(dtype);
    switch (kernel.inputs[i].inner) {
        case Inner::broadcast:
            return splat(LLVM::LoadOp::create(b, element, base, alignment(dtype)));
        case Inner::contiguous: {
            const Value place = offset_by(element, base, piece.at);
            if (!piece.mask) return LLVM::LoadOp::create(b, type, place, vector_alignment(dtype));
            return LLVM::MaskedLoadOp::create(b, type, place, piece.mask, zeros(type),
                                              vector_alignment(dtype));
        }
        case Inner::strided:
            return gather(i, offset_by(element, base, mul(piece.at, lane_stride(i))),
                          lane_offsets(i, piece));
    }
    return {};
}

// A coordinate in its 32 bits.
Value Frame::coordinate(size_t i, Value base, const Piece& piece) {
    if (kernel.inputs[i].inner == Inner::broadcast) return splat(i32_of(base));
    const Value first = i32_of(add(base, mul(piece.at, lane_stride(i))));
    return add(splat(first), mul(lanes(b.getI32Type()), splat(i32_of(lane_stride(i)))));
}

// Of each lane from lane 0, in elements. Lanes that take no part stand on the last one that does:
// every lane is in bounds, and a gather needs no mask, which for narrow elements would become a
// branch per lane.
Value Frame::lane_offsets(size_t i, const Piece& piece) {
    Value lane = lanes(i64);
    if (piece.left) lane = smaller(lane, splat(sub(piece.left, index(1))));
    return mul(lane, splat(lane_stride(i)));
}

Value Frame::gather(size_t i, Value base, Value offsets) {
    const DType dtype = kernel.inputs[i].dtype;
    const VectorType type = scalars.storage_vector(dtype);
    const Value places =
        LLVM::GEPOp::create(b, scalars.vector_of(pointer), scalars.storage_type(dtype), base,
                            ArrayRef<LLVM::GEPArg>{offsets});
    const Value all = scalars.constant(runtime::ScalarType::b1, 1);
    return LLVM::masked_gather::create(b, type, places, all, ValueRange{zeros(type)},
                                       alignment(dtype));
}

void Frame::store(ArrayRef<size_t> outputs, const Values& at, const Piece& piece,
                  const Values& values) {
    const auto store_as = [&](const Piece& what) {
        for (const size_t k : outputs)
            store_one(k, at, what, values[static_cast<size_t>(kernel.results[k])]);
        return Values();
    };
    if (!piece.is_whole || outputs.empty()) store_as(piece);
    else
        choose(piece.is_whole, {}, [&] { return store_as({piece.at}); },
               [&] { return store_as(partial(piece.at, piece.left)); });
}

void Frame::store_one(size_t k, const Values& at, const Piece& piece, Value value) {
    const DType dtype = kernel.outputs[k].dtype;
    const size_t i = kernel.inputs.size() + k;
    const Type element = scalars.storage_type(dtype);
    const Value stored = scalars.shorten(dtype, value);
    if (kernel.reduced > 0 && kernel.outputs[k].inner == Inner::strided) {
        const Value base = offset_by(element, at[i], mul(piece.at, lane_stride(i)));
        const Value places = LLVM::GEPOp::create(b, scalars.vector_of(pointer), element, base,
                                                 ArrayRef<LLVM::GEPArg>{lane_offsets(i, piece)});
        LLVM::masked_scatter::create(
            b, stored, places,
            piece.mask ? piece.mask : scalars.constant(runtime::ScalarType::b1, 1),
            alignment(dtype));
        return;
    }
    const Value place = offset_by(element, at[i], piece.at);
    if (!piece.mask) LLVM::StoreOp::create(b, stored, place, vector_alignment(dtype));
    else LLVM::MaskedStoreOp::create(b, stored, place, piece.mask, vector_alignment(dtype));
}

void Frame::store_lane0(size_t k, const Values& at, const Values& values) {
    const DType dtype = kernel.outputs[k].dtype;
    const Value stored = scalars.shorten(dtype, values[static_cast<size_t>(kernel.results[k])]);
    LLVM::StoreOp::create(b, vector::ExtractOp::create(b, stored, 0), at[kernel.inputs.size() + k],
                          alignment(dtype));
}

Value Frame::stored(size_t k, const Values& at, const Piece& piece) {
    const DType dtype = kernel.outputs[k].dtype;
    const VectorType type = scalars.storage_vector(dtype);
    const Value place =
        offset_by(scalars.storage_type(dtype), at[kernel.inputs.size() + k], piece.at);
    const Value mask = mask_of(piece);
    if (!mask) return LLVM::LoadOp::create(b, type, place, vector_alignment(dtype));
    return LLVM::MaskedLoadOp::create(b, type, place, mask, zeros(type), vector_alignment(dtype));
}

// ---- the stack
// -------------------------------------------------------------------------------------

Value Frame::room(VectorType type, int64_t vectors) {
    const OpBuilder::InsertionGuard restore(b);
    b.setInsertionPointToStart(arguments_[0].getOwner());  // once a call, wherever it is needed
    return LLVM::AllocaOp::create(b, pointer, type, index(vectors));
}

Value Frame::load_from(Value room, VectorType type, Value number) {
    return LLVM::LoadOp::create(b, type, offset_by(type, room, number));
}
void Frame::store_to(Value room, Value number, Value lanes) {
    LLVM::StoreOp::create(b, lanes, offset_by(lanes.getType(), room, number));
}

// ---- units
// -----------------------------------------------------------------------------------------

// Loop-carried: the indices of the axes but the first, which never wraps, then per operand its
// offset in elements.
void for_units(Frame& f, ArrayRef<UnitAxis> axes, const UnitBody& body) {
    if (axes.empty()) return body(f.lo, {}, f.bases);
    const size_t rank = axes.size(), operands = f.bases.size();
    Values position(rank), carried;
    Value rest = f.lo;
    for (size_t axis = rank; axis-- > 1;) {
        position[axis] = arith::RemUIOp::create(f.b, rest, axes[axis].extent);
        rest = arith::DivUIOp::create(f.b, rest, axes[axis].extent);
    }
    position[0] = rest;
    carried.append(position.begin() + 1, position.end());
    for (size_t i = 0; i < operands; ++i) {
        Value offset = f.index(0);
        for (size_t axis = 0; axis < rank; ++axis)
            if (const Value stride = axes[axis].strides[i])
                offset = f.add(offset, f.mul(position[axis], stride));
        carried.push_back(offset);
    }
    // What an axis adds when the one inside it wraps: one step forth, a whole run of the inner one
    // back.
    std::vector<Values> wraps(rank, Values(operands));
    for (size_t axis = 1; axis < rank; ++axis)
        for (size_t i = 0; i < operands; ++i)
            if (const Value stride = axes[axis].strides[i])
                wraps[axis][i] = f.sub(axes[axis - 1].strides[i], f.mul(axes[axis].extent, stride));

    f.loop(f.lo, f.hi, 1, carried, [&](Value unit, const Values& state) {
        Values next(state);
        const auto offsets = MutableArrayRef<Value>(next).drop_front(rank - 1);
        body(unit, rank > 1 ? state[rank - 2] : unit, f.moved(f.bases, [&](size_t i) {
            return axes.back().strides[i] ? offsets[i] : Value();
        }));
        for (size_t i = 0; i < operands; ++i)
            if (const Value stride = axes.back().strides[i]) offsets[i] = f.add(offsets[i], stride);
        Value carry;  // does the axis inside wrap?
        for (size_t axis = rank; axis-- > 1;) {
            Value stepped = f.add(next[axis - 1], f.index(1));
            if (carry) stepped = arith::SelectOp::create(f.b, carry, stepped, next[axis - 1]);
            carry =
                arith::CmpIOp::create(f.b, arith::CmpIPredicate::eq, stepped, axes[axis].extent);
            next[axis - 1] = arith::SelectOp::create(f.b, carry, f.index(0), stepped);
            for (size_t i = 0; i < operands; ++i)
                if (wraps[axis][i])
                    offsets[i] = f.add(offsets[i], arith::SelectOp::create(
                                                       f.b, carry, wraps[axis][i], f.index(0)));
        }
        return next;
    });
}

}  // namespace megjit::mlir_backend
