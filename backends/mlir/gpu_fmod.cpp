// C's fmod of two f32 or f64 by long division of mantissas: some bits of the difference of
// exponents at a time, in 64-bit integers. Every step is exact, and so is the result.
#include "backends/mlir/emit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using ICmp = arith::CmpIPredicate;

struct Format {
    const char* function;
    int64_t mantissa, exponent;  // in bits
    int64_t at_once;  // a mantissa, shifted by this many bits, is below 2^64

    int64_t sign() const { return static_cast<int64_t>(uint64_t{1} << (mantissa + exponent)); }
    int64_t infinity() const { return ((int64_t{1} << exponent) - 1) << mantissa; }
    int64_t nan() const { return infinity() | int64_t{1} << (mantissa - 1); }
    int64_t leading() const { return int64_t{1} << mantissa; }
    // The value of a mantissa's last bit is 2^(exponent - bias).
    int64_t bias() const { return (int64_t{1} << (exponent - 1)) - 1 + mantissa; }
    bool is_double() const { return mantissa == 52; }
};
constexpr Format kF32 = {"megjit_fmodf", 23, 8, 40}, kF64 = {"megjit_fmod", 52, 11, 11};

class FmodEmitter {
public:
    FmodEmitter(ImplicitLocOpBuilder& b, const Format& format)
        : b_(b), format_(format), i64_(b.getI64Type()) {}

    Value emit(Value x, Value y) {
        const Value bits_x = wide(x), bits_y = wide(y);
        const Value size_x = both(bits_x, ~format_.sign()), size_y = both(bits_y, ~format_.sign());
        const Value exponent_x = exponent(size_x), exponent_y = exponent(size_y);
        // The divisor is made at least 1, for a remainder by 0 would be undefined, though it is not
        // used.
        const Value divisor = arith::MaxUIOp::create(b_, mantissa(size_y), number(1));
        const Value distance = arith::SubIOp::create(b_, exponent_x, exponent_y);
        const Value rest = long_division(mantissa(size_x), divisor, distance);

        // rest * 2^(exponent_y - bias) fits the format, so that f64 holds it too; 2^-1022 is the
        // least factor that is no denormal.
        const Value power = arith::SubIOp::create(b_, exponent_y, number(format_.bias())),
                    first = arith::MaxSIOp::create(b_, power, number(-1022));
        Value exact = arith::MulFOp::create(b_, arith::UIToFPOp::create(b_, b_.getF64Type(), rest),
                                            power_of_two(first));
        if (format_.is_double())
            exact = arith::MulFOp::create(b_, exact,
                                          power_of_two(arith::SubIOp::create(b_, power, first)));
        else exact = arith::TruncFOp::create(b_, b_.getF32Type(), exact);
        const Value magnitude = wide(exact);
        const Value remainder = arith::OrIOp::create(b_, magnitude, both(bits_x, format_.sign()));

        const Value is_small = arith::CmpIOp::create(b_, ICmp::ult, size_x, size_y);
        const Value infinity = number(format_.infinity());
        const Value is_finite = arith::CmpIOp::create(b_, ICmp::ult, size_x, infinity);
        const Value is_number = arith::CmpIOp::create(b_, ICmp::ule, size_y, infinity);
        const Value is_some = arith::CmpIOp::create(b_, ICmp::ne, size_y, number(0));
        const Value is_defined =
            arith::AndIOp::create(b_, is_finite, arith::AndIOp::create(b_, is_number, is_some));
        const Value result = arith::SelectOp::create(b_, is_small, bits_x, remainder);
        const Value bits = arith::SelectOp::create(b_, is_defined, result, number(format_.nan()));
        if (format_.is_double()) return arith::BitcastOp::create(b_, b_.getF64Type(), bits);
        return arith::BitcastOp::create(b_, b_.getF32Type(),
                                        arith::TruncIOp::create(b_, b_.getI32Type(), bits));
    }

private:
    Value number(int64_t value) {
        return arith::ConstantOp::create(b_, b_.getI64IntegerAttr(value));
    }
    Value both(Value bits, int64_t mask) { return arith::AndIOp::create(b_, bits, number(mask)); }
    Value power_of_two(Value power) {
        const Value biased = arith::AddIOp::create(b_, power, number(1023));
        return arith::BitcastOp::create(b_, b_.getF64Type(),
                                        arith::ShLIOp::create(b_, biased, number(52)));
    }
    Value wide(Value x) {
        if (format_.is_double()) return arith::BitcastOp::create(b_, i64_, x);
        return arith::ExtUIOp::create(b_, i64_, arith::BitcastOp::create(b_, b_.getI32Type(), x));
    }
    // Denormals have the exponent of the least normal numbers.
    Value exponent(Value size) {
        return arith::MaxUIOp::create(
            b_, arith::ShRUIOp::create(b_, size, number(format_.mantissa)), number(1));
    }
    Value mantissa(Value size) {
        const Value one = number(format_.leading());
        const Value is_normal = arith::CmpIOp::create(b_, ICmp::uge, size, one);
        const Value leading = arith::SelectOp::create(b_, is_normal, one, number(0));
        return arith::OrIOp::create(b_, both(size, format_.leading() - 1), leading);
    }

