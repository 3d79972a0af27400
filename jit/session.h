// jit/session.h -- Session: one call of a traced function. It records what the body does, or
// matches it against a record and fills in values from the compiled program.
//
// Tensors that the body holds are placeholders, linked to values of the record. Nobody needs to say
// which are results: what is still referenced when the call ends, is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "jit/trace_function.h"
#include "runtime/autodiff.h"
#include "runtime/dispatch.h"

namespace megjit::jit {

enum class Mode : uint8_t { record_value, record_symbolic, replay };

class Session final : public runtime::Tracer {
public:
    // `version` is the record to follow, or null to make one. `where` gives the user's current
    // line.
    Session(TraceFunction& function, std::shared_ptr<Version> version, CallKey key,
            std::string reason, std::function<std::string()> where);
    // The positional tensors, before the body runs: they are the first outside tensors of the
    // record.
    void bind_arguments(std::span<const TensorRef> arguments);
    ~Session() override;

    Mode mode() const { return mode_; }
    bool is_recording() const { return mode_ != Mode::replay; }
    uint64_t id() const { return id_; }

    runtime::Tensors on_op(const OpDef& op, const Attrs& attrs,
                           std::span<const TensorRef> inputs) override;
    void on_read(runtime::Tensor& tensor) override;
    // Ops are about to run outside of the trace: every live placeholder gets its data.
    void enter_excluded();

    // A backward pass. When replayed as one event its gradients are returned and no op is issued.
    std::optional<runtime::Tensors> replay_backward(std::span<const TensorRef> ys,
                                                    std::span<const TensorRef> dys,
                                                    std::span<const TensorRef> wanted);
    void begin_backward(std::span<const TensorRef> ys, std::span<const TensorRef> dys,
                        std::span<const TensorRef> wanted);
    void end_backward(std::span<const TensorRef> grads);
    // What backward will do cannot be told from the recorded ops alone: Python code runs in it, or
    // values on its way were computed outside of the trace.
    void note_open_backward() {
        if (is_recording()) version_->record.needs_tapes = true;
    }

    // The body has returned: run what is left; placeholders that are alive have data after it.
    void finish();
    // The body has raised: what it issued so far is computed as eager mode would have.
    void abort() noexcept;

    const std::shared_ptr<Version>& version() const { return version_; }
    // While recording, for dump: what the body returned, names that it gave, the module that runs.
    void note_results(std::span<const TensorRef> results);
    void note_name(const TensorRef& tensor, std::string name);
    void set_scope(std::string scope) { scope_ = std::move(scope); }

    // Marks for the planner; they change nothing in a replayed call. Errors tell what cannot be
    // marked.
    void mark_kept(const TensorRef& tensor);
    void mark_offloaded(const TensorRef& tensor);
    void begin_recompute();
    void end_recompute(std::span<const TensorRef> results);

    // Outside tensors by slot, as bound in this call.
    const std::vector<TensorRef>& bound() const { return bound_; }
    // Values of ops that somebody else holds.
    std::vector<RecordId> live_values() const;
    bool is_placeholder(const runtime::Tensor& tensor) const { return tensor.trace.session == id_; }

private:
    Record& record() { return version_->record; }
    RecordedOp* op_that_made(const TensorRef& tensor);
    Marks& marks_of(const TensorRef& tensor,
                    std::string_view mark);  // UserError where there are none
    const Event* next_event() const;

    // Recording.
    runtime::Tensors record_op(const OpDef& op, const Attrs& attrs,
                               std::span<const TensorRef> inputs);
    RecordId record_id_of(const TensorRef& tensor);
    void add_barrier(const std::string& where);

    // Replaying.
    runtime::Tensors replay_op(const OpDef& op, const Attrs& attrs,
                               std::span<const TensorRef> inputs);
    enum class Fit : uint8_t {
        yes,
        other_type,
        other_tensor,
        other_constant,
        intermediate_now_outside,
        outside_now_intermediate,
        other_intermediate
    };
    Fit fit(const Record& record, RecordId expected, const TensorRef& tensor) const;
    std::string mismatch(const Record& record, const Event* event, const OpDef& op,
                         const Attrs& attrs, std::span<const TensorRef> inputs,
                         bool& retypes) const;
    void bind(RecordId expected, const TensorRef& tensor);
    TensorRef placeholder(RecordId id);
    void run_segment(uint32_t index);
    void fork(const std::string& reason);
    [[noreturn]] void raise_mismatch(const std::string& what, const std::string& fix = "");

    void keep_captured();
    // Computes record values now, by eager kernels.
    void compute_now(const std::vector<RecordId>& wanted);

    TraceFunction& function_;
    std::shared_ptr<Version> version_;
    CallKey key_;
    std::function<std::string()> where_;
    Mode mode_ = Mode::record_value;
    uint64_t id_ = 0;
    uint32_t cursor_ = 0;  // next event
    uint32_t segment_ = 0;  // next segment to run or record
    std::vector<TensorRef> values_;  // by RecordId: op values only
    std::vector<TensorRef> bound_;  // by slot
    std::unordered_map<uint64_t, RecordId> outside_ids_;  // recording: tensor id -> value
    std::vector<std::pair<uint32_t, size_t>>
        open_backwards_;  // backward index, slots known when it began
    std::unordered_map<uint64_t, std::string>
        names_;  // recording: of outside tensors, by tensor id
    std::string scope_;
    // Calls of recompute(fn): how many lie in each other now, how many outermost ones there were,
    // where the last began.
    uint32_t recompute_depth_ = 0, recompute_calls_ = 0, recompute_segment_ = 0;
    bool captures_ =
        false;  // outside tensors become constants: capture_as_const, once the arguments are bound
    bool is_refused_ =
        false;  // it is not to run: the memory limit is too low, or only a plan is wanted
    bool failed_ = false;
};

}  // namespace megjit::jit
