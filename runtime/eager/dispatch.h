// runtime/eager/dispatch.h -- the one door through which every op goes: forward, backward and
// optimizer.
//   apply -> (trace running: record or match) or (compute now) -> tapes
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/op.h"
#include "runtime/core/tensor.h"

namespace megjit::runtime {

using Tensors = std::vector<TensorRef>;

// The results of an op. Most ops give one tensor, and then no memory is allocated.
class Results {
public:
    Results() = default;
    Results(TensorRef one) : one_(std::move(one)) {}
    Results(Tensors many) : many_(std::make_unique<Tensors>(std::move(many))) {}
    operator Tensors() && { return many_ ? std::move(*many_) : Tensors(begin(), end()); }

    void push_back(TensorRef tensor) {
        if (!many_ && !one_) {
            one_ = std::move(tensor);
            return;
        }
        if (!many_) many_ = std::make_unique<Tensors>(1, std::exchange(one_, {}));
        many_->push_back(std::move(tensor));
    }
    size_t size() const { return many_ ? many_->size() : one_ ? 1 : 0; }
    const TensorRef* begin() const { return many_ ? many_->data() : &one_; }
    const TensorRef* end() const { return begin() + size(); }
    TensorRef& operator[](size_t i) { return many_ ? (*many_)[i] : one_; }
    const TensorRef& operator[](size_t i) const { return begin()[i]; }

private:
    TensorRef one_;  // null where there are none, or several
    std::unique_ptr<Tensors> many_;
};

// A running trace, as dispatch sees it. jit/ implements it.
class Tracer {
public:
    virtual ~Tracer() = default;
    // Returns what on_op would, where the operands plainly need no preparation because they are
    // those of a recorded call. Empty elsewhere.
    virtual Results follow(const OpDef&, const Attrs&, std::span<const TensorRef>) { return {}; }
    // Returns placeholders (or, in a value trace, computed tensors that are linked to the record).
    virtual Results on_op(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                          Device& device) = 0;
    // The host wants a placeholder's data. Runs what is needed, or throws.
    virtual void on_read(Tensor& tensor) = 0;
    // An op whose shape the data decides is about to make results of so many bytes. Throws where
    // the trace has no room for them.
    virtual void on_results_of_data(std::string_view /*op*/, size_t /*bytes*/) {}
    // Would on_read give the placeholder's data? Texts show something else where it would not.
    virtual bool can_read(const Tensor& tensor) const = 0;
};

// An edited graph is the tracer of its placeholders, in every thread, whether a trace runs or not.
void add_edited_graph(uint64_t session, Tracer& graph);
void remove_edited_graph(uint64_t session);

class Tape;
// A tape that is open, or is only set aside: it must live while a list holds it. A plain pointer is
// borrowed.
struct TapeRef : std::shared_ptr<Tape> {
    TapeRef(std::shared_ptr<Tape> owned) : std::shared_ptr<Tape>(std::move(owned)) {}
    TapeRef(Tape* borrowed) : std::shared_ptr<Tape>(std::shared_ptr<Tape>(), borrowed) {}
};

// State of one thread.
struct Context {
    Tracer* tracer = nullptr;
    std::vector<TapeRef> tapes;  // open tapes, outermost first
};
Context& context();

// No tape records while one lives.
class WithoutTapes {
public:
    WithoutTapes() { saved_.swap(context().tapes); }
    ~WithoutTapes() { saved_.swap(context().tapes); }
    WithoutTapes(const WithoutTapes&) = delete;

private:
    std::vector<TapeRef> saved_;
};

// Where an op computes: on the device of its operands. Constants that lie on the host join any; an
// op with no other operand computes on `wanted` (null: at the AtPlace, if there is one, else on the
// host). UserError when operands lie on two devices.
Device& device_of(const OpDef& op, std::span<const TensorRef> inputs, Device* wanted = nullptr);

// The dtype to which an op that promotes its operands converts them all. UserError (type) for
// operands that the op does not take.
DType promoted_dtype(const OpDef& op, std::span<const DType> operands);

// Returns what apply() would if the record of the running trace plainly expects this op of these
// operands; nothing waits or runs. Else returns none. `here`: the context, which has a tracer.
Results follow(const Context& here, const OpDef& op, const Attrs& attrs,
               std::span<const TensorRef> inputs);

// `inputs` are promoted as the op asks, and copied where the op does not know the order in which
// they lie in memory. `wanted`: see device_of. Throws UserError.
Results apply(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
              Device* wanted = nullptr);

// Computes at once, unseen by tapes and traces. Inputs must have data; they are copied as by
// apply().
Results compute(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                Device* wanted = nullptr);

// The tensor with its elements in row-major order; the tensor itself where they lie so. Unseen by
// tapes and traces.
TensorRef row_major(const TensorRef& tensor);

// Asks the running trace for the data of a placeholder. UserError if the trace has none to give.
void require_data(Tensor& tensor);
// Would require_data succeed?
bool is_readable(const Tensor& tensor);

// A copy on that device, or the tensor itself where it lies there. Unseen by tapes and traces.
TensorRef copied_to(const TensorRef& tensor, Device& device);
// A tensor whose elements the device can read: the tensor itself, too, where it lies on another
// CPU.
TensorRef readable_on(Device& device, const TensorRef& tensor);

}  // namespace megjit::runtime
