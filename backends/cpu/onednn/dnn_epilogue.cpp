#include "backends/cpu/onednn/dnn_epilogue.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "runtime/host/parallel.h"

namespace megjit::cpu::dnn {
namespace {

using dnnl::memory;
using runtime::EpilogueStep;
using runtime::OpCall;
using Kind = runtime::EpilogueKind;

// A shape with 1 everywhere but along the channel: strides do not matter, for the elements are
// contiguous.
memory::desc bias_desc(const memory::desc& result, int channel) {
    Dims dims(static_cast<size_t>(result.get_ndims()), 1);
    dims[channel] = result.get_dims()[channel];
    Dims strides(dims.size(), dims[channel]);
    for (size_t axis = channel; axis < strides.size(); ++axis) strides[axis] = 1;
    return {dims, result.get_data_type(), strides};
}

// The steps as post-ops, and the further operands that these read.
struct PostOps {
    dnnl::primitive_attr attr = attributes();
    std::vector<Operand> operands = {};
};

// oneDNN's own relu turns NaN into 0, which would hide that a training has failed. x * clip(x *
// FLT_MAX, 0, 1) keeps it; -inf becomes NaN, and positive numbers below 2^-128 get smaller. Adding
// 0 turns -0 into 0.
void append_relu(dnnl::post_ops& ops) {
    ops.append_eltwise(dnnl::algorithm::eltwise_hardswish, std::numeric_limits<float>::max(), 0);
    ops.append_eltwise(dnnl::algorithm::eltwise_linear, 1, 0);
}

PostOps post_ops(std::span<const EpilogueStep> steps, const memory::desc& result, int channel,
                 bool add_to_result) {
    PostOps made;
    dnnl::post_ops ops;
    for (const EpilogueStep& step : steps) {
        if (step.kind == Kind::relu) {
            append_relu(ops);
        } else if (step.kind == Kind::add && add_to_result) {
            ops.append_sum();
        } else {
            const memory::desc desc = step.kind == Kind::bias ? bias_desc(result, channel) : result;
            made.operands.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len()) | DNNL_ARG_SRC_1,
                                     false, static_cast<int>(step.operand), desc});
            ops.append_binary(dnnl::algorithm::binary_add, desc);
        }
    }
    made.attr.set_post_ops(ops);
    return made;
}

// Returns nothing where oneDNN has no kernel.
std::optional<dnnl::primitive_desc_base> described(const CreateWith& create,
                                                   const dnnl::primitive_attr& attr,
                                                   const memory::desc& bias = {}) {
    try {
        return describe([&] { return create(attr, bias); });
    } catch (const dnnl::error&) { return std::nullopt; }
}

// "brgconv:avx512_core"
std::string kernel_name(const std::optional<dnnl::primitive_desc_base>& desc) {
    return desc ? desc->impl_info_str() : "none";
}

// The executable holds one product twice: `apart` reads the addend, `onto` finds it where it writes
// the result.
class AddOntoExecutable final : public runtime::Executable {
public:
    AddOntoExecutable(Prepared apart, Prepared onto, size_t addend)
        : apart_(std::move(apart)), onto_(std::move(onto)), addend_(addend) {}
    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        (inputs[addend_] == outputs[0] ? onto_ : apart_)
            ->enqueue(stream, inputs, outputs, workspace);
    }
    size_t workspace_bytes() const override {
        return std::max(apart_->workspace_bytes(), onto_->workspace_bytes());
    }
    bool may_alias(int, int in) const override { return static_cast<size_t>(in) == addend_; }

private:
    Prepared apart_, onto_;
    size_t addend_ = 0;
};

// The result's elements are contiguous, but for some columns of a matrix.
EpilogueRows rows_of(const memory::desc& result, int channel) {
    const Dims dims = result.get_dims(), strides = result.get_strides();
    EpilogueRows rows{.channels = dims[channel], .inner = strides[channel]};
    rows.step = rows.inner == 1 && channel > 0 && channel + 1 == result.get_ndims()
                    ? strides[channel - 1]  // for some columns of a matrix
                    : rows.channels * rows.inner;
    int64_t count = 1;
    for (int64_t extent : dims) count *= extent;
    rows.outer = count == 0 ? 0 : count / (rows.channels * rows.inner);
    return rows;
}

}  // namespace

Prepared epilogue_after(Prepared product, const Steps& steps, const memory::desc& result,
                        int channel) {
    return steps_after(std::move(product), steps, rows_of(result, channel));
}

Prepared make_with_epilogue(const OpCall& call, const Steps& all_steps, const CreateWith& create,
                            std::vector<Operand> operands, const memory::desc& result, int channel,
                            const memory::desc& native_bias) {
    std::span<const EpilogueStep> steps = all_steps;
    const auto without = described(create, attributes());
    const std::string plain = kernel_name(without);
    const bool is_brg = plain.starts_with("brg");
    std::optional<dnnl::primitive_desc_base> desc;
    memory::desc bias;
    PostOps apart;
    if (is_brg && !native_bias.is_zero() && steps[0].kind == Kind::bias) {
        apart = post_ops(steps.subspan(1), result, channel, false);
        desc = described(create, apart.attr, native_bias);
        if (plain == kernel_name(desc)) {
            bias = native_bias;
            operands.push_back({DNNL_ARG_BIAS, false, static_cast<int>(steps[0].operand), bias});
            steps = steps.subspan(1);
        }
    }
    if (bias.is_zero()) {
        apart = post_ops(steps, result, channel, false);
        desc = described(create, apart.attr);
    }
    const auto made_of = [&](const auto& desc, const PostOps& post, std::string remark = {}) {
        std::vector<Operand> all = operands;
        all.insert(all.end(), post.operands.begin(), post.operands.end());
        // Where there is no kernel, the product is described once more, for the error.
        return make(call, [&] { return desc ? *desc : create(post.attr, bias); }, std::move(all),
                    std::move(remark));
    };
    if (plain != kernel_name(desc))
        return epilogue_after(made_of(without, {}), all_steps, result, channel);
    const auto addend = std::find_if(steps.begin(), steps.end(), [](const EpilogueStep& step) {
        return step.kind == Kind::add;
    });
    if (addend == steps.end()) return made_of(desc, apart);
    const PostOps onto = post_ops(steps, result, channel, true);
    const auto in_place = is_brg ? described(create, onto.attr, bias) : std::nullopt;
    if (plain != kernel_name(in_place))
        return made_of(
            desc, apart,
            runtime::cat("not in place: ", plain, " adds to its addend in another order"));
    return std::make_shared<const AddOntoExecutable>(made_of(desc, apart), made_of(in_place, onto),
                                                     addend->operand);
}

}  // namespace megjit::cpu::dnn
