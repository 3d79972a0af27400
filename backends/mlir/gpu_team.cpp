#include "backends/mlir/gpu_team.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace megjit::mlir_backend {

using namespace mlir;
using codegen::Cover;

namespace {

constexpr int32_t kWarp = 32;
constexpr unsigned kSharedMemory = 3;  // address space
constexpr int64_t kMaxStates = 2;  // of one reduction: sum and squares of a variance

// Shared memory for one reduction at a time: `slots` totals, state by state.
Value make_scratch(ImplicitLocOpBuilder& b, int64_t slots) {
    LLVM::GlobalOp scratch;
    {
        const OpBuilder::InsertionGuard restore(b);
        auto function = b.getInsertionBlock()->getParent()->getParentOfType<gpu::GPUFuncOp>();
        b.setInsertionPoint(function);
        const auto type =
            LLVM::LLVMArrayType::get(b.getI64Type(), static_cast<unsigned>(kMaxStates * slots));
        scratch = LLVM::GlobalOp::create(b, type, /*isConstant=*/false, LLVM::Linkage::Internal,
                                         "scratch", Attribute(),
                                         /*alignment=*/8, kSharedMemory);
    }
    return LLVM::AddressOfOp::create(b, scratch);
}

int64_t slots_of(const codegen::GpuPlan& plan) {
    return plan.cover == Cover::columns ? plan.threads : kWarp;
}

}  // namespace

GpuTeam::GpuTeam(const GpuFrame& gpu, Frame& frame) : gpu_(gpu), f_(frame), b_(gpu.b) {
    const bool is_columns = gpu.plan.cover == Cover::columns;
    const Value stride = number(is_columns ? gpu.plan.slots() : gpu.plan.team);
    const Value low = arith::RemUIOp::create(b_, gpu.thread, stride),
                high = arith::DivUIOp::create(b_, gpu.thread, stride);
    lane_ = is_columns ? high : low;
    slot_ = is_columns ? low : high;
    if (!is_warp()) scratch_ = make_scratch(b_, slots_of(gpu.plan));
}

Values GpuTeam::merged(Reducer& reducer, const Values& total) {
    if (is_warp()) return over_warp(reducer, total);
    return gpu_.plan.cover == Cover::columns ? over_columns(reducer, total)
                                             : over_block(reducer, total);
}

void GpuTeam::barrier() {
    if (!is_warp()) {
        gpu::BarrierOp::create(b_);
        return;
    }
    const Value all = arith::ConstantOp::create(b_, b_.getI32IntegerAttr(-1));
    LLVM::CallIntrinsicOp::create(b_, b_.getStringAttr("llvm.nvvm.bar.warp.sync"), ValueRange{all});
}

Values GpuTeam::over_warp(Reducer& reducer, Values total) {
    for (int32_t mask = 1; mask < kWarp; mask *= 2) {
        Values theirs;
        for (const Value state : total) theirs.push_back(from_lane(state, mask));
        const Value bit = arith::AndIOp::create(b_, gpu_.thread, number(mask));
        const Value is_second = arith::CmpIOp::create(b_, arith::CmpIPredicate::ne, bit, number(0));
        total = reducer.merged(select(is_second, theirs, total), select(is_second, total, theirs));
    }
    return total;
}

Values GpuTeam::over_block(Reducer& reducer, const Values& total) {
    const Value lane = arith::RemUIOp::create(b_, gpu_.thread, number(kWarp)),
                warp = arith::DivUIOp::create(b_, gpu_.thread, number(kWarp));
    const Values of_warp = over_warp(reducer, total);
    f_.branch(arith::CmpIOp::create(b_, arith::CmpIPredicate::eq, lane, number(0)),
              [&] { put(of_warp, warp); });
    gpu::BarrierOp::create(b_);
    // Lanes without a warp merge what changes nothing.
    const Values parts = select(f_.less(lane, number(gpu_.plan.threads / kWarp)),
                                get(of_warp, lane), reducer.start_lanes());
    gpu::BarrierOp::create(b_);  // before the next reduction writes
    return over_warp(reducer, parts);
}

// Thread t holds a part of column t % slots. Those behind the first half give theirs to it, and so
// on.
Values GpuTeam::over_columns(Reducer& reducer, Values total) {
    put(total, gpu_.thread);
    SmallVector<Type> types;
    for (const Value state : total) types.push_back(state.getType());
    for (int64_t half = gpu_.plan.threads / 2; half >= gpu_.plan.slots(); half /= 2) {
        gpu::BarrierOp::create(b_);
        total = f_.choose(f_.less(gpu_.thread, number(half)), types, [&] {
            const Values both =
                reducer.merged(total, get(total, f_.add(gpu_.thread, number(half))));
            put(both, gpu_.thread);
            return both;
        }, [&] { return total; });
    }
    gpu::BarrierOp::create(b_);
    total = get(total, slot_);
    gpu::BarrierOp::create(b_);  // before the next reduction writes
    return total;
}

Value GpuTeam::word_from_lane(Value word, int32_t mask) {
    return gpu::ShuffleOp::create(b_, word, mask, kWarp, gpu::ShuffleMode::XOR).getShuffleResult();
}

Value GpuTeam::from_lane(Value state, int32_t mask) {
    const Value scalar = vector::ExtractOp::create(b_, state, 0);
    if (!scalar.getType().isF64()) return f_.splat(word_from_lane(scalar, mask));
    const Type i32 = b_.getI32Type(), i64 = b_.getI64Type();
    const Value bits = arith::BitcastOp::create(b_, i64, scalar);
    const auto half = [&](Value of) -> Value {
        return arith::ExtUIOp::create(b_, i64,
                                      word_from_lane(arith::TruncIOp::create(b_, i32, of), mask));
    };
    const Value low = half(bits), high = half(arith::ShRUIOp::create(b_, bits, number(32)));
    const Value theirs = arith::OrIOp::create(b_, low, arith::ShLIOp::create(b_, high, number(32)));
    return f_.splat(arith::BitcastOp::create(b_, b_.getF64Type(), theirs));
}

Value GpuTeam::place_in_scratch(size_t state, Value index) {
    const Value at = f_.add(index, number(static_cast<int64_t>(state) * slots_of(gpu_.plan)));
    return LLVM::GEPOp::create(b_, scratch_.getType(), b_.getI64Type(), scratch_,
                               ArrayRef<LLVM::GEPArg>{at});
}

void GpuTeam::put(const Values& states, Value index) {
    for (size_t s = 0; s < states.size(); ++s)
        LLVM::StoreOp::create(b_, vector::ExtractOp::create(b_, states[s], 0),
                              place_in_scratch(s, index));
}

Values GpuTeam::get(const Values& like, Value index) {
    Values states;
    for (size_t s = 0; s < like.size(); ++s)
        states.push_back(f_.splat(LLVM::LoadOp::create(b_, getElementTypeOrSelf(like[s].getType()),
                                                       place_in_scratch(s, index))));
    return states;
}

Values GpuTeam::select(Value condition, const Values& a, const Values& b) {
    Values chosen;
    for (size_t s = 0; s < a.size(); ++s)
        chosen.push_back(arith::SelectOp::create(b_, condition, a[s], b[s]));
    return chosen;
}

}  // namespace megjit::mlir_backend
