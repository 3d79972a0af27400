// The loops of a kernel. Rank 1: one run over lo..hi. Rank above 1: for every row lo..hi one run over
// the innermost axis, with the operands' offsets carried from row to row, so that no row divides.
//
// A run is a loop over whole vectors and one masked vector for the rest. In long programs the rest goes
// through the same code, by way of a copy on the stack: half the code to compile. (Masks for all vectors
// would be simpler, but masked loads and stores cost Zen 5 five times the time on data in memory.)
#include "backends/mlir/emit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::Inner;
using codegen::KernelIR;
using runtime::DType;
using runtime::ScalarInst;
using runtime::ScalarOp;

// From this many instructions on compiling the body twice takes longer than the copy on the stack.
constexpr int kLongProgram = 64;

// One vector of a run: elements at .. at + width, all of them or the first `left`.
struct Piece {
    Value at;             // i64
    Value left = {};      // i64, 1..width; null: all
    Value mask = {};      // the first `left` lanes
    Value is_whole = {};  // i1, in a loop that meets both kinds; the rest lies on the stack then
};

class KernelEmitter {
public:
    KernelEmitter(ImplicitLocOpBuilder& b, const KernelIR& kernel, VectorTarget target)
        : b_(b), kernel_(kernel), target_(target), scalars_(b, target), i64_(b.getI64Type()),
          pointer_(LLVM::LLVMPointerType::get(b.getContext())), values_(kernel.program.size()) {
        find_uniform();
    }

    // The entry block's arguments: inputs, outputs, extents, strides, lo, hi.
    void run(Block::BlockArgListType args) {
        const Value lo = args[4], hi = args[5];
        const int rank = kernel_.rank;
        if (is_long()) make_copies();
        for (int axis = 0; axis < rank; ++axis) extents_.push_back(load_scalar(i64_, args[2], axis));
        // Nothing to do: touch no operand, not even a broadcast one.
        const Value some_rows = arith::CmpIOp::create(b_, arith::CmpIPredicate::slt, lo, hi);
        const Value some_columns = arith::CmpIOp::create(b_, arith::CmpIPredicate::sgt, extents_.back(), index(0));
        auto guard = scf::IfOp::create(b_, arith::AndIOp::create(b_, some_rows, some_columns), /*withElseRegion=*/false);
        const OpBuilder::InsertionGuard restore(b_);
        b_.setInsertionPointToStart(guard.thenBlock());
        for (size_t i = 0; i < kernel_.inputs.size(); ++i) {
            inputs_.push_back(load_scalar(pointer_, args[0], i));
            auto& strides = strides_.emplace_back();
            for (int axis = 0; axis < rank; ++axis) strides.push_back(load_scalar(i64_, args[3], i * rank + axis));
        }
        for (size_t k = 0; k < kernel_.outputs.size(); ++k) outputs_.push_back(load_scalar(pointer_, args[1], k));
        if (rank == 1) emit_run(inputs_, outputs_, lo, hi);
        else emit_rows(lo, hi);
    }

private:
    // ---- small words -----------------------------------------------------------------------------
    Value index(int64_t value) { return arith::ConstantOp::create(b_, b_.getI64IntegerAttr(value)); }
    Value add(Value a, Value b) { return arith::AddIOp::create(b_, a, b); }
    Value sub(Value a, Value b) { return arith::SubIOp::create(b_, a, b); }
    Value mul(Value a, Value b) { return arith::MulIOp::create(b_, a, b); }
    Value splat(Value scalar) { return vector::BroadcastOp::create(b_, scalars_.vector_of(scalar.getType()), scalar); }
    Value offset_by(Type element, Value pointer, Value elements) {
        return LLVM::GEPOp::create(b_, pointer_, element, pointer, ArrayRef<LLVM::GEPArg>{elements});
    }
    Value load_scalar(Type type, Value pointer, size_t position) {
        return LLVM::LoadOp::create(b_, type, offset_by(type, pointer, index(static_cast<int64_t>(position))));
    }
    Value lanes() {  // 0, 1, 2, ... as i64
        SmallVector<int64_t> numbers;
        for (int lane = 0; lane < target_.width; ++lane) numbers.push_back(lane);
        return arith::ConstantOp::create(b_, DenseElementsAttr::get(scalars_.vector_of(i64_), ArrayRef<int64_t>(numbers)));
    }
    static unsigned alignment(DType dtype) { return static_cast<unsigned>(runtime::size_of(dtype)); }

