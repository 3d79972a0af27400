#include "backends/cpu/in_parts.h"

#include <algorithm>
#include <cstring>

#include "runtime/host/parallel.h"

namespace megjit::cpu {
namespace {

using runtime::OpCall;
using runtime::Type;

// Activations of so many bytes are computed by images, of which a part has at most so many if it is
// more than one image.
constexpr size_t kLarge = size_t{64} << 20, kPart = size_t{16} << 20;

class PartsExecutable final : public runtime::Executable {
public:
    PartsExecutable(Prepared part, Parts parts) : part_(std::move(part)), parts_(std::move(parts)) {
        const size_t bytes = part_->workspace_bytes();
        beside_ = (bytes + kAlign - 1) / kAlign * kAlign;
        workspace_ = parts_.in_place_on < 0 ? bytes : beside_ + parts_.output_step;
    }

    size_t workspace_bytes() const override { return workspace_; }
    std::string_view remark() const override { return part_->remark(); }
    bool may_alias(int out, int in) const override {
        return in == parts_.in_place_on || part_->may_alias(out, in);
    }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const int in = parts_.in_place_on;
        void* const beside =
            in >= 0 && inputs[in] == outputs[0] ? static_cast<char*>(workspace) + beside_ : nullptr;
        std::vector<void*> operands(inputs, inputs + parts_.input_steps.size());
        void* result = outputs[0];
        for (int64_t i = 0; i < parts_.count; ++i) {
            void* to = beside ? beside : result;
            part_->enqueue(stream, operands.data(), &to, workspace);
            if (beside) copy(beside, result);
            for (size_t each = 0; each < operands.size(); ++each)
                operands[each] = static_cast<char*>(operands[each]) + parts_.input_steps[each];
            result = static_cast<char*>(result) + parts_.output_step;
        }
    }

private:
    static constexpr size_t kAlign = 64;
    static constexpr int64_t kGrain = 256 << 10;  // bytes

    void copy(const void* from, void* to) const {
        runtime::parallel_for(static_cast<int64_t>(parts_.output_step), kGrain, kAlign,
                              [&](int64_t lo, int64_t hi) {
            std::memcpy(static_cast<char*>(to) + lo, static_cast<const char*>(from) + lo,
                        static_cast<size_t>(hi - lo));
        });
    }

    Prepared part_;
    Parts parts_;
    size_t beside_ = 0, workspace_ = 0;
};

int64_t parts_of_images(int64_t images, size_t bytes) {
    if (bytes < kLarge) return 1;
    for (int64_t parts = 2; parts < images; ++parts)
        if (images % parts == 0 && bytes / static_cast<size_t>(parts) <= kPart) return parts;
    return images;
}

}  // namespace

Prepared in_parts(Prepared part, Parts parts) {
    return std::make_shared<const PartsExecutable>(std::move(part), std::move(parts));
}

Prepared by_images(const OpCall& call, std::span<const Type> outputs,
                   const std::vector<bool>& has_images, PrepareOp prepare) {
    std::vector<Type> inputs(call.inputs.begin(), call.inputs.end());
    Type result = outputs[0];
    const int64_t count =
        parts_of_images(result.shape[0], std::max(inputs[0].bytes(), result.bytes()));
    if (count < 2) return nullptr;
    Parts parts{.count = count};
    const auto cut = [&](Type& type) {
        type.shape[0] /= count;
        return type.bytes();
    };
    if (inputs[0].bytes() == result.bytes()) parts.in_place_on = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
        parts.input_steps.push_back(has_images[i] ? cut(inputs[i]) : 0);
    parts.output_step = cut(result);
    return in_parts(prepare({call.op, call.attrs, inputs}, {&result, 1}), std::move(parts));
}

}  // namespace megjit::cpu
