// jit/trace/session.h -- Session: one call of a traced function whose body runs; it is the thread's
// tracer meanwhile. A Recorder (recorder.h) writes down what the body does, a Replayer (replayer.h)
// matches it against a record. Here is what both share: the record's values and their data.
//
// Tensors that the body holds are placeholders, linked to values of the record. Nobody needs to say
// which are results: a tensor is one if it is still referenced when the call ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/step/graph_tracer.h"
#include "jit/step/refusal.h"
#include "jit/trace/trace_function.h"

namespace megjit::jit {

class Session : public RefusingTracer {
public:
    // Follows the version that fits the positional tensors, or records one; null where it would
    // record and may not. They are the first outside tensors of the record. `where` gives the
    // user's current line.
    static std::unique_ptr<Session> begin(TraceFunction& function,
                                          std::span<const TensorRef> arguments,
                                          std::function<std::string()> where,
                                          bool may_record = true);
    // The session that traces this thread just now, or null.
    static Session* running() { return dynamic_cast<Session*>(runtime::context().tracer); }

    Session& operator=(Session&&) = delete;

    // The session that carries the call on: the recording that a replayed call has turned into, or
    // this one.
    Session& now() { return successor_ ? *successor_ : *this; }

    // Ops are about to run outside of the trace: every live placeholder gets its data.
    virtual void enter_excluded() = 0;

    // A backward pass begins (Tape::backward). Where it is replayed as one event, this returns its
    // gradients, and no op is issued.
    virtual std::optional<runtime::Tensors> begin_backward(
        std::span<const TensorRef> ys, std::span<const TensorRef> dys,
        std::span<const TensorRef> wanted, const std::vector<std::string>& groups) = 0;
    virtual void end_backward(std::span<const TensorRef> /*grads*/) {}
    // Under a memory limit, they have to fit beside what the call holds.
    void on_results_of_data(std::string_view op, size_t bytes) override;
    // What backward will do cannot be told from the recorded ops alone: Python code runs in it, or
    // values on its way were computed outside of the trace.
    virtual void note_open_backward() {}
    // The ops after this follow from `what`, which is no tensor (which parameters an optimizer
    // updates together): another `what` makes another version.
    virtual void note_variant(const std::string& what) = 0;

    // Calls of recompute(fn), a mark for the planner.
    void begin_recompute();
    virtual void end_recompute(std::span<const TensorRef> /*results*/) { --recompute_.depth; }
    void set_scope(std::string scope) { scope_ = std::move(scope); }  // the module that runs

    void forget_refusals() { refusal_.forget(); }
    // The line at which the body first read a value that may differ in another call, or "".
    const std::string& read_at() const { return read_at_; }

    // The body has returned, and what it keeps is about to be looked at: a call that has left its
    // record goes on as another one.
    virtual void settle() {}
    // The body has returned: run what is left; placeholders that are alive have data afterwards.
    // After an error, they have it as after abort().
    void finish();
    // The body has raised: what it issued so far is computed as eager mode would have, or stays
    // without a value where nobody `wants_values`.
    void abort(bool wants_values = true) noexcept;

    const TraceFunction& function() const { return function_; }
    const std::shared_ptr<Version>& version() const { return version_; }
    // The call is not run: the memory limit is too low, or only a plan is wanted.
    bool is_refused() const { return is_refused_; }
    // Nothing has run that would have used the random keys of this call: the next one draws them.
    void take_back_keys() const;
    // Outside tensors by slot, as bound in this call.
    const std::vector<TensorRef>& bound() const { return bound_; }
    // Values of ops that somebody else holds.
    std::vector<RecordId> live_values() const;
    bool is_placeholder(const runtime::Tensor& tensor) const { return tensor.trace.session == id_; }
    // The body makes tensors with this id and later ones.
    void set_first_inside_id(uint64_t id) { first_inside_id_ = id; }
    uint64_t first_inside_id() const { return first_inside_id_; }
    // Tells whether the body has made the tensor of host data. Memory that is lent does not count:
    // its owner writes to it.
    bool is_made_of_host_data(const runtime::Tensor& tensor) const {
        return tensor.id() >= first_inside_id_ && !is_placeholder(tensor) && tensor.has_data() &&
               tensor.storage()->is_owned();
    }

protected:
    Session(TraceFunction& function, std::shared_ptr<Version> version, CallKey key,
            std::function<std::string()> where);
    Session(Session&&) = default;

    virtual void complete() = 0;  // the part of finish() that each kind of session has
    void note_read(const runtime::Tensor& tensor);
    // Computes a value that the host reads if it follows from constants and host data of the body
    // alone, which is no reason to run what is recorded; else returns false.
    bool read_host_value(const runtime::Tensor& placeholder);

    Record& record() { return version_->record; }
    const Record& record() const { return version_->record; }
    // A result whose shape only data can tell is computed now, and comes back from outside.
    runtime::Results compute_outside(const OpDef& op, const Attrs& attrs,
                                     std::span<const TensorRef> inputs, runtime::Device& device);
    void run_segment(uint32_t index);
    // Counts the memory of the tensors that the call knows and of the values that it has made.
    size_t held_bytes() const;
    bool follows_from_host_data(RecordId value) const;
    // Computes record values now, by eager kernels.
    // `waits`: a value that a queue cannot compute makes it throw, instead of being lost.
    void compute_now(const std::vector<RecordId>& wanted, bool waits = false);

    TraceFunction& function_;
    std::shared_ptr<Version> version_;
    CallKey key_;
    std::function<std::string()> where_;
    uint64_t id_ = 0, first_inside_id_ = UINT64_MAX;
    uint32_t segment_ = 0;  // next segment to run or record
    std::vector<TensorRef> values_;  // by RecordId: op values only
    std::vector<TensorRef> bound_;  // by slot
    std::string scope_, read_at_;
    // Calls of recompute(fn): how many lie in each other now, how many outermost ones there were,
    // where the last began.
    struct {
        uint32_t depth = 0, calls = 0, segment = 0;
    } recompute_;
    bool run_has_failed_ = false;  // what the run exchanged is not exchanged a second time
    bool is_refused_ = false;
    std::unique_ptr<Session> successor_;
};

}  // namespace megjit::jit
