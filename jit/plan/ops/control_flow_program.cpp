#include "jit/plan/ops/control_flow_program.h"

#include <algorithm>
#include <numeric>

#include "jit/plan/graph_program.h"
#include "jit/plan/ops/control_flow_ops.h"

namespace megjit::jit {
namespace {

using runtime::Executable;
using runtime::OpCall;
using runtime::Stream;

std::byte* behind(void* start, size_t offset) { return static_cast<std::byte*>(start) + offset; }

void copy(Stream& stream, void* to, const void* from, size_t bytes) {
    if (bytes && to != from) stream.copy(to, from, bytes);
}

std::unique_ptr<const GraphProgram> program_of(runtime::Device& device, const std::string& text,
                                               const std::vector<int>& in_place = {}) {
    Graph graph = *subgraph(text);
    graph.set_device(device);
    return std::make_unique<const GraphProgram>(std::move(graph), in_place);
}

// The carries whose new values the plan puts in the place of the old ones; others get memory of
// their own.
std::vector<int> carries_in_place(const GraphProgram& body, size_t carries) {
    std::vector<int> in_place(carries, -1);
    for (size_t i = 0; i < carries; ++i)
        if (body.lies_on(i, static_cast<uint32_t>(i))) in_place[i] = static_cast<int>(i);
    return in_place;
}

// Places in a workspace, one after the other; the first is the arena of the graphs.
class Places {
public:
    void reserve(const GraphProgram& program) {
        bytes = std::max(bytes, rounded(program.workspace_bytes()));
        align = std::max(align, program.workspace_align());
    }
    size_t add(size_t size) {
        const size_t place = bytes;
        bytes += rounded(size);
        return place;
    }
    size_t bytes = 0, align = kOperandAlign;

private:
    static size_t rounded(size_t size) {
        return (size + kOperandAlign - 1) / kOperandAlign * kOperandAlign;
    }
};

// What a trip reads or writes of a tensor with one element for each trip.
struct Slice {
    explicit Slice(size_t bytes, Places& places)
        : bytes(bytes),
          is_in_place(bytes % kOperandAlign == 0),
          place(is_in_place ? 0 : places.add(bytes)) {}
    void* of(void* whole, int64_t trip) const {
        return behind(whole, bytes * static_cast<size_t>(trip));
    }
    void* at_hand(void* whole, int64_t trip, void* workspace) const {
        return is_in_place ? of(whole, trip) : behind(workspace, place);
    }
    size_t bytes = 0;
    bool is_in_place = false;
    size_t place = 0;  // an element that is not in place is copied to or from there
};

class ControlFlow : public Executable {
public:
    size_t workspace_bytes() const override { return places_.bytes; }
    size_t workspace_align() const override { return places_.align; }

protected:
    Places places_;
};

class Scan final : public ControlFlow {
public:
    Scan(runtime::Device& device, const OpCall& call) : call_(call), in_place_(call_.carries) {
        std::iota(in_place_.begin(), in_place_.end(), 0);
        for (std::vector<int> tried; !body_ || tried != in_place_;) {
            tried = in_place_;
            body_ = program_of(device, call.text("body"), tried);
            in_place_ = carries_in_place(*body_, call_.carries);
        }
        places_.reserve(*body_);
        for (size_t i = 0; i < call_.carries; ++i)
            spare_.push_back(in_place_[i] < 0 ? places_.add(call_.inputs[i].bytes()) : 0);
        for (size_t i = call_.carries; i < call_.captured(); ++i)
            xs_.emplace_back(call_.inputs[i].bytes(), places_);
        for (size_t i = call_.carries; i < call_.outputs.size(); ++i)
            ys_.emplace_back(call_.outputs[i].bytes(), places_);
    }

