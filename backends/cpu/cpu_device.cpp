#include "backends/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "backends/cpu/vm/vm.h"
#include "runtime/host/mutex.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu {

// There is one line for each file of kernels.
void register_attention_kernels();
void register_block_weight_kernels();
void register_collective_kernels();
void register_copy_kernels();
void register_grouped_product_kernels();
void register_index_kernels();
void register_reduce_kernels();
void register_arg_reduce_kernels();
void register_sort_kernels();
void register_random_kernels();
void register_linalg_kernels();
void register_decomposition_kernels();
void register_fft_kernels();
void register_conv_kernels();
void register_quantized_conv_kernels();
void register_relayout_kernels();
void register_matmul_kernels();
void register_norm_kernels();
void register_pool_kernels();
void register_recurrent_kernels();
void register_softmax_kernels();

namespace {

using namespace runtime;

struct Kernel {
    Prepare prepare = nullptr;
    Selects computes_whole = nullptr;
};
struct Kernels {
    Mutex mutex{"the CPU's kernels"};  // a program may load a library of ops at any time
    std::map<std::string, Kernel, std::less<>> by_op;
};
Kernels& kernels() {
    static Kernels table;
    return table;
}
Kernel kernel_of(std::string_view op) {
    const std::lock_guard lock(kernels().mutex);
    const auto found = kernels().by_op.find(op);
    return found == kernels().by_op.end() ? Kernel{} : found->second;
}

std::map<std::string, Packing, std::less<>>& packings() {
    static std::map<std::string, Packing, std::less<>> table;
    return table;
}

void register_all_kernels() {
    register_attention_kernels();
    register_block_weight_kernels();
    register_collective_kernels();
    register_copy_kernels();
    register_grouped_product_kernels();
    register_index_kernels();
    register_reduce_kernels();
    register_arg_reduce_kernels();
    register_sort_kernels();
    register_random_kernels();
    register_linalg_kernels();
    register_decomposition_kernels();
    register_fft_kernels();
    register_conv_kernels();
    register_quantized_conv_kernels();
    register_relayout_kernels();
    register_matmul_kernels();
    register_norm_kernels();
    register_pool_kernels();
    register_recurrent_kernels();
    register_softmax_kernels();
}

// A generated kernel over one space or several. Threads share the units of all launches, which are
// divided into tasks of about kGrainElements; element-wise ones are divided at cache lines.
class KernelLaunch final : public Executable {
public:
    KernelLaunch(codegen::KernelFn fn, const codegen::KernelIR& kernel,
                 std::vector<codegen::LaunchShape> launches)
        : fn_(fn),
          kernel_(kernel),
          launches_(std::move(launches)),
          inputs_(codegen::memory_inputs(kernel)) {
        constexpr int64_t kGrainElements = 32768;
        // Long programs are worth a second thread at fewer elements.
        const int64_t weight = 1 + kernel.program.size() / 16, elements = kGrainElements / weight;
        const int64_t align = kernel.rank == 1 && kernel.reduced == 0 ? 64 : 1;
        int64_t total = 0;
        for (size_t i = 0; i < launches_.size(); ++i) {
            const int64_t numel = launches_[i].numel(),
                          units = numel ? codegen::units(kernel, launches_[i]) : 0;
            if (units == 0) continue;
            const int64_t unit = std::max<int64_t>(1, numel / units) + row_cost(kernel);
            total += units * unit;
            // A single launch is divided by parallel_for, into a few parts for each thread.
            const int64_t step = launches_.size() == 1
                                     ? units
                                     : (step_of(elements, unit) + align - 1) / align * align;
            for (int64_t lo = 0; lo < units; lo += step)
                tasks_.push_back({i, lo, std::min(units, lo + step)});
            if (launches_.size() == 1) grain_ = step_of(elements, unit);
        }
        if (launches_.size() > 1 && total < 2 * elements)
            grain_ = static_cast<int64_t>(tasks_.size());  // not worth a second thread
        align_ = align;
    }

    void enqueue(Stream&, void* const* inputs, void* const* outputs, void*) const override {
        if (tasks_.empty()) return;
        if (launches_.size() == 1)
            return parallel_for(tasks_[0].hi, grain_, align_, [&](int64_t lo, int64_t hi) {
                run_task({0, lo, hi}, inputs, outputs);
            });
        parallel_for(static_cast<int64_t>(tasks_.size()), grain_, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i)
                run_task(tasks_[static_cast<size_t>(i)], inputs, outputs);
        });
    }

    bool may_alias(int out, int in) const override {
        return codegen::may_lie_on(kernel_, launches_, out, in);
    }

