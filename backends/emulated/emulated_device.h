// backends/emulated/emulated_device.h -- EmulatedDevice: "gpu0:0" on a machine without one.
#pragma once

#include <memory>
#include <string>

#include "backends/emulated/worker_stream.h"
#include "runtime/device.h"

namespace megjit::emulated {

class EmulatedDevice final : public runtime::Device {
public:
    // Computes with the kernels of `kernels`, a device of the host. `make_allocator` gets the
    // source of the device's pages.
    using MakeAllocator =
        std::unique_ptr<runtime::Allocator> (*)(std::unique_ptr<runtime::PageSource> pages);
    EmulatedDevice(int number, runtime::Device& kernels, MakeAllocator make_allocator)
        : EmulatedDevice(number, 0, kernels, make_allocator, nullptr) {}

    std::string_view name() const override { return name_; }
    runtime::DeviceInfo info() const override;
    std::unique_ptr<runtime::Device> on_stream(int number) override;
    runtime::Allocator& allocator() override { return *allocator_; }
    runtime::Stream& stream() override { return stream_; }
    runtime::Stream& copy_stream() override { return copy_stream_; }
    bool is_host() const override { return false; }
    runtime::Speeds speeds() const override { return kSpeeds; }
    std::shared_ptr<const runtime::Executable> prepare(
        const runtime::OpCall& call, std::span<const runtime::Type> outputs) override;
    std::shared_ptr<const runtime::Executable> prepare_kernel(
        const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
        const codegen::CompiledKernel* code) override;
    runtime::Layout packed_layout(const runtime::OpCall& call,
                                  std::span<const runtime::Type> outputs, int input) override {
        return kernels_.packed_layout(call, outputs, input);
    }

private:
    // Without `memory` it gets one of its own.
    EmulatedDevice(int number, int stream, runtime::Device& kernels, MakeAllocator make_allocator,
                   std::shared_ptr<DeviceMemory> memory);

    int number_;
    std::string name_;
    runtime::Device& kernels_;
    std::shared_ptr<DeviceMemory> memory_;
    WorkerStream stream_, copy_stream_;
    MakeAllocator make_allocator_;
    std::unique_ptr<runtime::Allocator> allocator_;
};

}  // namespace megjit::emulated