    // ---- rows ------------------------------------------------------------------------------------
    // Loop-carried: the indices of the outer axes but the first, which never wraps, then per input
    // the offset of its row in elements.
    void emit_rows(Value lo, Value hi) {
        const int outer = kernel_.rank - 1;
        SmallVector<Value> carried;
        std::vector<Value> position(outer);
        Value rest = lo;
        for (int axis = outer - 1; axis > 0; --axis) {
            position[axis] = arith::RemUIOp::create(b_, rest, extents_[axis]);
            rest = arith::DivUIOp::create(b_, rest, extents_[axis]);
        }
        position[0] = rest;
        carried.append(position.begin() + 1, position.end());
        for (const auto& strides : strides_) {
            Value offset = mul(position[0], strides[0]);
            for (int axis = 1; axis < outer; ++axis) offset = add(offset, mul(position[axis], strides[axis]));
            carried.push_back(offset);
        }
        // What an axis adds when the one inside it wraps: one step forth, a whole run of the inner one back.
        std::vector<std::vector<Value>> wraps(strides_.size(), std::vector<Value>(outer));
        for (size_t i = 0; i < strides_.size(); ++i)
            for (int axis = 1; axis < outer; ++axis)
                wraps[i][axis] = sub(strides_[i][axis - 1], mul(extents_[axis], strides_[i][axis]));

        auto loop = scf::ForOp::create(b_, lo, hi, index(1), carried);
        const OpBuilder::InsertionGuard restore(b_);
        b_.setInsertionPointToStart(loop.getBody());
        const auto state = loop.getRegionIterArgs();
        std::vector<Value> inputs, outputs, offsets(state.begin() + (outer - 1), state.end());
        for (size_t i = 0; i < inputs_.size(); ++i)
            inputs.push_back(offset_by(scalars_.storage_type(kernel_.inputs[i].dtype), inputs_[i], offsets[i]));
        const Value row_start = mul(loop.getInductionVar(), extents_.back());
        for (size_t k = 0; k < outputs_.size(); ++k)
            outputs.push_back(offset_by(scalars_.storage_type(kernel_.outputs[k].dtype), outputs_[k], row_start));
        emit_run(inputs, outputs, index(0), extents_.back());

        SmallVector<Value> next(state.begin(), state.begin() + (outer - 1));
        for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = add(offsets[i], strides_[i][outer - 1]);
        Value carry;  // does the axis inside wrap?
        for (int axis = outer - 1; axis > 0; --axis) {
            Value moved = add(next[axis - 1], index(1));
            if (carry) moved = arith::SelectOp::create(b_, carry, moved, next[axis - 1]);
            carry = arith::CmpIOp::create(b_, arith::CmpIPredicate::eq, moved, extents_[axis]);
            next[axis - 1] = arith::SelectOp::create(b_, carry, index(0), moved);
            for (size_t i = 0; i < offsets.size(); ++i)
                offsets[i] = add(offsets[i], arith::SelectOp::create(b_, carry, wraps[i][axis], index(0)));
        }
        next.append(offsets.begin(), offsets.end());
        scf::YieldOp::create(b_, next);
    }

