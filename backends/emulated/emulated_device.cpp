#include "backends/emulated/emulated_device.h"

#include "codegen/compiler.h"
#include "codegen/kernel_ir.h"

namespace megjit::emulated {
namespace {

using runtime::Executable;

constexpr size_t kMemoryBytes = size_t{8} << 30;

// Streams differ in their delays; a program's are the same each time.
uint64_t seed_of(int number, int stream) {
    return static_cast<uint64_t>(number) * 1000 + static_cast<uint64_t>(stream) * 2;
}

// A kernel of the host, run later by a stream's thread.
class Later final : public Executable {
public:
    Later(std::shared_ptr<const Executable> inner, size_t inputs, size_t outputs, double seconds)
        : inner_(std::move(inner)), inputs_(inputs), outputs_(outputs), seconds_(seconds) {}

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        auto& worker = dynamic_cast<WorkerStream&>(stream);
        std::vector<void*> in(inputs_), out(outputs_);
        for (size_t i = 0; i < inputs_; ++i) in[i] = worker.memory().on_host(inputs[i]);
        for (size_t i = 0; i < outputs_; ++i) out[i] = worker.memory().on_host(outputs[i]);
        void* scratch = inner_->workspace_bytes() ? worker.memory().on_host(workspace) : nullptr;
        worker.run([inner = inner_, in = std::move(in), out = std::move(out), scratch] {
            inner->enqueue(runtime::inline_stream(), in.data(), out.data(), scratch);
        }, seconds_);
    }
    size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
    bool may_alias(int out, int in) const override { return inner_->may_alias(out, in); }
    std::string_view remark() const override { return inner_->remark(); }
    std::optional<Part> part(int in) const override { return inner_->part(in); }

private:
    std::shared_ptr<const Executable> inner_;
    size_t inputs_, outputs_;
    double seconds_;
};

// Pages go back when nothing that was queued can still use them.
class Pages final : public runtime::PageSource {
public:
    Pages(std::shared_ptr<DeviceMemory> memory, std::vector<WorkerStream*> streams)
        : memory_(std::move(memory)), streams_(std::move(streams)) {}
    void* map(size_t bytes) override { return memory_->map(bytes); }
    void unmap(void* p, size_t bytes) noexcept override {
        for (WorkerStream* stream : streams_) stream->wait_until_idle();
        memory_->unmap(p, bytes);
    }
    bool unmaps_parts() const override { return true; }
    bool is_host_memory() const override { return false; }

private:
    std::shared_ptr<DeviceMemory> memory_;
    std::vector<WorkerStream*> streams_;
};

}  // namespace

EmulatedDevice::EmulatedDevice(int number, int stream, runtime::Device& kernels,
                               MakeAllocator make_allocator, std::shared_ptr<DeviceMemory> memory)
    : number_(number),
      name_(runtime::cat("gpu", number, ":", stream)),
      kernels_(kernels),
      memory_(memory ? std::move(memory) : std::make_shared<DeviceMemory>(kMemoryBytes)),
      stream_(name_, memory_, seed_of(number, stream)),
      copy_stream_(name_, memory_, seed_of(number, stream) + 1),
      make_allocator_(make_allocator),
      allocator_(make_allocator(
          std::make_unique<Pages>(memory_, std::vector<WorkerStream*>{&stream_, &copy_stream_}))) {}

runtime::DeviceInfo EmulatedDevice::info() const {
    return {.kind = runtime::DeviceKind::gpu,
            .number = number_,
            .model = "emulated",
            .total_bytes = kMemoryBytes,
            .free_bytes = memory_->free_bytes()};
}

std::unique_ptr<runtime::Device> EmulatedDevice::on_stream(int number) {
    return std::unique_ptr<runtime::Device>(
        new EmulatedDevice(number_, number, kernels_, make_allocator_, memory_));
}

std::shared_ptr<const Executable> EmulatedDevice::prepare(const runtime::OpCall& call,
                                                          std::span<const runtime::Type> outputs) {
    return std::make_shared<Later>(kernels_.prepare(call, outputs), call.inputs.size(),
                                   outputs.size(),
                                   kSpeeds.seconds(runtime::cost_of(call, outputs)));
}

std::shared_ptr<const Executable> EmulatedDevice::prepare_kernel(
    const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
    const codegen::CompiledKernel* code) {
    const size_t inputs = launches.size() * codegen::memory_inputs(kernel);
    const size_t outputs = launches.size() * kernel.outputs.size();
    runtime::Cost cost;
    for (const codegen::LaunchShape& launch : launches) {
        const auto elements = static_cast<double>(launch.numel());
        cost.flops += elements * kernel.program.size();
        cost.bytes +=
            elements * 4 * static_cast<double>(kernel.inputs.size() + kernel.outputs.size());
    }
    return std::make_shared<Later>(kernels_.prepare_kernel(kernel, std::move(launches), code),
                                   inputs, outputs, kSpeeds.seconds(cost));
}

}  // namespace megjit::emulated