    void enqueue(Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        std::vector<void*> in(inputs, inputs + call_.inputs.size()),
            out(call_.carries + ys_.size());
        for (size_t i = 0; i < call_.carries; ++i)
            if (in_place_[i] >= 0) start_at(stream, in[i], outputs[i], call_.inputs[i].bytes());
        for (int64_t trip = 0; trip < call_.trips; ++trip) {
            const int64_t element = call_.is_reverse ? call_.trips - 1 - trip : trip;
            for (size_t i = 0; i < call_.carries; ++i) {  // the last trip writes the results
                if (trip > 0) in[i] = out[i];
                const bool is_result = in_place_[i] >= 0 || (call_.trips - trip) % 2;
                out[i] = is_result ? outputs[i] : behind(workspace, spare_[i]);
            }
            for (size_t i = 0; i < xs_.size(); ++i) {
                void* const whole = inputs[call_.carries + i];
                in[call_.carries + i] = xs_[i].at_hand(whole, element, workspace);
                copy(stream, in[call_.carries + i], xs_[i].of(whole, element), xs_[i].bytes);
            }
            for (size_t i = 0; i < ys_.size(); ++i)
                out[call_.carries + i] =
                    ys_[i].at_hand(outputs[call_.carries + i], element, workspace);
            body_->enqueue(stream, in.data(), out.data(), workspace);
            for (size_t i = 0; i < ys_.size(); ++i)
                copy(stream, ys_[i].of(outputs[call_.carries + i], element), out[call_.carries + i],
                     ys_[i].bytes);
        }
        if (call_.trips == 0)
            for (size_t i = 0; i < call_.carries; ++i)
                if (in_place_[i] < 0) copy(stream, outputs[i], inputs[i], call_.inputs[i].bytes());
    }
    bool waits_for_values() const override { return body_->waits_for_values(); }
    bool may_alias(int out, int in) const override {
        return out == in && static_cast<size_t>(in) < call_.carries &&
               in_place_[static_cast<size_t>(in)] >= 0;
    }

private:
    // A carry that each trip overwrites begins where the result lies.
    static void start_at(Stream& stream, void*& carry, void* result, size_t bytes) {
        copy(stream, result, carry, bytes);
        carry = result;
    }

    ScanCall call_;
    std::vector<int> in_place_;  // by carry: itself, or -1
    std::unique_ptr<const GraphProgram> body_;
    std::vector<size_t> spare_;  // places of carries that are not in place
    std::vector<Slice> xs_, ys_;
};

bool is_true(Stream& stream, const void* flag) {
    if (stream.is_inline()) return *static_cast<const bool*>(flag);
    bool value = false;
    stream.download(&value, flag, sizeof value);
    stream.synchronize();
    return value;
}

class WhileLoop final : public ControlFlow {
public:
    WhileLoop(runtime::Device& device, const OpCall& call)
        : condition_(program_of(device, call.text("condition"))),
          body_(program_of(device, call.text("body"))),
          inputs_(call.inputs.size()) {
        places_.reserve(*condition_);
        places_.reserve(*body_);
        flag_ = places_.add(sizeof(bool));
        for (const Type& type : runtime::infer(call)) {
            carry_bytes_.push_back(type.bytes());
            spare_.push_back(places_.add(type.bytes()));
        }
    }

    void enqueue(Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        std::vector<void*> in(inputs, inputs + inputs_), out(carry_bytes_.size());
        void* flag = behind(workspace, flag_);
        for (bool to_results = true;; to_results = !to_results) {
            condition_->enqueue(stream, in.data(), &flag, workspace);
            if (!is_true(stream, flag)) break;
            for (size_t i = 0; i < out.size(); ++i)
                out[i] = to_results ? outputs[i] : behind(workspace, spare_[i]);
            body_->enqueue(stream, in.data(), out.data(), workspace);
            std::ranges::copy(out, in.begin());
        }
        for (size_t i = 0; i < out.size(); ++i) copy(stream, outputs[i], in[i], carry_bytes_[i]);
    }
    bool waits_for_values() const override { return true; }

private:
    std::unique_ptr<const GraphProgram> condition_, body_;
    size_t inputs_, flag_ = 0;
    std::vector<size_t> carry_bytes_, spare_;
};

class Cond final : public ControlFlow {
public:
    Cond(runtime::Device& device, const OpCall& call)
        : if_true_(program_of(device, call.text("if_true"))),
          if_false_(program_of(device, call.text("if_false"))) {
        places_.reserve(*if_true_);
        places_.reserve(*if_false_);
    }

    void enqueue(Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const GraphProgram& branch = is_true(stream, inputs[0]) ? *if_true_ : *if_false_;
        branch.enqueue(stream, inputs + 1, outputs, workspace);
    }
    bool waits_for_values() const override { return true; }

private:
    std::unique_ptr<const GraphProgram> if_true_, if_false_;
};

}  // namespace

std::shared_ptr<const Executable> control_flow_program(runtime::Device& device,
                                                       const OpCall& call) {
    if (&call.op == &ops::scan()) return std::make_shared<const Scan>(device, call);
    if (&call.op == &ops::while_loop()) return std::make_shared<const WhileLoop>(device, call);
    if (&call.op == &ops::cond()) return std::make_shared<const Cond>(device, call);
    return nullptr;
}

}  // namespace megjit::jit
