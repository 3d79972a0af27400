#include "backends/mlir/emit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "runtime/host/error.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::GpuPlan;
using codegen::KernelIR;
using codegen::loops::Function;
using codegen::loops::Inst;
using codegen::loops::Kind;
using codegen::loops::Op;
using codegen::loops::Where;
using runtime::cat;
namespace loops = codegen::loops;
using Values = SmallVector<Value>;

constexpr unsigned kSharedMemory = 3;  // the address space of shared memory on a GPU

class LoopEmitter {
public:
    LoopEmitter(ImplicitLocOpBuilder& builder, const Function& function, VectorTarget target)
        : b_(builder),
          function_(function),
          scalars_(builder, target),
          is_cpu_(target.truncates),
          values_(function.values.size()) {}

    ScalarEmitter& scalars() { return scalars_; }
    void set_table(Value table) { table_ = table; }
    void set(int id, Value value) { values_[static_cast<size_t>(id)] = value; }

    void emit() {
        for (const Function::Room& room : function_.rooms) set(room.value, room_of(room));
        emit_block(function_.body);
    }

private:
    const loops::Type& type_of(int id) const { return function_.type_of(id); }
    Value value(int id) {
        const Function::Known& known = function_.values[static_cast<size_t>(id)];
        return known.is_constant ? scalars_.constant(known.type, known.bits)
                                 : values_[static_cast<size_t>(id)];
    }
    Values all(ArrayRef<int> ids) {
        Values values;
        for (const int id : ids) values.push_back(value(id));
        return values;
    }
    // Booleans are bytes in memory.
    Type memory_of(Kind kind) const {
        return kind == Kind::b1 ? Type(b_.getI8Type()) : scalars_.element_of(kind);
    }

    Value room_of(const Function::Room& room) {
        const Kind kind = type_of(room.value).kind;
        if (!room.is_shared)
            return LLVM::AllocaOp::create(
                b_, scalars_.type_of(type_of(room.value)), memory_of(kind),
                scalars_.constant({}, static_cast<uint64_t>(room.elements)),
                static_cast<unsigned>(loops::bytes_of(kind) * room.lanes));
        LLVM::GlobalOp shared;
        {
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPoint(
                b_.getInsertionBlock()->getParent()->getParentOfType<gpu::GPUFuncOp>());
            const auto array =
                LLVM::LLVMArrayType::get(memory_of(kind), static_cast<unsigned>(room.elements));
            shared = LLVM::GlobalOp::create(
                b_, array, /*isConstant=*/false, LLVM::Linkage::Internal, cat("shared", room.value),
                Attribute(), std::max(8, loops::bytes_of(kind) * room.lanes), kSharedMemory);
        }
        return LLVM::AddressOfOp::create(b_, shared);
    }

    void emit_block(const loops::Block& block) {
        for (const Inst& inst : block.insts) emit_inst(inst);
    }

    void emit_inst(const Inst& inst) {
        switch (inst.op) {
            case Op::loop: return emit_loop(inst);
            case Op::choose: return emit_choose(inst);
            case Op::store: return emit_store(inst);
            case Op::scatter: return emit_scatter(inst);
            case Op::barrier: return emit_barrier(inst.number != 0);
            case Op::publish:
                // Only x86-64's loops have stores that other threads may see out of order.
                if (is_cpu_)
                    LLVM::CallIntrinsicOp::create(b_, b_.getStringAttr("llvm.x86.sse.sfence"),
                                                  ValueRange());
                else LLVM::FenceOp::create(b_, LLVM::AtomicOrdering::seq_cst, StringRef("device"));
                return;
            default: set(inst.results[0], result_of(inst));
        }
    }

