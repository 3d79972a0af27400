// A kernel for GPUs, as LLVM IR, as a function of the host: what it asks of its GPU it asks of
// cuda_emulation.h.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"  // functions that only CUDA C++ calls
#include "tests/backends/cuda_emulation.h"
#pragma GCC diagnostic pop

#include <string>

#include "backends/mlir/emit.h"
#include "backends/mlir/gpu_lower.h"
#include "backends/mlir/gpu_machine.h"
#include "backends/mlir/machine.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace megjit::mlir_backend {

class HostKernels {
public:
    // The address of a function that takes the words of the parameters and does what one thread
    // does.
    using Body = void (*)(const void* words);

    Body compile(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan) {
        llvm::LLVMContext context;
        const std::unique_ptr<llvm::Module> module = lowering_.lower(kernel, plan, context);
        optimize_for_gpu(*module, 90);
        for (llvm::Function& function : llvm::make_early_inc_range(*module))
            if (function.getName().starts_with("llvm.nvvm.")) emulate(function);
        add_wrapper(*module);
        machine_.optimize(*module);
        return reinterpret_cast<Body>(machine_.load(machine_.to_object(*module)));
    }

    static void launch(Body body, const uint32_t* grid, unsigned threads, const uint64_t* words) {
        block.body = body;
        block.argument = words;
        gridDim = {grid[0], grid[1]};
        for (blockIdx.y = 0; blockIdx.y < grid[1]; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; ++blockIdx.x) run_block(threads);
    }

private:
    static float shuffle_f32(unsigned mask, float value, int lane, int) {
        return __int_as_float(__shfl_xor_sync(mask, __float_as_int(value), lane));
    }
    static int shuffle_i32(unsigned mask, int value, int lane, int) {
        return __shfl_xor_sync(mask, value, lane);
    }

    static uint64_t address_of(llvm::StringRef intrinsic) {
        const std::pair<llvm::StringRef, uint64_t> all[] = {
            {"read.ptx.sreg.tid.x", address(+[] { return threadIdx.x; })},
            {"read.ptx.sreg.ctaid.x", address(+[] { return blockIdx.x; })},
            {"read.ptx.sreg.ctaid.y", address(+[] { return blockIdx.y; })},
            {"read.ptx.sreg.nctaid.x", address(+[] { return gridDim.x; })},
            {"barrier.cta.sync.aligned.all", address(+[](int) { __syncthreads(); })},
            {"bar.warp.sync", address(+[](int) { __syncwarp(); })},
            {"shfl.sync.bfly.i32", address(&shuffle_i32)},
            {"shfl.sync.bfly.f32", address(&shuffle_f32)},
        };
        for (const auto& [name, where] : all)
            if (intrinsic == name) return where;
        throw runtime::InternalError("the emulation has no " + intrinsic.str());
    }
    template <class Function>
    static uint64_t address(Function* function) {
        return reinterpret_cast<uint64_t>(function);
    }

    static void emulate(llvm::Function& intrinsic) {
        llvm::IRBuilder<> builder(intrinsic.getContext());
        const uint64_t target = address_of(intrinsic.getName().drop_front(sizeof "llvm.nvvm." - 1));
        llvm::Value* callee =
            llvm::ConstantExpr::getIntToPtr(builder.getInt64(target), builder.getPtrTy());
        for (llvm::User* user : llvm::make_early_inc_range(intrinsic.users())) {
            auto* call = llvm::cast<llvm::CallInst>(user);
            builder.SetInsertPoint(call);
            const llvm::SmallVector<llvm::Value*> arguments(call->args());
            call->replaceAllUsesWith(
                builder.CreateCall(intrinsic.getFunctionType(), callee, arguments));
            call->eraseFromParent();
        }
        intrinsic.eraseFromParent();
    }

    // Under the kernel's name, which becomes a function of the host itself.
    static void add_wrapper(llvm::Module& module) {
        llvm::Function* kernel = module.getFunction(kKernelSymbol);
        kernel->setName("kernel");
        kernel->setCallingConv(llvm::CallingConv::C);
        llvm::IRBuilder<> builder(module.getContext());
        auto* type = llvm::FunctionType::get(builder.getVoidTy(), {builder.getPtrTy()}, false);
        auto* wrapper =
            llvm::Function::Create(type, llvm::Function::ExternalLinkage, kKernelSymbol, module);
        builder.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", wrapper));
        llvm::SmallVector<llvm::Value*> arguments;
        for (llvm::Argument& argument : kernel->args()) {
            llvm::Value* at = builder.CreateConstGEP1_64(builder.getInt64Ty(), wrapper->getArg(0),
                                                         argument.getArgNo());
            arguments.push_back(builder.CreateLoad(argument.getType(), at));
        }
        builder.CreateCall(kernel, arguments);
        builder.CreateRetVoid();
    }

    GpuLowering lowering_;
    Machine machine_;
};

}  // namespace megjit::mlir_backend