    // ---- one run ---------------------------------------------------------------------------------
    void emit_run(const std::vector<Value>& inputs, const std::vector<Value>& outputs, Value from, Value to) {
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (kernel_.inputs[i].inner != Inner::strided) continue;
            lane_offsets_.resize(inputs.size());
            lane_offsets_[i] = mul(lanes(), splat(strides_[i].back()));
        }
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (uniform_[id]) emit_inst(id, inputs, {});
        const Value width = index(target_.width);
        if (is_long()) {
            auto loop = scf::ForOp::create(b_, from, to, width);
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPointToStart(loop.getBody());
            const Value at = loop.getInductionVar();
            emit_long_piece(inputs, outputs, at, sub(to, at));
            return;
        }
        const Value rest = arith::AndIOp::create(b_, sub(to, from), index(target_.width - 1));
        const Value whole_end = sub(to, rest);
        auto loop = scf::ForOp::create(b_, from, whole_end, width);
        {
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPointToStart(loop.getBody());
            emit_piece(inputs, outputs, {loop.getInductionVar()});
        }
        const Value has_rest = arith::CmpIOp::create(b_, arith::CmpIPredicate::ne, rest, index(0));
        auto tail = scf::IfOp::create(b_, has_rest, /*withElseRegion=*/false);
        const OpBuilder::InsertionGuard restore(b_);
        b_.setInsertionPointToStart(tail.thenBlock());
        emit_piece(inputs, outputs, partial(whole_end, rest));
    }

    // The loop body of long programs: a rest of less than a vector is copied to the stack, computed
    // there, and copied back.
    void emit_long_piece(const std::vector<Value>& inputs, const std::vector<Value>& outputs, Value at, Value ahead) {
        const Value width = index(target_.width);
        const Value left = arith::MinSIOp::create(b_, ahead, width);
        const Value is_rest = arith::CmpIOp::create(b_, arith::CmpIPredicate::slt, ahead, width);
        const Value is_whole = arith::CmpIOp::create(b_, arith::CmpIPredicate::sge, ahead, width);
        const auto if_rest = [&](const auto& copy) {
            auto branch = scf::IfOp::create(b_, is_rest, /*withElseRegion=*/false);
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPointToStart(branch.thenBlock());
            copy(partial(at, left));
        };
        if_rest([&](const Piece& rest) {
            for (size_t i = 0; i < inputs.size(); ++i) {
                if (kernel_.inputs[i].inner != Inner::contiguous) continue;
                LLVM::StoreOp::create(b_, load(i, inputs[i], rest), input_copies_[i]);
            }
        });
        const Piece piece{.at = at, .left = left, .is_whole = is_whole};
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (!uniform_[id]) emit_inst(id, inputs, piece);
        for (size_t k = 0; k < outputs.size(); ++k) {
            const DType dtype = kernel_.outputs[k].dtype;
            const Value stored = scalars_.shorten(dtype, values_[kernel_.results[k]]);
            const Value pointer = offset_by(scalars_.storage_type(dtype), outputs[k], at);
            LLVM::StoreOp::create(b_, stored, arith::SelectOp::create(b_, is_whole, pointer, output_copies_[k]), alignment(dtype));
        }
        if_rest([&](const Piece& rest) {
            for (size_t k = 0; k < outputs.size(); ++k) {
                const DType dtype = kernel_.outputs[k].dtype;
                const Value value = LLVM::LoadOp::create(b_, scalars_.storage_vector(dtype), output_copies_[k]);
                const Value pointer = offset_by(scalars_.storage_type(dtype), outputs[k], at);
                LLVM::MaskedStoreOp::create(b_, value, pointer, rest.mask, alignment(dtype));
            }
        });
    }

    bool is_long() const { return kernel_.program.size() >= kLongProgram; }

    // Room on the stack for one vector of each operand; at the function's entry.
    void make_copies() {
        const auto room = [&](DType dtype) { return Value(LLVM::AllocaOp::create(b_, pointer_, scalars_.storage_vector(dtype), index(1))); };
        for (const codegen::Operand& input : kernel_.inputs) input_copies_.push_back(room(input.dtype));
        for (const codegen::Operand& output : kernel_.outputs) output_copies_.push_back(room(output.dtype));
    }

    Piece partial(Value at, Value left) {
        const Type i32 = b_.getI32Type();
        SmallVector<int32_t> numbers;
        for (int lane = 0; lane < target_.width; ++lane) numbers.push_back(lane);
        const Value lane = arith::ConstantOp::create(b_, DenseElementsAttr::get(scalars_.vector_of(i32), ArrayRef<int32_t>(numbers)));
        const Value count = splat(arith::TruncIOp::create(b_, i32, left));
        return {at, left, arith::CmpIOp::create(b_, arith::CmpIPredicate::slt, lane, count)};
    }

    void emit_piece(const std::vector<Value>& inputs, const std::vector<Value>& outputs, const Piece& piece) {
        for (int id = 0; id < kernel_.program.size(); ++id)
            if (!uniform_[id]) emit_inst(id, inputs, piece);
        for (size_t k = 0; k < outputs.size(); ++k) store(kernel_.outputs[k].dtype, outputs[k], piece, values_[kernel_.results[k]]);
    }

    void emit_inst(int id, const std::vector<Value>& inputs, const Piece& piece) {
        const ScalarInst& inst = kernel_.program[id];
        if (inst.op == ScalarOp::input) {
            values_[id] = scalars_.widen(kernel_.inputs[inst.bits].dtype, load(inst.bits, inputs[inst.bits], piece));
            return;
        }
        SmallVector<Value, 3> operands;
        for (int k = 0; k < runtime::arity_of(inst.op); ++k) operands.push_back(values_[inst.args[k]]);
        values_[id] = scalars_.emit(kernel_.program, inst, operands);
    }

    // What is the same for a whole run is computed once, before it.
    void find_uniform() {
        for (const ScalarInst& inst : kernel_.program.insts()) {
            bool uniform = inst.op != ScalarOp::input || kernel_.inputs[inst.bits].inner == Inner::broadcast;
            for (int k = 0; k < runtime::arity_of(inst.op); ++k) uniform = uniform && uniform_[inst.args[k]];
            uniform_.push_back(uniform);
        }
    }

    // ---- memory ----------------------------------------------------------------------------------
    Value load(size_t i, Value base, const Piece& piece) {
        const DType dtype = kernel_.inputs[i].dtype;
        const Type element = scalars_.storage_type(dtype);
        const VectorType type = scalars_.storage_vector(dtype);
        switch (kernel_.inputs[i].inner) {
            case Inner::broadcast: return splat(LLVM::LoadOp::create(b_, element, base, alignment(dtype)));
            case Inner::contiguous: {
                Value pointer = offset_by(element, base, piece.at);
                if (piece.is_whole) pointer = arith::SelectOp::create(b_, piece.is_whole, pointer, input_copies_[i]);
                if (!piece.mask) return LLVM::LoadOp::create(b_, type, pointer, alignment(dtype));
                return LLVM::MaskedLoadOp::create(b_, type, pointer, piece.mask, zeros(type), alignment(dtype));
            }
            case Inner::strided: return gather(i, base, piece);
        }
        return {};
    }

    // Lanes beyond the end read the last element again: every lane is in bounds, and no mask is needed,
    // which for narrow elements would become a branch per lane.
    Value gather(size_t i, Value base, const Piece& piece) {
        const DType dtype = kernel_.inputs[i].dtype;
        const Type element = scalars_.storage_type(dtype);
        const VectorType type = scalars_.storage_vector(dtype);
        const Value first = offset_by(element, base, mul(piece.at, strides_[i].back()));
        Value offsets = lane_offsets_[i];
        const auto clamped = [&]() -> Value {
            const Value last = splat(sub(piece.left, index(1)));
            return mul(arith::MinSIOp::create(b_, lanes(), last), splat(strides_[i].back()));
        };
        if (piece.is_whole) {
            auto branch = scf::IfOp::create(b_, TypeRange{offsets.getType()}, piece.is_whole, /*withElseRegion=*/true);
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPointToStart(branch.thenBlock());
            scf::YieldOp::create(b_, offsets);
            b_.setInsertionPointToStart(branch.elseBlock());
            scf::YieldOp::create(b_, clamped());
            offsets = branch.getResult(0);
        } else if (piece.left) {
            offsets = clamped();
        }
        const Value pointers = LLVM::GEPOp::create(b_, scalars_.vector_of(pointer_), element, first, ArrayRef<LLVM::GEPArg>{offsets});
        const Value all = scalars_.constant(runtime::ScalarType::b1, 1);
        return LLVM::masked_gather::create(b_, type, pointers, all, ValueRange{zeros(type)}, alignment(dtype));
    }

    void store(DType dtype, Value base, const Piece& piece, Value value) {
        const Value stored = scalars_.shorten(dtype, value);
        const Value pointer = offset_by(scalars_.storage_type(dtype), base, piece.at);
        if (!piece.mask) LLVM::StoreOp::create(b_, stored, pointer, alignment(dtype));
        else LLVM::MaskedStoreOp::create(b_, stored, pointer, piece.mask, alignment(dtype));
    }

    Value zeros(VectorType type) { return arith::ConstantOp::create(b_, cast<TypedAttr>(b_.getZeroAttr(type))); }

    ImplicitLocOpBuilder& b_;
    const KernelIR& kernel_;
    VectorTarget target_;
    ScalarEmitter scalars_;
    Type i64_;
    LLVM::LLVMPointerType pointer_;
    std::vector<Value> extents_, inputs_, outputs_;
    std::vector<std::vector<Value>> strides_;  // [inputs][rank]
    std::vector<Value> lane_offsets_;          // per strided input: lane * stride
    std::vector<Value> input_copies_, output_copies_;  // of long programs: room for one vector
    std::vector<Value> values_;                // per instruction, of the piece being emitted
    std::vector<bool> uniform_;                // per instruction
};

}  // namespace

OwningOpRef<ModuleOp> emit(MLIRContext& context, const KernelIR& kernel, VectorTarget target) {
    ImplicitLocOpBuilder b(UnknownLoc::get(&context), &context);
    OwningOpRef<ModuleOp> module = ModuleOp::create(b.getLoc());
    b.setInsertionPointToStart(module->getBody());
    const Type pointer = LLVM::LLVMPointerType::get(&context), i64 = b.getI64Type();
    const auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(&context),
                                                  {pointer, pointer, pointer, pointer, i64, i64});
    auto function = LLVM::LLVMFuncOp::create(b, kKernelSymbol, type);
    Block* entry = function.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    KernelEmitter(b, kernel, target).run(entry->getArguments());
    b.setInsertionPointToEnd(entry);
    LLVM::ReturnOp::create(b, ValueRange());
    return module;
}

}  // namespace megjit::mlir_backend