    Value result_of(const Inst& inst) {
        const Values v = all(inst.args);
        const loops::Type type = type_of(inst.results[0]);
        switch (inst.op) {
            case Op::compute: return scalars_.compute(inst.compute, type_of(inst.args[0]).kind, v);
            case Op::convert: return scalars_.convert(type_of(inst.args[0]).kind, type, v[0]);
            case Op::bits: return arith::BitcastOp::create(b_, scalars_.type_of(type), v[0]);
            case Op::fence: return scalars_.fenced(v[0]);
            case Op::widen: return scalars_.widen(inst.dtype, v[0]);
            case Op::shorten: return scalars_.shorten(inst.dtype, v[0]);
            case Op::lanes: return lanes_of(type);
            case Op::splat: return vector::BroadcastOp::create(b_, scalars_.type_of(type), v[0]);
            case Op::lane: return vector::ExtractOp::create(b_, v[0], inst.number);
            case Op::half: return half_of(v[0], type.lanes, inst.number);
            case Op::zip: return zipped(v, type.lanes, inst.number);
            case Op::at: return offset(type.kind, v[0], v[1]);
            case Op::address: return LLVM::PtrToIntOp::create(b_, scalars_.type_of(type), v[0]);
            case Op::load: return load(inst, v, type);
            case Op::gather: return gather(v, type);
            case Op::word: return word(v[0], type);
            case Op::thread: return thread(static_cast<Where>(inst.number));
            case Op::from_thread:
                return gpu::ShuffleOp::create(b_, v[0], static_cast<int32_t>(inst.number), 32,
                                              gpu::ShuffleMode::XOR)
                    .getShuffleResult();
            case Op::multiply: return multiply(inst.dtype, v);
            case Op::count:
                return LLVM::AtomicRMWOp::create(
                    b_, LLVM::AtomicBinOp::add, v[0], scalars_.constant(type, 1),
                    LLVM::AtomicOrdering::monotonic, StringRef("device"));
            default: throw runtime::InternalError(cat("MLIR: ", name_of(inst.op), " has no value"));
        }
    }

    Value lanes_of(loops::Type type) {
        SmallVector<Attribute> numbers;
        for (int lane = 0; lane < type.lanes; ++lane)
            numbers.push_back(b_.getIntegerAttr(scalars_.element_of(type.kind), lane));
        return arith::ConstantOp::create(
            b_, DenseElementsAttr::get(cast<VectorType>(scalars_.type_of(type)), numbers));
    }

    Value half_of(Value vector, int lanes, int64_t number) {
        SmallVector<int64_t> places;
        for (int lane = 0; lane < lanes; ++lane) places.push_back(number * lanes + lane);
        const Value half = vector::ShuffleOp::create(b_, vector, vector, places);
        return lanes > 1 ? half : Value(vector::ExtractOp::create(b_, half, 0));
    }

    Value zipped(const Values& both, int lanes, int64_t number) {
        SmallVector<int64_t> places;
        for (int lane = 0; lane < lanes; ++lane)
            places.push_back(loops::zipped_from(lane, lanes, number));
        return vector::ShuffleOp::create(b_, both[0], both[1], places);
    }

    // ---- memory ----
    Value offset(Kind kind, Value pointer, Value elements) {
        return LLVM::GEPOp::create(b_, pointer.getType(), memory_of(kind), pointer,
                                   ArrayRef<LLVM::GEPArg>{elements});
    }
    Value places(Kind kind, Value pointer, Value offsets) {
        const auto lanes = cast<VectorType>(offsets.getType()).getNumElements();
        return LLVM::GEPOp::create(b_, VectorType::get({lanes}, pointer.getType()), memory_of(kind),
                                   pointer, ArrayRef<LLVM::GEPArg>{offsets});
    }
    Value zeros(loops::Type type) { return scalars_.constant(type, 0); }
    Value truth(int lanes) { return scalars_.constant({Kind::b1, lanes}, 1); }
    static unsigned alignment(loops::Type type, bool is_aligned) {
        return static_cast<unsigned>(loops::bytes_of(type.kind) * (is_aligned ? type.lanes : 1));
    }

    Value load(const Inst& inst, const Values& v, loops::Type type) {
        const unsigned aligned = alignment(type, inst.number & loops::kAligned);
        if (v.size() == 1)
            return LLVM::LoadOp::create(b_, scalars_.type_of(type), v[0], aligned,
                                        (inst.number & loops::kOfOthers) != 0);
        return LLVM::MaskedLoadOp::create(b_, scalars_.type_of(type), v[0], v[1], zeros(type),
                                          aligned);
    }

    Value gather(const Values& v, loops::Type type) {
        if (type.lanes == 1)
            return LLVM::LoadOp::create(b_, scalars_.type_of(type), offset(type.kind, v[0], v[1]));
        return LLVM::masked_gather::create(b_, scalars_.type_of(type),
                                           places(type.kind, v[0], v[1]), truth(type.lanes),
                                           ValueRange{zeros(type)}, alignment(type, false));
    }

    void emit_store(const Inst& inst) {
        const Values v = all(inst.args);
        const bool past_caches = (inst.number & loops::kPastCaches) != 0;
        const loops::Type type = type_of(inst.args[1]);
        const unsigned aligned = past_caches ? std::min(64U, alignment(type, true))
                                             : alignment(type, inst.number & loops::kAligned);
        if (past_caches)
            LLVM::StoreOp::create(b_, v[1], v[0], aligned, /*isVolatile=*/false,
                                  /*isNonTemporal=*/true);
        else if (v.size() == 2) LLVM::StoreOp::create(b_, v[1], v[0], aligned);
        else LLVM::MaskedStoreOp::create(b_, v[1], v[0], v[2], aligned);
    }

