#include "codegen/checked_kernel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <span>

#include "codegen/expand_math.h"
#include "codegen/gpu_plan.h"
#include "runtime/core/tensor.h"
#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

using runtime::cat;

// Counts the elements from an operand's first one to its last.
int64_t elements(const KernelIR& kernel, const LaunchShape& launch, size_t operand) {
    if (launch.numel() == 0) return 0;
    if (operand >= kernel.inputs.size() && kernel.reduced == 0) return launch.numel();
    int64_t last = 0;
    for (size_t axis = 0; axis < launch.extents.size(); ++axis)
        last += (launch.extents[axis] - 1) * launch.strides[operand * launch.extents.size() + axis];
    return last + 1;
}

// The results that the interpreter expects of one launch, to be compared with the kernel's.
class Expected {
public:
    Expected(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
             void* const* outputs)
        : kernel_(kernel), launch_(launch) {
        std::vector<void*> pointers;
        for (size_t k = 0; k < kernel.outputs.size(); ++k) {
            const auto* begin = static_cast<const std::byte*>(
                outputs[k]);  // gaps between elements keep their bytes
            outputs_.emplace_back(
                begin, begin + count(k) * static_cast<int64_t>(size_of(kernel.outputs[k].dtype)));
        }
        for (auto& output : outputs_) pointers.push_back(output.data());
        interpret(expand_math(kernel), launch, inputs, pointers.data());
    }

    // Says where output k differs; "" when it does not.
    std::string difference(size_t k, const void* got, bool shares_rows) const {
        const DType dtype = kernel_.outputs[k].dtype;
        const size_t size = size_of(dtype);
        const double allowed =
            shares_rows && !keeps_order_on_gpu(kernel_, launch_) ? rounding(k) : 0;
        for (int64_t i = 0; i < count(k); ++i) {
            const size_t offset = static_cast<size_t>(i) * size;
            if (std::memcmp(static_cast<const std::byte*>(got) + offset,
                            outputs_[k].data() + offset, size) == 0)
                continue;
            const double a = runtime::item_as_double(dtype, got, i),
                         b = runtime::item_as_double(dtype, outputs_[k].data(), i);
            const bool is_close = allowed > 0 && std::fabs(a - b) <= allowed;
            if (!is_close && (a == a || b == b))  // any NaN equals any other
                return cat(a, " at element ", i, " of output ", k, "; the interpreter gives ", b);
        }
        return "";
    }

private:
    int64_t count(size_t k) const { return elements(kernel_, launch_, kernel_.inputs.size() + k); }
    // The amount by which another order of additions may change the elements of output k.
    double rounding(size_t k) const {
        const DType dtype = kernel_.outputs[k].dtype;
        if (!runtime::is_floating(dtype)) return 0;
        const double last_digit = dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-9 : 0;
        double largest = 1;
        for (int64_t i = 0; i < count(k); ++i)
            if (const double v = std::fabs(runtime::item_as_double(dtype, outputs_[k].data(), i));
                std::isfinite(v))
                largest = std::max(largest, v);
        return (2e-5 + last_digit) * largest;
    }

    const KernelIR& kernel_;
    const LaunchShape& launch_;
    std::vector<std::vector<std::byte>> outputs_;
};

// Copies of operands for the host, as they are after the work queued so far.
class OnHost {
public:
    OnHost(runtime::Stream& stream, void* const* operands, std::span<const size_t> bytes)
        : pointers_(operands, operands + bytes.size()) {
        if (stream.is_inline()) return;
        for (size_t i = 0; i < bytes.size(); ++i) {
            copies_.emplace_back(bytes[i]);
            if (bytes[i]) stream.download(copies_[i].data(), operands[i], bytes[i]);
            pointers_[i] = copies_[i].data();
        }
        stream.synchronize();
    }
    void* const* from(size_t first) const { return pointers_.data() + first; }

private:
    std::vector<void*> pointers_;
    std::vector<std::vector<std::byte>> copies_;
};

class CheckedKernel final : public runtime::Executable {
public:
    CheckedKernel(std::shared_ptr<const runtime::Executable> inner, CheckedLaunch launch)
        : inner_(std::move(inner)), launch_(std::move(launch)) {}

    size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
    bool may_alias(int out, int in) const override { return inner_->may_alias(out, in); }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        if (was_compared_.exchange(true))
            return inner_->enqueue(stream, inputs, outputs, workspace);
        // The interpreter runs first, for the kernel may write over its inputs.
        const std::vector<LaunchShape>& launches = launch_.launches;
        const size_t ins = memory_inputs(launch_.kernel), outs = launch_.kernel.outputs.size();
        const OnHost in(stream, inputs, launch_.input_bytes),
            before(stream, outputs, launch_.output_bytes);
        std::vector<Expected> expected;
        for (size_t i = 0; i < launches.size(); ++i)
            expected.emplace_back(launch_.kernel, launches[i], in.from(i * ins),
                                  before.from(i * outs));
        inner_->enqueue(stream, inputs, outputs, workspace);
        const OnHost after(stream, outputs, launch_.output_bytes);
        for (size_t i = 0; i < launches.size(); ++i)
            for (size_t k = 0; k < outs; ++k)
                if (const std::string difference =
                        expected[i].difference(k, after.from(i * outs)[k], launch_.shares_rows);
                    !difference.empty())
                    throw runtime::InternalError(cat(launch_.name, " gives ", difference));
    }

private:
    std::shared_ptr<const runtime::Executable> inner_;
    CheckedLaunch launch_;
    mutable std::atomic<bool> was_compared_{false};
};

}  // namespace

std::shared_ptr<const runtime::Executable> checked(std::shared_ptr<const runtime::Executable> inner,
                                                   CheckedLaunch launch) {
    return std::make_shared<const CheckedKernel>(std::move(inner), std::move(launch));
}

}  // namespace megjit::codegen
