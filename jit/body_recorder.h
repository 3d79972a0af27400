// jit/body_recorder.h -- BodyRecorder: writes what a function does with placeholders into a graph
// that an op will hold. It is the thread's tracer while the function runs, inside of a trace or
// not. What the function reads from outside becomes an input, too: a captured tensor.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/graph_tracer.h"
#include "jit/refusal.h"
#include "runtime/eager/autodiff.h"

namespace megjit::jit {

class BodyRecorder final : public runtime::Tracer, private GraphTracer {
public:
    // `what`: "the body of scan", for errors.
    explicit BodyRecorder(std::string what);
    ~BodyRecorder() override { leave(); }
    // The innermost that records in this thread, or null.
    static BodyRecorder* running() {
        return dynamic_cast<BodyRecorder*>(runtime::context().tracer);
    }

    TensorRef add_input(const Type& type, runtime::Device& device);
    // The function has returned; who traced before goes on.
    void finish(std::span<const TensorRef> outputs);
    void leave();  // after an error

    // What the function has read from outside; what follows is there after finish().
    const std::vector<TensorRef>& captured() const { return captured_; }
    std::vector<Type> output_types() const { return graph_.types(graph_.outputs); }
    // Its inputs in the order in which they were added, then these: all that it has captured, and
    // perhaps more.
    Graph graph(std::span<const TensorRef> captured) const;

    runtime::Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                           runtime::Device& device) override;
    void on_read(runtime::Tensor& tensor) override;
    bool can_read(const runtime::Tensor& tensor) const override {
        return tensor.trace.session != id_ && outer_ && outer_->can_read(tensor);
    }
    // What to say where a placeholder of a body that has been recorded is used outside of it.
    static runtime::Message leak_of(const runtime::Tensor& tensor, std::string where);
    // Where the value of a handle that others hold would become a placeholder.
    void refuse_update_of(const runtime::Tensor& old);
    // A gradient that a tape does not know from ops alone.
    void refuse_custom_gradient();
    // A lookup whose gradient would be kept as rows.
    void refuse_rows_of(const runtime::Tensor& table);
    bool gradient_is_asked(const runtime::Tensor& outside) const;  // by a tape around

private:
    ValueId capture(const TensorRef& tensor) override;
    [[noreturn]] void refuse(runtime::Message message,
                             runtime::ErrorKind kind = runtime::ErrorKind::value);

    const std::string what_;
    const uint64_t first_inside_id_;  // of a tensor made since
    runtime::Tracer* outer_;
    bool is_running_ = true;
    Refusal refusal_;
    bool is_differentiated_ = false;  // a tape outside will ask for its gradient
    std::vector<runtime::TapeRef> outer_tapes_;
    // The only open tape at first: an op that it does not see has no gradient.
    std::shared_ptr<runtime::Tape> seen_by_ = std::make_shared<runtime::Tape>();
    Graph graph_;
    std::vector<ValueId> inputs_;
    std::vector<TensorRef> captured_;
};

}  // namespace megjit::jit