    void emit_scatter(const Inst& inst) {
        const Values v = all(inst.args);
        const loops::Type type = type_of(inst.args[2]);
        if (type.lanes == 1) {
            LLVM::StoreOp::create(b_, v[2], offset(type.kind, v[0], v[1]));
            return;
        }
        LLVM::masked_scatter::create(b_, v[2], places(type.kind, v[0], v[1]),
                                     v.size() > 3 ? v[3] : truth(type.lanes),
                                     alignment(type, false));
    }

    // ---- control ----
    void emit_loop(const Inst& inst) {
        const Values v = all(inst.args);
        auto loop =
            scf::ForOp::create(b_, v[0], v[1], v[2], ValueRange(ArrayRef<Value>(v).drop_front(3)));
        const loops::Block& body = inst.blocks[0];
        {
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPointToStart(loop.getBody());
            for (size_t p = 0; p < body.parameters.size(); ++p)
                set(body.parameters[p], loop.getBody()->getArgument(static_cast<unsigned>(p)));
            emit_block(body);
            if (!body.results.empty()) scf::YieldOp::create(b_, all(body.results));
        }
        for (size_t r = 0; r < inst.results.size(); ++r)
            set(inst.results[r], loop.getResult(static_cast<unsigned>(r)));
    }

    void emit_choose(const Inst& inst) {
        SmallVector<Type> types;
        for (const int id : inst.results) types.push_back(scalars_.type_of(type_of(id)));
        const loops::Block& other = inst.blocks[1];
        const bool has_other = !types.empty() || !other.insts.empty();
        auto branch = scf::IfOp::create(b_, types, value(inst.args[0]), has_other);
        const auto arm = [&](const loops::Block& block, Block* into) {
            const OpBuilder::InsertionGuard restore(b_);
            b_.setInsertionPointToStart(into);
            emit_block(block);
            if (!types.empty()) scf::YieldOp::create(b_, all(block.results));
        };
        arm(inst.blocks[0], branch.thenBlock());
        if (has_other) arm(other, branch.elseBlock());
        for (size_t r = 0; r < inst.results.size(); ++r)
            set(inst.results[r], branch.getResult(static_cast<unsigned>(r)));
    }

    // ---- parameters ----
    Value word(Value number, loops::Type type) {
        const Type i64 = b_.getI64Type();
        const Value at =
            LLVM::GEPOp::create(b_, table_.getType(), i64, table_, ArrayRef<LLVM::GEPArg>{number});
        const Value word = LLVM::LoadOp::create(b_, i64, at);
        return type.is_pointer ? LLVM::IntToPtrOp::create(b_, scalars_.type_of(type), word) : word;
    }

    // ---- threads ----
    template <class Read>
    Value read(gpu::Dimension axis) {
        return arith::IndexCastOp::create(b_, b_.getI64Type(), Read::create(b_, axis));
    }
    Value thread(Where where) {
        switch (where) {
            case Where::thread: return read<gpu::ThreadIdOp>(gpu::Dimension::x);
            case Where::block: return read<gpu::BlockIdOp>(gpu::Dimension::x);
            case Where::blocks: return read<gpu::GridDimOp>(gpu::Dimension::x);
            case Where::part: return read<gpu::BlockIdOp>(gpu::Dimension::y);
        }
        return {};
    }
    Value multiply(runtime::DType halves, const Values& v) {
        const Type f32 = b_.getF32Type();
        const auto results =
            LLVM::LLVMStructType::getLiteral(b_.getContext(), {f32, f32, f32, f32});
        Values operands(ArrayRef<Value>(v).drop_back());
        for (int64_t lane = 0; lane < 4; ++lane)
            operands.push_back(vector::ExtractOp::create(b_, v.back(), lane));
        const std::string name = halves == runtime::DType::f16 ? "f16" : "bf16";
        const Value sums = LLVM::InlineAsmOp::create(
                               b_, results, operands,
                               cat("mma.sync.aligned.m16n8k16.row.col.f32.", name, ".", name,
                                   ".f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
                                   "{$10, $11, $12, $13};"),
                               "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
                               /*has_side_effects=*/true,  // all threads of the warp reach it
                               /*is_align_stack=*/false, LLVM::TailCallKind::None,
                               /*asm_dialect=*/nullptr, /*operand_attrs=*/nullptr)
                               .getRes();
        SmallVector<Value> lanes;
        for (int64_t lane = 0; lane < 4; ++lane)
            lanes.push_back(LLVM::ExtractValueOp::create(b_, sums, lane));
        return vector::FromElementsOp::create(b_, VectorType::get({4}, f32), lanes);
    }
    void emit_barrier(bool of_warp) {
        if (!of_warp) {
            gpu::BarrierOp::create(b_);
            return;
        }
        LLVM::CallIntrinsicOp::create(b_, b_.getStringAttr("llvm.nvvm.bar.warp.sync"),
                                      ValueRange{scalars_.constant({Kind::i32}, 0xFFFFFFFF)});
    }

