// C's fmod of two f32 by long division of mantissas: 40 bits of the difference of exponents at a
// time, in 64-bit integers. Every step is exact, and so is the result.
#include "backends/mlir/emit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using ICmp = arith::CmpIPredicate;

constexpr char kFmod[] = "megjit_fmod";
constexpr int64_t kBitsAtOnce = 40;  // a mantissa of 24 bits, moved by so many, is less than 2^64

class FmodEmitter {
public:
    explicit FmodEmitter(ImplicitLocOpBuilder& b) : b_(b), i64_(b.getI64Type()) {}

    Value emit(Value x, Value y) {
        const Value bits_x = wide(x), bits_y = wide(y);
        const Value size_x = both(bits_x, 0x7FFFFFFF), size_y = both(bits_y, 0x7FFFFFFF);
        const Value exponent_x = exponent(size_x), exponent_y = exponent(size_y);
        // Of 0 nobody takes the remainder.
        const Value divisor = arith::MaxUIOp::create(b_, mantissa(size_y), number(1));
        const Value distance = arith::SubIOp::create(b_, exponent_x, exponent_y);
        const Value rest = long_division(mantissa(size_x), divisor, distance);

        // rest * 2^(exponent_y - 150) is an f32, so that f64 holds it too.
        const Value scale = arith::ShLIOp::create(
            b_, arith::AddIOp::create(b_, exponent_y, number(1023 - 150)), number(52));
        const Value exact =
            arith::MulFOp::create(b_, arith::UIToFPOp::create(b_, b_.getF64Type(), rest),
                                  arith::BitcastOp::create(b_, b_.getF64Type(), scale));
        const Value magnitude = wide(arith::TruncFOp::create(b_, b_.getF32Type(), exact));
        const Value remainder = arith::OrIOp::create(b_, magnitude, both(bits_x, 0x80000000));

        const Value is_small = arith::CmpIOp::create(b_, ICmp::ult, size_x, size_y);
        const Value is_finite = arith::CmpIOp::create(b_, ICmp::ult, size_x, number(0x7F800000));
        const Value is_number = arith::CmpIOp::create(b_, ICmp::ule, size_y, number(0x7F800000));
        const Value is_some = arith::CmpIOp::create(b_, ICmp::ne, size_y, number(0));
        const Value is_defined =
            arith::AndIOp::create(b_, is_finite, arith::AndIOp::create(b_, is_number, is_some));
        const Value result = arith::SelectOp::create(b_, is_small, bits_x, remainder);
        const Value bits = arith::SelectOp::create(b_, is_defined, result, number(0x7FC00000));
        return arith::BitcastOp::create(b_, b_.getF32Type(),
                                        arith::TruncIOp::create(b_, b_.getI32Type(), bits));
    }

private:
    Value number(int64_t value) {
        return arith::ConstantOp::create(b_, b_.getI64IntegerAttr(value));
    }
    Value both(Value bits, int64_t mask) { return arith::AndIOp::create(b_, bits, number(mask)); }
    Value wide(Value x) {
        return arith::ExtUIOp::create(b_, i64_, arith::BitcastOp::create(b_, b_.getI32Type(), x));
    }
    // With that of denormals as of the least normal numbers.
    Value exponent(Value size) {
        return arith::MaxUIOp::create(b_, arith::ShRUIOp::create(b_, size, number(23)), number(1));
    }
    Value mantissa(Value size) {
        const Value is_normal = arith::CmpIOp::create(b_, ICmp::uge, size, number(0x00800000));
        const Value leading = arith::SelectOp::create(b_, is_normal, number(0x00800000), number(0));
        return arith::OrIOp::create(b_, both(size, 0x007FFFFF), leading);
    }

    // mantissa * 2^distance modulo divisor.
    Value long_division(Value mantissa, Value divisor, Value distance) {
        const Value first = arith::RemUIOp::create(b_, mantissa, divisor);
        auto loop =
            scf::ForOp::create(b_, number(0), distance, number(kBitsAtOnce), ValueRange{first});
        const OpBuilder::InsertionGuard restore(b_);
        b_.setInsertionPointToStart(loop.getBody());
        const Value left = arith::SubIOp::create(b_, distance, loop.getInductionVar());
        const Value moved = arith::ShLIOp::create(
            b_, loop.getRegionIterArgs()[0], arith::MinSIOp::create(b_, left, number(kBitsAtOnce)));
        scf::YieldOp::create(b_, ValueRange{arith::RemUIOp::create(b_, moved, divisor)});
        return loop.getResult(0);
    }

    ImplicitLocOpBuilder& b_;
    Type i64_;
};

void define_fmod(ImplicitLocOpBuilder& b) {
    const Type f32 = b.getF32Type();
    auto function = LLVM::LLVMFuncOp::create(b, kFmod, LLVM::LLVMFunctionType::get(f32, {f32, f32}),
                                             LLVM::Linkage::Internal);
    Block* entry = function.addEntryBlock(b);
    const OpBuilder::InsertionGuard restore(b);
    b.setInsertionPointToStart(entry);
    const Value result = FmodEmitter(b).emit(entry->getArgument(0), entry->getArgument(1));
    LLVM::ReturnOp::create(b, ValueRange{result});
}

}  // namespace

void emit_gpu_fmod(ImplicitLocOpBuilder& b, Operation* module) {
    SmallVector<arith::RemFOp> remainders;
    module->walk([&](arith::RemFOp op) { remainders.push_back(op); });
    if (remainders.empty()) return;
    define_fmod(b);
    for (arith::RemFOp op : remainders) {
        const OpBuilder::InsertionGuard restore(b);
        b.setInsertionPoint(op);
        const auto remainder = [&](Value x, Value y) -> Value {
            return LLVM::CallOp::create(b, TypeRange{x.getType()}, kFmod, ValueRange{x, y})
                .getResult();
        };
        const auto type = dyn_cast<VectorType>(op.getType());
        SmallVector<Value> lanes;
        for (int64_t lane = 0; type && lane < type.getNumElements(); ++lane)
            lanes.push_back(remainder(vector::ExtractOp::create(b, op.getLhs(), lane),
                                      vector::ExtractOp::create(b, op.getRhs(), lane)));
        op.replaceAllUsesWith(type ? vector::FromElementsOp::create(b, type, lanes).getResult()
                                   : remainder(op.getLhs(), op.getRhs()));
        op.erase();
    }
}

}  // namespace megjit::mlir_backend
