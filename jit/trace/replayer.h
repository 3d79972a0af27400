// jit/trace/replayer.h -- Replayer: a call that is matched against a record, event by event. Its
// placeholders get their data from compiled programs. Where tensors from outside have other types,
// a Recorder carries the call on; anything else that differs is a TraceError.
#pragma once

#include "jit/trace/session.h"

namespace megjit::jit {

class Replayer final : public Session {
public:
    Replayer(TraceFunction& function, std::shared_ptr<Version> version, CallKey key,
             std::span<const TensorRef> arguments, std::function<std::string()> where);

    runtime::Results follow(const OpDef& op, const Attrs& attrs,
                            std::span<const TensorRef> inputs) override;
    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device& device) override;
    void on_read(runtime::Tensor& tensor) override;
    void note_variant(const std::string& what) override;
    bool can_read(const runtime::Tensor& tensor) const override;
    void enter_excluded() override { run_to_barrier(); }
    void settle() override;
    std::optional<runtime::Tensors> begin_backward(std::span<const TensorRef> ys,
                                                   std::span<const TensorRef> dys,
                                                   std::span<const TensorRef> wanted,
                                                   const std::vector<std::string>& groups) override;

    // Which of the body's results is another value than recorded, or kAsRecorded. Nothing follows
    // from it for this call, but a file would always give the recorded one.
    static constexpr size_t kAsRecorded = SIZE_MAX;
    size_t other_result(std::span<const TensorRef> results) const;

private:
    enum class Fit : uint8_t {
        yes,
        no_event,
        barrier,
        backward,
        variant,
        other_op,
        other_device,
        other_count,
        other_attribute,
        // An operand has, or is:
        other_type,
        other_tensor,
        other_constant,
        intermediate_now_outside,
        outside_now_intermediate,
        other_intermediate
    };
    // How an op fits its event; `at`: which attribute or operand does not.
    struct Difference {
        Fit how = Fit::yes;
        size_t at = 0;
    };
    struct Mismatch {
        std::string_view kind = {};  // as the errors of older programs name it
        std::string why = {};
        bool retypes = false;  // a further version is recorded for it
    };
    void complete() override;
    const Event* event_of(const Record& record) const;  // the event at this call's place
    const Event* next_event() const { return event_of(record()); }
    Fit fit(const Record& record, RecordId expected, const TensorRef& tensor) const {
        if (is_placeholder(*tensor) && RecordId{tensor->trace.value} == expected) return Fit::yes;
        const uint32_t slot = record[expected].slot;
        if (slot < bound_.size() && bound_[slot] == tensor) return Fit::yes;
        return fit_of_other(record, expected, tensor);
    }
    Fit fit_of_other(const Record& record, RecordId expected, const TensorRef& tensor) const;
    // `device`: null where devices need no comparison.
    Difference difference(const Record& record, const OpDef& op, const Attrs& attrs,
                          std::span<const TensorRef> inputs, const runtime::Device* device) const;
    Mismatch in_words(Difference difference, const OpDef& op, const Attrs& attrs,
                      std::span<const TensorRef> inputs, const runtime::Device& device) const;
    bool are_expected(const Record& record, const std::vector<RecordId>& expected,
                      std::span<const TensorRef> tensors) const;
    [[noreturn]] void raise_mismatch(std::string_view kind, const std::string& why,
                                     const std::string& fix = "");

    bool takes_other_type(std::span<const TensorRef> inputs) const;
    bool casts_otherwise(const OpDef& op) const;

    // Is there another version that this call fits, so far and by `fits`? If so, follows it.
    bool follow_another(const std::function<bool(const Record&)>& fits);
    Session& go_on_recording(std::string reason);
    // May the call go on as another version, whatever its body does? It may where it was asked for,
    // and where each version so far has left tensors of other types to the next call.
    bool takes_mismatches() const;
    bool may_record() const;  // so, and there are not too many
    std::string rest_of_record() const;  // what the body has not done yet
    Mismatch backward_mismatch(const Record& record, std::span<const TensorRef> ys,
                               std::span<const TensorRef> dys, std::span<const TensorRef> wanted,
                               const std::vector<std::string>& groups) const;
    runtime::Results advance(std::span<const TensorRef> inputs);
    void bind(RecordId expected, const TensorRef& tensor);
    TensorRef placeholder(RecordId id);
    void run_to_barrier();  // runs the segment that ends here, if one does

    uint32_t cursor_ = 0;  // next event
    std::string_view failure_;  // the kind of the first mismatch
};

}  // namespace megjit::jit