    ImplicitLocOpBuilder& b_;
    const Function& function_;
    ScalarEmitter scalars_;
    const bool is_cpu_;
    Values values_;
    Value table_;
};

}  // namespace

OwningOpRef<ModuleOp> emit(MLIRContext& context, const KernelIR& kernel, VectorTarget target) {
    ImplicitLocOpBuilder b(UnknownLoc::get(&context), &context);
    OwningOpRef<ModuleOp> module = ModuleOp::create(b.getLoc());
    b.setInsertionPointToStart(module->getBody());
    const Type pointer = LLVM::LLVMPointerType::get(&context), i64 = b.getI64Type();
    const auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(&context),
                                                  {pointer, pointer, pointer, pointer, i64, i64});
    auto kernel_fn = LLVM::LLVMFuncOp::create(b, kKernelSymbol, type);
    Block* entry = kernel_fn.addEntryBlock(b);
    b.setInsertionPointToStart(entry);

    const Function function = loops::loops_of(kernel, {.width = target.native,
                                                       .registers = target.registers,
                                                       .streams = target.truncates,
                                                       .divides = false});
    LoopEmitter emitter(b, function, target);
    // Inputs, outputs, extents and strides have an array each; then comes the range of units.
    const size_t counts[] = {memory_inputs(kernel), kernel.outputs.size(),
                             static_cast<size_t>(kernel.rank)};
    size_t array = 0, place = 0;
    for (size_t p = 0; p < function.parameters.size(); ++p) {
        const int id = function.parameters[p];
        if (const size_t left = function.parameters.size() - p; left <= 2) {
            emitter.set(id, entry->getArgument(static_cast<unsigned>(6 - left)));
            continue;
        }
        for (; array < 3 && place == counts[array]; place = 0) ++array;
        const Type element = emitter.scalars().type_of(function.type_of(id));
        const Value at = LLVM::GEPOp::create(b, pointer, element,
                                             entry->getArgument(static_cast<unsigned>(array)),
                                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(place++)});
        emitter.set(id, LLVM::LoadOp::create(b, element, at));
    }
    emitter.emit();
    LLVM::ReturnOp::create(b, ValueRange());
    return module;
}

OwningOpRef<ModuleOp> emit_gpu(MLIRContext& context, const KernelIR& kernel, const GpuPlan& plan) {
    const Function function =
        loops::loops_of(kernel, {.width = plan.vector, .divides = false, .gpu = plan});
    ImplicitLocOpBuilder b(UnknownLoc::get(&context), &context);
    LoopEmitter emitter(b, function, {});
    SmallVector<Type> parameters;
    for (const int id : function.parameters)
        parameters.push_back(emitter.scalars().type_of(function.type_of(id)));
    if (function.table_words) parameters.push_back(LLVM::LLVMPointerType::get(&context));
    OwningOpRef<ModuleOp> module = ModuleOp::create(b.getLoc());
    (*module)->setAttr(gpu::GPUDialect::getContainerModuleAttrName(), b.getUnitAttr());
    b.setInsertionPointToStart(module->getBody());
    auto device = gpu::GPUModuleOp::create(b, kGpuModule);
    b.setInsertionPointToStart(device.getBody());
    auto kernel_fn = gpu::GPUFuncOp::create(b, kKernelSymbol, b.getFunctionType(parameters, {}));
    kernel_fn->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
    kernel_fn.setKnownBlockSize(ArrayRef<int32_t>{plan.threads, 1, 1});
    if (plan.least_blocks())
        kernel_fn->setAttr("nvvm.minctasm", b.getI32IntegerAttr(plan.least_blocks()));
    Block& entry = kernel_fn.getBody().front();
    b.setInsertionPointToStart(&entry);
    for (size_t p = 0; p < function.parameters.size(); ++p)
        emitter.set(function.parameters[p], entry.getArgument(static_cast<unsigned>(p)));
    if (function.table_words) emitter.set_table(entry.getArgument(0));
    emitter.emit();
    gpu::ReturnOp::create(b);
    b.setInsertionPointToStart(device.getBody());
    emit_gpu_fmod(b, device);
    return module;
}

}  // namespace megjit::mlir_backend
