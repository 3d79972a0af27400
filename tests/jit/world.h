// tests/jit/world.h -- the ops and the CPU device, made once for the test program.
#pragma once

#include <gtest/gtest.h>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "backends/nvrtc/compiler.h"
#include "codegen/compiler.h"
#include "jit/plan/op_program.h"
#include "jit/plan/ops/control_flow.h"
#include "jit/step/graph.h"
#include "memory/caching_allocator.h"
#include "runtime/core/host_view.h"
#include "runtime/core/op.h"

namespace megjit::jit {

class World : public testing::Test {
protected:
    static void SetUpTestSuite() {
        static const bool once = [] {
            runtime::register_all_ops();
            register_control_flow_ops();
            runtime::register_device(std::make_unique<cpu::CpuDevice>(
                std::make_unique<memory::CachingAllocator>(), &op_program));
            codegen::KernelService::instance().add(std::make_unique<nvrtc::NvrtcCompiler>());
            cuda::discover_gpus(
                {.make_allocator = &memory::make_caching_allocator, .expand = &op_program});
            runtime::discover_devices();
            return true;
        }();
        (void)once;
    }
};

// The graph on the first GPU.
inline Graph on_card(std::string_view text) {
    Graph graph = parse_graph(text);
    graph.set_device(runtime::find_device("gpu0:0"));
    return graph;
}

inline TensorRef floats(const runtime::Shape& shape, std::initializer_list<float> values) {
    TensorRef tensor = runtime::empty_tensor(runtime::host_device(),
                                             {.dtype = runtime::DType::f32, .shape = shape});
    std::copy(values.begin(), values.end(), tensor->as<float>());
    return tensor;
}

inline std::vector<float> values_of(const TensorRef& tensor) {
    const runtime::HostView view(tensor);
    return {view.as<float>(), view.as<float>() + tensor->type().numel()};
}

inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace megjit::jit
