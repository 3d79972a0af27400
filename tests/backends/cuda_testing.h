// tests/backends/cuda_testing.h -- a device of backends/cuda beside the CPU, for tests.
#pragma once

#include <gtest/gtest.h>

#include <numeric>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "backends/nvrtc/compiler.h"
#include "codegen/compiler.h"
#include "jit/plan/op_program.h"
#include "memory/caching_allocator.h"
#include "runtime/core/host_view.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/half.h"
#include "runtime/ops/builders.h"

namespace megjit::cuda {

using namespace runtime;

class CudaDeviceTest : public testing::Test {
protected:
    static void SetUpTestSuite() {
        static const bool once = [] {
            register_all_ops();
            register_device(std::make_unique<cpu::CpuDevice>(
                std::make_unique<memory::CachingAllocator>(), &jit::op_program));
            codegen::KernelService::instance().add(std::make_unique<nvrtc::NvrtcCompiler>());
            discover_gpus(
                {.make_allocator = &memory::make_caching_allocator, .expand = &jit::op_program});
            discover_devices();
            return true;
        }();
        (void)once;
    }
    void SetUp() override { skip_without(1); }
    static void skip_without(int gpus) {
        try {
            gpu(gpus - 1);
        } catch (const UserError& error) { GTEST_SKIP() << error.what(); }
    }

    static Device& gpu(int index = 0) { return find_device(cat("gpu", index, ":0")); }

    static TensorRef counted(Device& device, int64_t n) {
        std::vector<float> numbers(static_cast<size_t>(n));
        std::iota(numbers.begin(), numbers.end(), 0.0f);
        return tensor_from_host(device, {.shape = {n}}, numbers.data());
    }

    static std::vector<float> values_of(const TensorRef& tensor) {
        const HostView view(tensor);
        return {view.as<float>(), view.as<float>() + tensor->type().numel()};
    }
};

}  // namespace megjit::cuda
