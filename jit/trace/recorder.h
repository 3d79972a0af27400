// jit/trace/recorder.h -- Recorder: a call that makes a record. With symbolic=True results are
// placeholders without data until the call ends; else each op is computed at once as well.
#pragma once

#include <unordered_set>

#include "jit/trace/session.h"

namespace megjit::jit {

class Recorder final : public Session, private GraphTracer {
public:
    Recorder(TraceFunction& function, CallKey key, std::span<const TensorRef> arguments,
             std::function<std::string()> where);
    // Carries on a replayed call that leaves its record after `events`: a further version, which
    // begins like that one.
    Recorder(Session&& begun, uint32_t events, std::string reason);
    // Computes what the body holds of the ops before, where each op is computed as it is issued.
    void catch_up();

    static Recorder* running() { return dynamic_cast<Recorder*>(runtime::context().tracer); }

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device& device) override;
    void on_read(runtime::Tensor& tensor) override;
    bool can_read(const runtime::Tensor& tensor) const override;
    void enter_excluded() override;
    std::optional<runtime::Tensors> begin_backward(std::span<const TensorRef> ys,
                                                   std::span<const TensorRef> dys,
                                                   std::span<const TensorRef> wanted,
                                                   const std::vector<std::string>& groups) override;
    void end_backward(std::span<const TensorRef> grads) override;
    void note_open_backward() override { record().needs_tapes = true; }
    void note_variant(const std::string& what) override;
    void end_recompute(std::span<const TensorRef> results) override;

    // The body has used a tensor under a name, or where else another call looks for it, and bound
    // the name to another tensor. This is no state of a file: a state is a tensor that is written
    // into. `now`: the value of the other tensor, where the body computes it.
    void note_bound_anew(std::optional<RecordId> now, const std::string& name);
    // A dump needs what the body returned, and the names that it gave.
    void note_results(std::span<const TensorRef> results);
    void note_name(const TensorRef& tensor, std::string name);
    const std::string& name_of(uint64_t tensor) const;  // by its id; "" where none was noted
    // The tensor differs from call to call: it is no constant, whatever it is recorded for.
    void note_varying(const TensorRef& tensor) { varying_.insert(tensor->id()); }
    bool is_varying(uint64_t tensor) const { return varying_.contains(tensor); }
    using GraphTracer::find;
    bool is_argument(RecordId value) const;
    // Constants that the body has rebound are none: each call brings another value. Call this with
    // their ids before the call ends.
    void make_varying(std::span<const uint64_t> tensors);
    // `extents` is a constant that holds the shape of `tensor`: a dump computes it anew.
    void note_extents(const TensorRef& extents, const TensorRef& tensor);
    // The body takes the extent of an axis of `tensor`, or (-1) of all, for a number.
    void note_extent_read(const TensorRef& tensor, int axis);
    // The body has caught an error of this operand: what it does then is true for these extents,
    // and, in a call that computes as it goes, for these values.
    void note_caught(const TensorRef& tensor, bool is_of_values);
    // Says where the extents in the attributes of the next op come from, if that op has any.
    void note_given(std::vector<GivenExtent> given) { given_ = std::move(given); }
    // Where element `index` of `tensor`, which stands in those attributes, comes from.
    GivenExtent given_by(const TensorRef& tensor, int index) const;
    // The body names rows of `tensor` by number.
    void note_rows_read(const TensorRef& tensor) {
        if (captures_ && is_of_outside(*tensor)) note_outside_read();
    }
    // A tensor from outside matters though no op may have read it.
    RecordId note_outside(const TensorRef& tensor) { return value_of(tensor); }
    // Tensors whose ids lie between were made outside of the trace, by code that may read all.
    void note_excluded(uint64_t first, uint64_t behind);
    bool has_read(uint64_t tensor) const;  // has the host read this outside tensor?
    // Code outside of the trace has read the tensor.
    void note_excluded_read(const TensorRef& tensor, const std::string& where);
    // While it is set, what reads extents gives them to an op (note_given).
    bool gives_extents = false;
    // Marks for the planner. UserError for what cannot be marked.
    void mark_kept(const TensorRef& tensor) { marks_of(tensor, "keep").stays = true; }
    void mark_offloaded(const TensorRef& tensor) {
        marks_of(tensor, "offload").is_offloaded = true;
    }

private:
    void complete() override;
    FileNotes& notes() const { return version_->notes; }
    RecordId capture(const TensorRef& tensor) override;
    Input::Kind kind_of(const runtime::Tensor& tensor) const;
    runtime::Tensors computed(const Node& op, std::span<const TensorRef> inputs,
                              runtime::Device& device, bool is_static) const;
    OfExtents of_extents(const Node& node) const;
    std::vector<ExtentOf> all_extents(RecordId value) const;
    void note_extent_reads(std::span<const ExtentOf> extents);
    runtime::Results add(Node op, std::span<const TensorRef> inputs, runtime::Device& device,
                         bool is_static);
    void note_call(NodeId node, CallNotes call, bool is_static);
    void check_device(const OpDef& op, const runtime::Device& device);
    void add_barrier();
    Marks* marks_of_producer(const TensorRef& tensor);
    Marks& marks_of(const TensorRef& tensor, std::string_view mark);
    void keep_captured();
    void order_slots();
    bool follows_from_arguments(const TensorRef& tensor) const;
    bool is_of_outside(const runtime::Tensor& tensor) const;
    bool is_excluded(uint64_t tensor) const;
    void note_value_read(const runtime::Tensor& tensor, std::string where);
    void note_outside_read() {
        if (!gives_extents && notes().outside_read_at.empty()) notes().outside_read_at = where_();
    }
    runtime::Results compute_data_dependent(const OpDef& op, const Attrs& attrs,
                                            std::span<const TensorRef> inputs,
                                            runtime::Device& device);

    // Backward index, and slots known when it began.
    std::vector<std::pair<uint32_t, size_t>> open_backwards_;
    std::unordered_set<uint64_t> varying_;  // tensor ids
    std::unordered_map<uint64_t, std::string> names_;  // of outside tensors, by tensor id
    std::unordered_map<uint64_t, OutsideValue> computed_outside_;  // FileNotes', by tensor id
    std::unordered_map<uint64_t, RecordId> extents_;  // whose extents a tensor holds, by its id
    // A dump needs the ids of tensors that the host has read, the lines that read them, and the ids
    // of tensors that were made outside of the trace.
    std::vector<std::pair<uint64_t, std::string>> outside_reads_;
    std::vector<std::pair<uint64_t, uint64_t>> excluded_;
    std::vector<GivenExtent> given_;
    bool captures_ = false;  // outside tensors become constants: once the arguments are bound
};

}  // namespace megjit::jit
