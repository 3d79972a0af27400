#include "backends/cpu/in_parts.h"

#include <algorithm>
#include <cstring>

#include "runtime/host/parallel.h"

namespace megjit::cpu {
namespace {

using runtime::OpCall;
using runtime::Type;

// Activations of at least kLarge bytes are computed by images; a part of several images has at most
// kPart bytes.
constexpr size_t kLarge = size_t{64} << 20, kPart = size_t{16} << 20;
// Parts of sums are larger: with fewer images threads would have to share sums.
constexpr size_t kLargeSum = size_t{256} << 20, kPartOfSum = size_t{64} << 20;

class PartsExecutable final : public runtime::Executable {
public:
    PartsExecutable(Prepared part, Parts parts) : part_(std::move(part)), parts_(std::move(parts)) {
        const size_t bytes = part_->workspace_bytes();
        beside_ = (bytes + kAlign - 1) / kAlign * kAlign;
        workspace_ = has_result_beside() ? beside_ + parts_.output_bytes : bytes;
    }

    size_t workspace_bytes() const override { return workspace_; }
    std::string_view remark() const override { return part_->remark(); }
    bool may_alias(int out, int in) const override {
        return in == parts_.in_place_on || part_->may_alias(out, in);
    }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const int in = parts_.in_place_on;
        char* const beside = static_cast<char*>(workspace) + beside_;
        const bool is_in_place = in >= 0 && inputs[in] == outputs[0];
        std::vector<void*> operands(inputs, inputs + parts_.input_steps.size());
        void* result = outputs[0];
        for (int64_t i = 0; i < parts_.count; ++i) {
            const bool adds = is_sum() && i > 0;
            void* to = is_in_place || adds ? beside : result;
            part_->enqueue(stream, operands.data(), &to, workspace);
            if (is_in_place) copy(beside, result);
            if (adds) add(beside, result);
            for (size_t each = 0; each < operands.size(); ++each)
                operands[each] = static_cast<char*>(operands[each]) + parts_.input_steps[each];
            result = static_cast<char*>(result) + parts_.output_step;
        }
    }

private:
    static constexpr size_t kAlign = 64;
    static constexpr int64_t kGrain = 256 << 10;  // bytes

    bool is_sum() const { return parts_.output_step == 0; }
    bool has_result_beside() const { return is_sum() || parts_.in_place_on >= 0; }

    void add(const void* from, void* to) const {
        const float* const more = static_cast<const float*>(from);
        float* const sum = static_cast<float*>(to);
        runtime::parallel_for(static_cast<int64_t>(parts_.output_bytes / sizeof(float)), kGrain / 4,
                              kAlign / 4, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) sum[i] += more[i];
        });
    }

    void copy(const void* from, void* to) const {
        runtime::parallel_for(static_cast<int64_t>(parts_.output_bytes), kGrain, kAlign,
                              [&](int64_t lo, int64_t hi) {
            std::memcpy(static_cast<char*>(to) + lo, static_cast<const char*>(from) + lo,
                        static_cast<size_t>(hi - lo));
        });
    }

    Prepared part_;
    Parts parts_;
    size_t beside_ = 0, workspace_ = 0;
};

int64_t parts_of_images(int64_t images, size_t bytes, size_t large, size_t part) {
    if (bytes < large) return 1;
    for (int64_t parts = 2; parts < images; ++parts)
        if (images % parts == 0 && bytes / static_cast<size_t>(parts) <= part) return parts;
    return images;
}

void cut(Type& type, int64_t parts) { type.shape[0] /= parts; }

}  // namespace

Prepared in_parts(Prepared part, Parts parts) {
    return std::make_shared<const PartsExecutable>(std::move(part), std::move(parts));
}

Prepared by_images(const OpCall& call, std::span<const Type> outputs,
                   const std::vector<bool>& has_images, PrepareOp prepare) {
    std::vector<Type> inputs(call.inputs.begin(), call.inputs.end());
    Type result = outputs[0];
    const int64_t count = parts_of_images(
        result.shape[0], std::max(inputs[0].bytes(), result.bytes()), kLarge, kPart);
    if (count < 2) return nullptr;
    Parts parts{.count = count};
    if (inputs[0].bytes() == result.bytes()) parts.in_place_on = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (has_images[i]) cut(inputs[i], count);
        parts.input_steps.push_back(has_images[i] ? inputs[i].bytes() : 0);
    }
    cut(result, count);
    parts.output_step = parts.output_bytes = result.bytes();
    return in_parts(prepare({call.op, call.attrs, inputs}, {&result, 1}), std::move(parts));
}

std::vector<bool> with_images(const OpCall& call, const std::vector<runtime::EpilogueStep>& steps) {
    std::vector<bool> has_images(call.inputs.size());
    has_images[0] = true;
    for (const runtime::EpilogueStep& step : steps)
        if (step.kind == runtime::EpilogueKind::add) has_images[step.operand] = true;
    return has_images;
}

Prepared sum_by_images(const OpCall& call, std::span<const Type> outputs, PrepareOp prepare) {
    std::vector<Type> inputs(call.inputs.begin(), call.inputs.end());
    size_t bytes = 0;
    for (const Type& input : inputs) bytes = std::max(bytes, input.bytes());
    const int64_t count = parts_of_images(inputs[0].shape[0], bytes, kLargeSum, kPartOfSum);
    if (count < 2 || outputs[0].dtype != runtime::DType::f32) return nullptr;
    Parts parts{.count = count, .output_bytes = outputs[0].bytes()};
    for (Type& input : inputs) {
        cut(input, count);
        parts.input_steps.push_back(input.bytes());
    }
    return in_parts(prepare({call.op, call.attrs, inputs}, outputs), std::move(parts));
}

}  // namespace megjit::cpu