    // Computes mantissa * 2^distance modulo divisor.
    Value long_division(Value mantissa, Value divisor, Value distance) {
        const Value first = arith::RemUIOp::create(b_, mantissa, divisor);
        auto loop =
            scf::ForOp::create(b_, number(0), distance, number(format_.at_once), ValueRange{first});
        const OpBuilder::InsertionGuard restore(b_);
        b_.setInsertionPointToStart(loop.getBody());
        const Value left = arith::SubIOp::create(b_, distance, loop.getInductionVar());
        const Value moved =
            arith::ShLIOp::create(b_, loop.getRegionIterArgs()[0],
                                  arith::MinSIOp::create(b_, left, number(format_.at_once)));
        scf::YieldOp::create(b_, ValueRange{arith::RemUIOp::create(b_, moved, divisor)});
        return loop.getResult(0);
    }

    ImplicitLocOpBuilder& b_;
    const Format& format_;
    Type i64_;
};

void define_fmod(ImplicitLocOpBuilder& b, const Format& format) {
    const Type real = format.is_double() ? Type(b.getF64Type()) : Type(b.getF32Type());
    auto function = LLVM::LLVMFuncOp::create(b, format.function,
                                             LLVM::LLVMFunctionType::get(real, {real, real}),
                                             LLVM::Linkage::Internal);
    Block* entry = function.addEntryBlock(b);
    const OpBuilder::InsertionGuard restore(b);
    b.setInsertionPointToStart(entry);
    const Value result = FmodEmitter(b, format).emit(entry->getArgument(0), entry->getArgument(1));
    LLVM::ReturnOp::create(b, ValueRange{result});
}

}  // namespace

void emit_gpu_fmod(ImplicitLocOpBuilder& b, Operation* module) {
    SmallVector<arith::RemFOp> remainders;
    module->walk([&](arith::RemFOp op) { remainders.push_back(op); });
    const auto format_of = [](arith::RemFOp op) -> const Format& {
        return getElementTypeOrSelf(op.getType()).isF64() ? kF64 : kF32;
    };
    for (const Format* format : {&kF32, &kF64})
        if (llvm::any_of(remainders, [&](arith::RemFOp op) { return &format_of(op) == format; }))
            define_fmod(b, *format);
    for (arith::RemFOp op : remainders) {
        const OpBuilder::InsertionGuard restore(b);
        b.setInsertionPoint(op);
        const auto remainder = [&](Value x, Value y) -> Value {
            return LLVM::CallOp::create(b, TypeRange{x.getType()}, format_of(op).function,
                                        ValueRange{x, y})
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
