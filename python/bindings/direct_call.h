// python/bindings/direct_call.h -- DirectCall: the Python side of jit::DirectCall. It knows
// from which objects the tensors of a call without the body come, which objects the call rebinds,
// and what it returns.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "jit/trace/direct_call.h"
#include "python/bindings/capture.h"
#include "python/bindings/facts.h"
#include "python/bindings/handle.h"

namespace megjit::python {

class DirectCall {
public:
    // Made from a call whose body has returned `results`, before its session ends. `were_there`:
    // which results are objects that the body found. `guards`: the number of the guards that say
    // when it holds.
    DirectCall(const jit::Session& session, Capture& capture, const nb::list& arguments,
               const nb::list& results, const std::vector<bool>& were_there, uint64_t guards);
    // Says where the body reads a value or leaves the trace (calls without it cannot); or "".
    std::string read_in(const jit::Version& version) const;
    // To be called once the session has ended.
    void complete(jit::TraceFunction& function, std::shared_ptr<jit::Version> version);

    uint64_t guards() const { return guards_; }
    // In this opening (DirectCalls), calls that these facts take, and for which they hold, need no
    // guards, and `result_of` makes their result from what run() gives. The caller keeps the facts.
    void set_facts(const Facts* facts, nb::object result_of, uint64_t opening);
    const Facts* facts_of(uint64_t opening) const { return opening_ == opening ? facts_ : nullptr; }
    const nb::object& result_of() const { return result_of_; }
    size_t hash() const { return call_->hash(); }  // of the types of the arguments
    bool has_left() const { return call_ && call_->has_left(); }  // its version was dropped
    // Is it a call like the recorded one, by the types of its arguments?
    bool takes(const Tensors& arguments) const { return call_ && call_->takes(arguments); }
    // Tensors whose .grad each call sets anew: guards leave it to run().
    nb::list tensors_with_grads() const;
    // Tensors, arguments aside, that each call rebinds.
    nb::list updated() const;
    // Says why later calls need the body nevertheless, or "".
    const std::string& reason() const { return reason_; }

    // Does a call take tensors as arguments alone, and only give values that it computes?
    bool is_plain() const { return is_plain_ && constants_are_held(); }
    // Runs such a call for arguments that it takes. Only one call may run at a time.
    Tensors run_plain(const Tensors& arguments) const;

    // Returns what the body would have returned, flat; None where this call needs the body. Only
    // one call may run at a time.
    nb::object run(const nb::list& arguments) const;

    int traverse(visitproc visit, void* arg) const;  // shows what this holds to the cycle collector

private:
    struct Update {
        nb::object object;
        size_t argument = 0;  // `object` is this argument; their number: it is none
        size_t slot = 0;  // the slot whose tensor it holds before; their number: none
        TensorRef constant = {};  // its value after each call; null: the wanted value
    };
    struct Grad {
        nb::object tensor;
        size_t argument = 0;  // the tensor is this argument; their number: it is none
        bool was_none = true, was_tensor = false;  // .grad before the call
        size_t first = 0;  // place of it, or of its rows, in the wanted values
        nb::object rows = {};  // the recorded gradient, where it is kept as rows
    };
    struct Result {
        enum class From : uint8_t {
            value,
            grad,
            argument,
            again,
            constant,
            fixed
        } from = From::value;
        size_t index = 0;  // by `from`: which wanted value, grad, argument or result (again)
        nb::object object = {};  // the fixed one
        TensorRef constant = {};  // the value of a new object
        nb::object type = {}, attributes = {};  // the new object's; null: a bare Tensor
        bool is_made() const { return from == From::value || from == From::constant; }
    };
    void find_twins(const Capture& capture, const nb::list& arguments);
    void find_updates(const jit::Session& session, const Capture& capture,
                      const nb::list& arguments);
    void find_grads(const jit::Session& session, const Capture& capture, const nb::list& arguments);
    void find_results(const jit::Session& session, const nb::list& arguments,
                      const nb::list& results, const std::vector<bool>& were_there);
    bool finds_plain() const;
    size_t slot_of(nb::handle object, size_t argument) const;
    bool keeps_other_values(const jit::Session& session) const;

    bool is_called_alike(const nb::list& arguments) const;
    nb::handle tensor_of(const Grad& grad, const nb::list& arguments) const;
    bool grads_are_alike(const nb::list& arguments) const;
    void ask_getters(Tensors& bound) const;
    void bind_captured(Tensors& bound, const nb::list& arguments) const;
    bool twins_agree() const;
    bool constants_are_held() const;
    void bind_others(Tensors& bound, const Tensors& arguments) const;
    std::vector<Handle*> rebound(const nb::list& arguments) const;
    Tensors run(const jit::CompiledSegment& compiled, std::vector<Handle*> rebound,
                Tensors bound) const;
    static nb::object made(const Grad& grad, const Tensors& values);
    nb::list set_grads(const Tensors& values, const nb::list& arguments) const;
    static nb::object made(const Result& result, TensorRef value);
    nb::list results_of(const Tensors& values, const nb::list& arguments) const;

    std::unique_ptr<jit::DirectCall> call_;
    std::vector<jit::RecordId> wanted_;  // values of updates, then gradients, then results
    std::vector<SlotSource> sources_;  // by slot
    std::vector<Update> updates_;
    size_t computed_updates_ = 0;  // so many updates come first; the others are constants
    std::vector<Grad> grads_;  // tensors whose .grad is a new one after each call
    std::vector<size_t> same_object_;  // by argument: the first one that is this object
    bool may_hold_one_value_ = false;  // two recorded arguments did
    std::vector<std::pair<nb::object, nb::object>> twins_;  // objects that must hold one value
    // Objects that must hold the tensor with this id: it is a constant of the program.
    std::vector<std::pair<nb::object, uint64_t>> constants_;
    std::vector<Result> results_;
    bool is_plain_ = false;
    std::string reason_, read_at_;
    uint64_t guards_ = 0;
    const Facts* facts_ = nullptr;
    uint64_t opening_ = 0;
    nb::object result_of_;
};

}  // namespace megjit::python
