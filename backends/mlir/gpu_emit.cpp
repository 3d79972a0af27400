#include "backends/mlir/gpu_emit.h"

#include "backends/mlir/emit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "runtime/error.h"

namespace megjit::mlir_backend {
namespace {

using namespace mlir;
using codegen::GpuPlan;
using codegen::KernelIR;
using runtime::cat;

// Addresses, extents, strides; then one stride for each gathered input.
SmallVector<Type> parameters_of(ImplicitLocOpBuilder& b, const KernelIR& kernel) {
    const size_t operands = kernel.inputs.size() + kernel.outputs.size(),
                 rank = static_cast<size_t>(kernel.rank);
    SmallVector<Type> types(codegen::memory_inputs(kernel) + kernel.outputs.size(),
                            LLVM::LLVMPointerType::get(b.getContext()));
    types.append(rank + operands * rank, b.getI64Type());
    for (const codegen::Operand& input : kernel.inputs)
        if (input.by >= 0) types.push_back(b.getI64Type());
    if (types.size() > codegen::kMaxGpuParameters)
        throw runtime::DeviceError(cat("MLIR: a kernel has ", types.size(),
                                       " parameters; a GPU takes ", codegen::kMaxGpuParameters));
    return types;
}

LaunchValues numbers_of(ImplicitLocOpBuilder& b, const KernelIR& kernel,
                        Block::BlockArgListType parameters) {
    size_t next = 0;
    const auto take = [&] { return parameters[next++]; };
    const size_t inputs = kernel.inputs.size(), outputs = kernel.outputs.size();
    LaunchValues numbers;
    for (const codegen::Operand& input : kernel.inputs)
        numbers.bases.push_back(input.is_offset
                                    ? Value(arith::ConstantOp::create(b, b.getI64IntegerAttr(0)))
                                    : Value(take()));
    for (size_t k = 0; k < outputs; ++k) numbers.bases.push_back(take());
    for (int axis = 0; axis < kernel.rank; ++axis) numbers.extents.push_back(take());
    for (size_t i = 0; i < inputs + outputs; ++i) {
        Values own;
        for (int axis = 0; axis < kernel.rank; ++axis) own.push_back(take());
        if (i < inputs || kernel.reduced > 0) numbers.strides.push_back(std::move(own));
    }
    for (const codegen::Operand& input : kernel.inputs)
        numbers.gather_strides.push_back(input.by >= 0 ? Value(take()) : Value());
    return numbers;
}

template <class Op>
Value read(ImplicitLocOpBuilder& b) {
    return arith::IndexCastOp::create(b, b.getI64Type(), Op::create(b, gpu::Dimension::x));
}

}  // namespace

GpuPlace place_of(Frame& f, const Values& bases, int first, int last, Value number) {
    GpuPlace place{bases, {}};
    if (first == last) return place;
    Value rest = number;
    for (int axis = last - 1; axis >= first; --axis) {
        const Value extent = f.extents[static_cast<size_t>(axis)];
        const Value at = axis > first ? Value(arith::RemUIOp::create(f.b, rest, extent)) : rest;
        if (axis > first) rest = arith::DivUIOp::create(f.b, rest, extent);
        if (axis == last - 1) place.last = at;
        else place.bases = f.along(place.bases, axis, at);
    }
    return place;
}

// Each thread takes `vector` neighbours, then those a whole grid further on.
void emit_gpu_elements(const GpuFrame& gpu) {
    const int64_t width = gpu.plan.vector;
    Frame f(gpu.b, gpu.kernel, {.width = gpu.plan.vector, .is_aligned = true}, gpu.numbers);
    const int rank = gpu.kernel.rank;
    const size_t inputs = gpu.kernel.inputs.size();
    SmallVector<int> ids;
    for (int id = 0; id < gpu.kernel.program.size(); ++id) ids.push_back(id);
    SmallVector<size_t> outputs;
    for (size_t k = 0; k < gpu.kernel.outputs.size(); ++k) outputs.push_back(k);

    Value count = f.index(1);
    for (const Value extent : f.extents) count = f.mul(count, extent);
    const Value threads = f.index(gpu.plan.threads), step = f.index(width);
    const Value from = f.mul(f.add(f.mul(gpu.block, threads), gpu.thread), step);
    auto loop = scf::ForOp::create(gpu.b, from, count, f.mul(f.mul(gpu.blocks, threads), step));
    const OpBuilder::InsertionGuard restore(gpu.b);
    gpu.b.setInsertionPointToStart(loop.getBody());
    const Value at = loop.getInductionVar();
    const GpuPlace place = place_of(f, f.bases, 0, rank, at);
    const Value row = f.sub(at, place.last);  // outputs are row-major
    const Values bases =
        f.gathered(f.moved(place.bases, [&](size_t i) { return i < inputs ? Value() : row; }));
    // Rows of higher ranks are whole vectors.
    const Piece piece =
        rank == 1 && width > 1 ? f.either(place.last, f.sub(count, at)) : Piece{place.last};
    Values values(ids.size());
    f.evaluate(ids, bases, piece, values);
    f.store(outputs, bases, piece, values);
}

OwningOpRef<ModuleOp> emit_gpu(MLIRContext& context, const KernelIR& kernel, const GpuPlan& plan) {
    ImplicitLocOpBuilder b(UnknownLoc::get(&context), &context);
    OwningOpRef<ModuleOp> module = ModuleOp::create(b.getLoc());
    (*module)->setAttr(gpu::GPUDialect::getContainerModuleAttrName(), b.getUnitAttr());
    b.setInsertionPointToStart(module->getBody());
    auto device = gpu::GPUModuleOp::create(b, kGpuModule);
    b.setInsertionPointToStart(device.getBody());
    auto function =
        gpu::GPUFuncOp::create(b, kKernelSymbol, b.getFunctionType(parameters_of(b, kernel), {}));
    function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
    function.setKnownBlockSize(ArrayRef<int32_t>{plan.threads, 1, 1});
    Block& entry = function.getBody().front();
    b.setInsertionPointToStart(&entry);
    const GpuFrame gpu{b,
                       kernel,
                       plan,
                       numbers_of(b, kernel, entry.getArguments()),
                       read<gpu::ThreadIdOp>(b),
                       read<gpu::BlockIdOp>(b),
                       read<gpu::GridDimOp>(b)};
    if (kernel.reduced == 0) emit_gpu_elements(gpu);
    else emit_gpu_reductions(gpu);
    b.setInsertionPointToEnd(&entry);
    gpu::ReturnOp::create(b);
    b.setInsertionPointToStart(device.getBody());
    emit_gpu_fmod(b, device);
    return module;
}

}  // namespace megjit::mlir_backend
