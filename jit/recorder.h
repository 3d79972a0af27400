// jit/recorder.h -- Recorder: a call that makes a record. With symbolic=True results are
// placeholders without data until the call ends; else each op is computed at once as well.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "jit/session.h"

namespace megjit::jit {

class Recorder final : public Session {
public:
    Recorder(TraceFunction& function, CallKey key, std::span<const TensorRef> arguments,
             std::function<std::string()> where);
    // Carries on a replayed call that leaves its record after `events`: a further version, which
    // begins like that one.
    Recorder(Session&& begun, uint32_t events, std::string reason);

    static Recorder* running() { return dynamic_cast<Recorder*>(runtime::context().tracer); }

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device& device) override;
    void on_read(runtime::Tensor& tensor) override;
    void enter_excluded() override;
    std::optional<runtime::Tensors> begin_backward(std::span<const TensorRef> ys,
                                                   std::span<const TensorRef> dys,
                                                   std::span<const TensorRef> wanted,
                                                   const std::vector<std::string>& groups) override;
    void end_backward(std::span<const TensorRef> grads) override;
    void note_open_backward() override { record().needs_tapes = true; }
    void end_recompute(std::span<const TensorRef> results) override;

    // For dump: what the body returned, and names that it gave.
    void note_results(std::span<const TensorRef> results);
    void note_name(const TensorRef& tensor, std::string name);
    const std::string& name_of(uint64_t tensor) const;  // by its id; "" where none was noted
    // It differs from call to call: no constant, whatever it is recorded for.
    void note_varying(const TensorRef& tensor) { varying_.insert(tensor->id()); }
    bool is_varying(uint64_t tensor) const { return varying_.contains(tensor); }
    // The value that stands for a tensor from outside, by its id.
    std::optional<RecordId> find(uint64_t tensor) const;
    // Constants that the body has rebound are none: each call brings another value. By ids, before
    // the call ends.
    void make_varying(std::span<const uint64_t> tensors);
    // `extents` is a constant that holds the shape of `tensor`: a dump computes it anew.
    void note_extents(const TensorRef& extents, const TensorRef& tensor);
    // The body takes the leading extent of `tensor` for a number.
    void note_batch_read(const TensorRef& tensor);
    // The body names rows of `tensor` by number.
    void note_rows_read(const TensorRef& tensor) {
        if (captures_ && is_of_outside(*tensor)) note_outside_read();
    }
    // While it is set, what reads extents keeps them as attributes that follow the batch
    // (OpDef::refit).
    bool follows_batch = false;
    // Marks for the planner. UserError for what cannot be marked.
    void mark_kept(const TensorRef& tensor) { marks_of(tensor, "keep").stays = true; }
    void mark_offloaded(const TensorRef& tensor) {
        marks_of(tensor, "offload").is_offloaded = true;
    }

private:
    void complete() override;
    RecordId record_id_of(const TensorRef& tensor);
    runtime::Tensors results_of(const OpDef& op, const Attrs& attrs,
                                std::span<const TensorRef> inputs, runtime::Device& device,
                                bool is_static) const;
    bool is_of_batch(const OpDef& op, const Attrs& attrs, std::span<const RecordId> inputs) const;
    void check_device(const OpDef& op, const runtime::Device& device) const;
    void add_barrier();
    RecordedOp* op_that_made(const TensorRef& tensor);
    Marks& marks_of(const TensorRef& tensor, std::string_view mark);
    void keep_captured();
    void note_batch_read() {
        if (!follows_batch && version_->batch_read_at.empty()) version_->batch_read_at = where_();
    }
    bool follows_from_arguments(const TensorRef& tensor) const;
    bool is_of_outside(const runtime::Tensor& tensor) const;
    void note_outside_read() {
        if (!follows_batch && version_->outside_read_at.empty())
            version_->outside_read_at = where_();
    }
    runtime::Results compute_data_dependent(const OpDef& op, const Attrs& attrs,
                                            std::span<const TensorRef> inputs,
                                            runtime::Device& device);

    std::unordered_map<uint64_t, RecordId> outside_ids_;  // tensor id -> value
    // Backward index, and slots known when it began.
    std::vector<std::pair<uint32_t, size_t>> open_backwards_;
    std::unordered_set<uint64_t> varying_;  // tensor ids
    std::vector<uint32_t> rebound_slots_;
    std::unordered_map<uint64_t, std::string> names_;  // of outside tensors, by tensor id
    std::unordered_map<uint64_t, OutsideValue> computed_outside_;  // as Version's, by tensor id
    std::unordered_map<uint64_t, RecordId> extents_;  // of which value, by tensor id
    bool captures_ = false;  // outside tensors become constants: once the arguments are bound
};

}  // namespace megjit::jit
