// jit/step/body_recorder.h -- BodyRecorder: writes what a function does with placeholders into a
// graph that an op will hold. It is the thread's tracer while the function runs, inside of a trace
// or not. What the function reads from outside becomes an input, too: a captured tensor.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "jit/step/graph_tracer.h"
#include "jit/step/refusal.h"
#include "runtime/eager/autodiff.h"

namespace megjit::jit {

class BodyRecorder final : public RefusingTracer, private GraphTracer {
public:
    // `what`: "the body of scan", for errors.
    explicit BodyRecorder(std::string what);
    ~BodyRecorder() override { leave(); }
    // The innermost recorder of this thread, or null.
    static BodyRecorder* running() {
        return dynamic_cast<BodyRecorder*>(runtime::context().tracer);
    }

    TensorRef add_input(const Type& type, runtime::Device& device);
    // The function has returned; the tracer before this one goes on.
    void finish(std::span<const TensorRef> outputs);
    void leave();  // after an error

    // What the function has read from outside. Call graph() after finish().
    const std::vector<TensorRef>& captured() const { return captured_; }
    // Its inputs are those of add_input(), in that order, then `captured`: all that the function
    // has captured, and perhaps more.
    Graph graph(std::span<const TensorRef> captured) const;

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device& device) override;
    void on_read(runtime::Tensor& tensor) override;
    bool can_read(const runtime::Tensor& tensor) const override {
        return tensor.trace.session != id_ && outer_ && outer_->can_read(tensor);
    }
    void note_refusal(const runtime::UserError& error) override;
    // The error where a placeholder of a recorded body is used outside of that body.
    static runtime::Message leak_of(const runtime::Tensor& tensor, std::string where);
    // Refuses an update by which the value of a handle of others would become a placeholder.
    void refuse_update_of(const runtime::Tensor& old);
    // Refuses a gradient that a tape does not know from ops alone.
    void refuse_custom_gradient();
    // Refuses a lookup whose gradient would be kept as rows.
    void refuse_rows_of(const runtime::Tensor& table);
    bool gradient_is_asked(const runtime::Tensor& outside) const;  // by an outer tape

private:
    ValueId capture(const TensorRef& tensor) override;
    bool is_made_inside(const runtime::Tensor& tensor) const;
    // Computes a value that follows from what the body makes of numbers, such as sizes. Null for
    // others.
    TensorRef computed(ValueId value, runtime::Device& device);

    const std::string what_;
    const uint64_t first_inside_id_;  // tensors made since have this id or a later one
    runtime::Tracer* outer_;
    bool is_running_ = true;
    bool is_differentiated_ = false;  // a tape outside will ask for its gradient
    std::vector<runtime::TapeRef> outer_tapes_;
    // The only open tape at first: an op that it does not see has no gradient.
    std::shared_ptr<runtime::Tape> seen_by_ = std::make_shared<runtime::Tape>();
    Graph graph_;
    std::vector<ValueId> inputs_;
    std::vector<TensorRef> captured_;
    std::unordered_map<ValueId, TensorRef> computed_;  // null: its value is not known
};

}  // namespace megjit::jit