private:
    struct Task {
        size_t launch = 0;
        int64_t lo = 0, hi = 0;
    };
    // Returns what a row costs beside its elements, counted in elements: its lanes are joined for
    // each reduction (128 rows of 10 elements with three reductions take 9.7 us).
    static int64_t row_cost(const codegen::KernelIR& kernel) {
        constexpr int64_t kElementsOfJoin = 128;
        const bool is_row = kernel.lanes == codegen::Lanes::last;
        return is_row ? kElementsOfJoin * std::ssize(kernel.reductions) : 0;
    }
    static int64_t step_of(int64_t elements, int64_t unit) {
        return std::max<int64_t>(1, elements / unit);
    }
    void run_task(const Task& task, void* const* inputs, void* const* outputs) const {
        const codegen::LaunchShape& launch = launches_[task.launch];
        fn_(inputs + task.launch * inputs_, outputs + task.launch * kernel_.outputs.size(),
            launch.extents.data(), launch.strides.data(), task.lo, task.hi);
    }

    codegen::KernelFn fn_;
    codegen::KernelIR kernel_;
    std::vector<codegen::LaunchShape> launches_;
    size_t inputs_ = 0;  // inputs of one launch that are in memory
    std::vector<Task> tasks_;
    int64_t grain_ = 1, align_ = 1;
};

// Runs an element-wise kernel over several spaces, without generated code.
class VmLaunches final : public Executable {
public:
    VmLaunches(const codegen::KernelIR& kernel, const std::vector<codegen::LaunchShape>& launches)
        : inputs_(kernel.inputs.size()), outputs_(kernel.outputs.size()) {
        for (const codegen::LaunchShape& launch : launches)
            launches_.push_back(prepare_vm(kernel, launch));
    }
    void enqueue(Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        for (size_t i = 0; i < launches_.size(); ++i)
            launches_[i]->enqueue(stream, inputs + i * inputs_, outputs + i * outputs_, workspace);
    }
    bool may_alias(int out, int in) const override {
        const size_t o = static_cast<size_t>(out), i = static_cast<size_t>(in),
                     launch = o / outputs_;
        return i / inputs_ == launch && launches_[launch]->may_alias(static_cast<int>(o % outputs_),
                                                                     static_cast<int>(i % inputs_));
    }

private:
    size_t inputs_, outputs_;  // counts for one launch
    std::vector<std::shared_ptr<const Executable>> launches_;
};

}  // namespace

void register_kernel(std::string_view op, Prepare prepare, Selects computes_whole) {
    const std::lock_guard lock(kernels().mutex);
    kernels().by_op.insert_or_assign(std::string(op), Kernel{prepare, computes_whole});
}

void register_packing(std::string_view op, Packing packing) {
    packings().insert_or_assign(std::string(op), packing);
}

runtime::DeviceInfo CpuDevice::info() const {
    static const std::string model = [] {
        std::ifstream file("/proc/cpuinfo");
        for (std::string line; std::getline(file, line);)
            if (line.starts_with("model name") && line.find(": ") != std::string::npos)
                return line.substr(line.find(": ") + 2);
        return std::string("CPU");
    }();
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return {.model = model,
            .total_bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page,
            .free_bytes = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page};
}

CpuDevice::CpuDevice(std::unique_ptr<Allocator> allocator, ExpandOp expand)
    : KernelDevice(true), allocator_(std::move(allocator)), expand_(expand) {
    register_all_kernels();
}

CpuDevice::CpuDevice(const CpuDevice& other, std::string name)
    : KernelDevice(true, other.shared_live()),
      name_(std::move(name)),
      allocator_(other.allocator_),
      expand_(other.expand_) {}

std::unique_ptr<Device> CpuDevice::sibling(std::string name) const {
    return std::unique_ptr<Device>(new CpuDevice(*this, std::move(name)));
}

std::shared_ptr<const Executable> CpuDevice::prepare(const OpCall& call,
                                                     std::span<const Type> outputs) {
    if (call.op.is_elementwise()) {
        const codegen::BoundKernel bound = codegen::elementwise_kernel(call, outputs[0]);
        return prepare_vm(bound.kernel, bound.launch);
    }
    if (const Prepare prepare = kernel_of(call.op.name).prepare)
        if (auto executable = prepare(call, outputs)) return executable;
    if (expand_)
        if (auto executable = expand_(*this, call)) return executable;
    user_error({.what = cat(call.op.name, ": the CPU has no kernel for ", to_string(call.inputs)),
                .fix = "cast the inputs to float32"},
               ErrorKind::type);
}

bool CpuDevice::computes_whole(const OpCall& call) const {
    const Selects computes = kernel_of(call.op.name).computes_whole;
    return computes && computes(call);
}

Layout CpuDevice::packed_layout(const OpCall& call, std::span<const Type> outputs, int input) {
    const auto found = packings().find(call.op.name);
    return found == packings().end() || call.op.weights() != static_cast<size_t>(input)
               ? Layout::row_major
               : found->second(call, outputs);
}

std::shared_ptr<const Executable> CpuDevice::prepare_kernel(
    const codegen::KernelIR& kernel, std::vector<codegen::LaunchShape> launches,
    const codegen::CompiledKernel* code) {
    if (!code) return std::make_shared<const VmLaunches>(kernel, launches);
    return std::make_shared<const KernelLaunch>(code->fn, kernel, std::move(launches));
}

}  // namespace megjit::cpu
