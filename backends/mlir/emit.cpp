// The function around a kernel, and the walk of element-wise ones. Rank 1: one run over lo..hi.
// Rank above 1: for every row lo..hi one run over the innermost axis.
//
// A run is a loop over whole vectors and one masked vector for the rest; the body of long programs
// stands there once, and branches where it reads and writes. (Masks for all vectors would be
// simpler, but masked loads and stores cost Zen 5 five times the time on data in memory.)
#include "backends/mlir/emit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::Inner;
using codegen::KernelIR;
using codegen::Operand;
using runtime::ScalarInst;
using runtime::ScalarOp;

// Per instruction: is its value the same for a whole run?
std::vector<bool> uniform_in_a_run(const KernelIR& kernel) {
    const auto is_still = [](const Operand& input) { return input.inner == Inner::broadcast; };
    std::vector<bool> uniform;
    for (const ScalarInst& inst : kernel.program.insts()) {
        bool same = true;
        if (inst.op == ScalarOp::input) {
            const Operand& input = kernel.inputs[inst.bits];
            same = is_still(input) &&
                   (input.by < 0 || is_still(kernel.inputs[static_cast<size_t>(input.by)]));
        }
        for (int k = 0; k < runtime::arity_of(inst.op); ++k)
            same = same && uniform[static_cast<size_t>(inst.args[k])];
        uniform.push_back(same);
    }
    return uniform;
}

class ElementEmitter {
public:
    explicit ElementEmitter(Frame& frame)
        : f_(frame), values_(static_cast<size_t>(frame.kernel.program.size())) {
        const std::vector<bool> uniform = uniform_in_a_run(f_.kernel);
        for (int id = 0; id < f_.kernel.program.size(); ++id)
            (uniform[static_cast<size_t>(id)] ? uniform_ : varying_).push_back(id);
        for (size_t k = 0; k < f_.kernel.outputs.size(); ++k) outputs_.push_back(k);
    }

    void emit() {
        if (f_.kernel.rank == 1) return emit_run(f_.bases, f_.lo, f_.hi);
        const size_t inputs = f_.kernel.inputs.size(), outer = f_.extents.size() - 1;
        std::vector<UnitAxis> axes;
        for (size_t axis = 0; axis < outer; ++axis) {
            axes.push_back({f_.extents[axis], Values(f_.bases.size())});
            for (size_t i = 0; i < inputs; ++i) axes.back().strides[i] = f_.strides[i][axis];
        }
        for_units(f_, axes, [&](Value row, Value, const Values& bases) {
            const Value start = f_.mul(row, f_.extents.back());  // outputs are row-major
            emit_run(f_.moved(bases, [&](size_t i) { return i < inputs ? Value() : start; }),
                     f_.index(0), f_.extents.back());
        });
    }

private:
    void emit_run(const Values& start, Value from, Value to) {
        const Values bases = f_.gathered(start);
        const int64_t width = f_.target.width;
        f_.evaluate(uniform_, bases, {from}, values_);
        if (f_.kernel.program.size() >= static_cast<int>(kLongBody)) {
            f_.loop(from, to, width, {}, [&](Value at, const Values&) {
                return emit_piece(bases, f_.either(at, f_.sub(to, at)));
            });
            return;
        }
        const Value rest = arith::AndIOp::create(f_.b, f_.sub(to, from), f_.index(width - 1));
        const Value whole_end = f_.sub(to, rest);
        f_.loop(from, whole_end, width, {},
                [&](Value at, const Values&) { return emit_piece(bases, {at}); });
        f_.branch(f_.less(f_.index(0), rest),
                  [&] { emit_piece(bases, f_.partial(whole_end, rest)); });
    }

    Values emit_piece(const Values& bases, const Piece& piece) {
        f_.evaluate(varying_, bases, piece, values_);
        f_.store(outputs_, bases, piece, values_);
        return {};
    }

    Frame& f_;
    Values values_;  // per instruction, of the piece being emitted
    SmallVector<int> uniform_, varying_;
    SmallVector<size_t> outputs_;
};

// Nothing to do: touch no operand, not even a broadcast one.
Value has_work(Frame& f) {
    Value some = f.less(f.lo, f.hi);
    if (f.kernel.reduced == 0)
        some = arith::AndIOp::create(f.b, some, f.less(f.index(0), f.extents.back()));
    return some;
}

// From this many instructions on the results of one are waited for longer than the next vector's
// work takes: two registers go through the body together.
constexpr int kLongChain = 24;

VectorTarget widened(VectorTarget target, const KernelIR& kernel) {
    const bool pays =
        kernel.reduced == 0 && kernel.rank == 1 && kernel.program.size() >= kLongChain;
    if (pays) target.width *= 2;
    return target;
}

}  // namespace

void emit_elements(Frame& frame) { ElementEmitter(frame).emit(); }

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
    Frame frame(b, kernel, widened(target, kernel), entry->getArguments());
    frame.branch(has_work(frame), [&] {
        frame.read_operands();
        if (kernel.reduced == 0) emit_elements(frame);
        else if (kernel.lanes == codegen::Lanes::last) emit_rows(frame);
        else emit_columns(frame);
    });
    b.setInsertionPointToEnd(entry);
    LLVM::ReturnOp::create(b, ValueRange());
    return module;
}

}  // namespace megjit::mlir_backend
