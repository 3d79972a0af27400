#include "runtime/eager/dispatch.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "runtime/core/host_view.h"
#include "runtime/core/rematerializer.h"
#include "runtime/eager/at_place.h"
#include "runtime/eager/autodiff.h"
#include "runtime/eager/call_log.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/host/host_lock.h"
#include "runtime/host/mutex.h"
#include "runtime/host/user_line.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"
#include "runtime/ops/operand_layouts.h"
#include "runtime/ops/ordered.h"

namespace megjit::runtime {
namespace {

bool needs_promotion(Promotion promotion, std::span<const TensorRef> inputs) {
    if (promotion == Promotion::none) return false;
    const DType first = inputs.empty() ? DType::f32 : inputs[0]->dtype();
    for (const TensorRef& input : inputs)
        if (input->dtype() != first) return true;
    if (promotion == Promotion::floating) return !is_floating(first);
    if (promotion == Promotion::boolean) return first != DType::b8;
    if (promotion == Promotion::integer) return info(first).category != Category::integer;
    return false;
}

Tensors promoted(const OpDef& op, std::span<const TensorRef> inputs, Device& device) {
    std::vector<DType> dtypes;
    for (const TensorRef& input : inputs) dtypes.push_back(input->dtype());
    const DType to = promoted_dtype(op, dtypes);
    Tensors result(inputs.begin(), inputs.end());
    for (TensorRef& input : result) {
        if (input->dtype() == to) continue;
        input = apply(ops::cast(), {std::string(info(to).name)}, {&input, 1}, &device)[0];
    }
    return result;
}

Tensors with_narrow_places(const OpDef& op, std::span<const TensorRef> inputs, Device& device) {
    const AtPlace place(device);
    Tensors result(inputs.begin(), inputs.end());
    for (size_t i = 0; i < result.size(); ++i) {
        const bool is_wide = result[i]->dtype() == DType::i64;
        if (is_wide && op.kind_of(i) == OperandKind::places)
            result[i] = build::narrow_places(result[i]);
    }
    return result;
}

bool has_wide_places(const OpDef& op, std::span<const TensorRef> inputs) {
    if (!op.extent_of_places) return false;
    for (size_t i = 0; i < inputs.size(); ++i)
        if (inputs[i]->dtype() == DType::i64 && op.kind_of(i) == OperandKind::places) return true;
    return false;
}

struct EditedGraphs {
    Mutex mutex{"the edited graphs"};
    std::unordered_map<uint64_t, Tracer*> by_session;
};
EditedGraphs& edited_graphs() {
    static EditedGraphs instance;
    return instance;
}

Tracer& edited_graph_of(const Tensor& tensor) {
    const std::lock_guard lock(edited_graphs().mutex);
    const auto found = edited_graphs().by_session.find(tensor.trace.session);
    if (found == edited_graphs().by_session.end())
        user_error({.what = cat("this variable ", to_string(tensor.type()),
                                " belongs to a network that is gone"),
                    .fix = "keep the Network"},
                   ErrorKind::runtime);
    return *found->second;
}

// The edited graph of which one of these is a variable, or null.
Tracer* edited_graph_of(std::span<const TensorRef> inputs) {
    for (const TensorRef& input : inputs)
        if (input->trace.is_edited()) [[unlikely]]
            return &edited_graph_of(*input);
    return nullptr;
}

bool is_laid_out(std::span<const TensorRef> inputs) {
    for (const TensorRef& input : inputs)
        if (input->type().layout != Layout::row_major) return true;
    return false;
}

// Replaces operands by copies in layouts that the op knows; `call` (apply or compute) makes them.
template <class Call>
void lay_out_operands(const OpDef& op, std::span<const TensorRef>& inputs, Tensors& converted,
                      Device& device, Call call) {
    if (&op == &ops::relayout()) return;
    std::vector<Type> types;
    for (const TensorRef& input : inputs) types.push_back(input->type());
    const std::vector<Layout> layouts = operand_layouts(op, types, ChannelsLast::where_it_is);
    for (size_t i = 0; i < layouts.size(); ++i) {
        if (layouts[i] == types[i].layout) continue;
        if (converted.empty() || converted.data() != inputs.data())
            converted.assign(inputs.begin(), inputs.end());
        inputs = converted;
        converted[i] =
            call(ops::relayout(), {to_string(layouts[i])}, {&converted[i], 1}, &device)[0];
    }
}

// "conv2d f32[8, 64, 56, 56]"; without a type where that depends on values.
std::string application_text(const OpDef& op, const Attrs& attrs,
                             std::span<const TensorRef> inputs) {
    std::string text = op.name;
    if (op.direct) return text;
    std::vector<Type> types;
    for (const TensorRef& input : inputs) types.push_back(input->type());
    for (const Type& type : infer({op, attrs, types})) text += " " + to_string(type);
    return text;
}

void note_call(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
               std::span<const TensorRef> outputs,
               const std::shared_ptr<const Executable>& executable, Device& device,
               std::chrono::steady_clock::time_point begin) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    std::vector<Type> types;
    for (const TensorRef& input : inputs) types.push_back(input->type());
    const OpCall call{op, attrs, types};
    double seconds = taken.count();
    if (!device.stream().is_inline()) {  // work that is only queued has no time yet
        std::vector<Type> results;
        for (const TensorRef& output : outputs) results.push_back(output->type());
        seconds = device.speeds().seconds(call, results);
    }
    Rematerializer::instance().note_call(call, inputs, outputs, executable, seconds);
}

}  // namespace

Context& context() {
    // A plain pointer: a thread_local object with a constructor would be checked twice at each use.
    thread_local constinit Context* here = nullptr;
    if (!here) [[unlikely]] {
        thread_local Context instance;
        here = &instance;
    }
    return *here;
}

namespace {

thread_local constinit Device* place_of_constants = nullptr;

}  // namespace

AtPlace::AtPlace(Device& place) : saved_(std::exchange(place_of_constants, &place)) {}
AtPlace::~AtPlace() { place_of_constants = saved_; }

namespace {

// Variables of an edited graph lie on no device before it runs.
bool joins_any(const Tensor& tensor) {
    return tensor.trace.is_edited() || (tensor.is_constant && tensor.device().is_host());
}

bool is_readable(const Device& device, const Tensor& tensor) {
    return &tensor.device() == &device || (tensor.device().is_host() && device.is_host());
}

// A host's constant, copied to the device; recent numbers are cached. Returns a constant that lies
// there already.
TensorRef constant_on(Device& device, const TensorRef& constant) {
    if (is_readable(device, *constant)) return constant;
    if (constant->type().numel() > 1) return copied_to(constant, device);
    struct Slot {
        uint64_t id = 0;
        TensorRef there;
    };
    constexpr size_t kSlots = 64;
    thread_local Slot cache[kSlots];
    Slot& slot = cache[constant->id() % kSlots];
    if (slot.id != constant->id() || &slot.there->device() != &device)
        slot = {constant->id(), copied_to(constant, device)};
    return slot.there;
}

// Operands have layouts that the op knows.
Results run(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> given,
            Device& device) try {
    std::span<const TensorRef> inputs = given;
    bool are_here = true;
    for (const TensorRef& input : inputs) {
        if (!input->has_data()) require_data(*input);
        are_here = are_here && is_readable(device, *input);
    }
    Tensors moved;
    if (!are_here) {
        for (const TensorRef& input : inputs) moved.push_back(constant_on(device, input));
        inputs = moved;
    }
    const Pins pins(inputs);
    if (op.direct) {
        std::vector<Type> types;
        for (const TensorRef& input : inputs) types.push_back(input->type());
        return op.direct({op, attrs, types}, inputs);
    }
    const PreparedRef prepared = PreparedOps::instance().get(op, attrs, inputs, device);
    const std::vector<Type>& types = prepared->outputs;
    if (op.is_view) return make_tensor(types[0], copied_to(inputs[0], device)->storage());

    Results outputs;
    constexpr size_t kFew = 8;
    void* few_in[kFew];
    void* few_out[kFew];
    std::vector<void*> many_in, many_out;
    void **in = few_in, **out = few_out;
    if (inputs.size() > kFew) {
        many_in.resize(inputs.size());
        in = many_in.data();
    }
    if (types.size() > kFew) {
        many_out.resize(types.size());
        out = many_out.data();
    }
    for (size_t i = 0; i < inputs.size(); ++i) in[i] = inputs[i]->data();
    for (size_t i = 0; i < types.size(); ++i) {
        outputs.push_back(empty_tensor(device, types[i]));
        out[i] = outputs[i]->data();
    }
    const Executable& executable = *prepared->executable;
    Ref<Storage> workspace;
    if (const size_t bytes = executable.workspace_bytes()) workspace = Storage::make(device, bytes);
    Stream& stream = device.stream();
    // What other processes see must not be computed again.
    const bool is_queued = !stream.is_inline(),
               is_noted = Rematerializer::is_on() && !is_ordered(op);
    if (is_queued) {
        for (const TensorRef& input : inputs) stream.refuse_lost(input->storage()->ready());
        stream.name_next(op.name, user_line());
    }
    const bool is_logged = CallLog::is_on();
    const auto begin = is_noted || is_logged ? std::chrono::steady_clock::now()
                                             : std::chrono::steady_clock::time_point();
    const auto enqueue = [&] {
        const WithoutHostLock others_run(prepared->takes_a_while);
        executable.enqueue(stream, in, out, workspace ? workspace->data() : nullptr);
    };
    if (prepared->is_ordered) [[unlikely]] {
        const std::string where = user_line();
        const AtUserLine at(where);
        enqueue();
    } else enqueue();
    for (const TensorRef& output : outputs) {
        if (is_queued) output->storage()->set_ready(stream.record());
        if (output->storage()->is_worth_listing()) output->storage()->list(op.name, output->type());
    }
    if (is_noted) [[unlikely]]
        note_call(op, attrs, inputs, outputs, prepared->executable, device, begin);
    if (is_logged) [[unlikely]] {
        const auto end = std::chrono::steady_clock::now();
        CallLog::note(application_text(op, attrs, inputs), device, begin, end);
    }
    return outputs;
} catch (OutOfMemory& error) {
    error.say_what_for(application_text(op, attrs, given));
    throw;
}

}  // namespace

Device& device_of(const OpDef& op, std::span<const TensorRef> inputs, Device* wanted) {
    Device* device = nullptr;
    for (const TensorRef& input : inputs) {
        Device& other = input->device();
        if (device == &other || joins_any(*input)) continue;
        if (device)
            user_error({.what = cat(op.name, ": operands lie on ", device->name(), " and on ",
                                    other.name()),
                        .fix = "move one with .to(device)"},
                       ErrorKind::operands);
        device = &other;
    }
    if (device) return *device;
    if (wanted) return *wanted;
    return place_of_constants ? *place_of_constants : host_device();
}

DType promoted_dtype(const OpDef& op, std::span<const DType> operands) {
    DType to = operands[0];
    for (const DType dtype : operands) {
        const bool counts_bits = op.promotion == Promotion::integer;  // a bool counts as one bit
        to = counts_bits && to == DType::b8      ? dtype
             : counts_bits && dtype == DType::b8 ? to
                                                 : promote(to, dtype);
    }
    const auto refuse = [&](std::string_view wanted) {
        user_error({.what = cat(op.name, ": needs ", wanted, ", got ", info(operands[0]).name,
                                operands.size() > 1 ? cat(" and ", info(operands[1]).name) : ""),
                    .fix = "convert with astype"},
                   ErrorKind::type);
    };
    if (op.promotion == Promotion::boolean && to != DType::b8) refuse("bool tensors");
    if (op.promotion == Promotion::integer && info(to).category != Category::integer)
        refuse("integer tensors");
    return op.promotion == Promotion::floating && !is_floating(to) ? DType::f32 : to;
}

Results compute(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                Device* wanted) {
    Tensors converted;
    Device& device = device_of(op, inputs, wanted);
    if (is_laid_out(inputs)) [[unlikely]]
        lay_out_operands(op, inputs, converted, device, compute);
    return run(op, attrs, inputs, device);
}

Results follow(const Context& here, const OpDef& op, const Attrs& attrs,
               std::span<const TensorRef> inputs) {
    Results outputs = here.tracer->follow(op, attrs, inputs);
    if (outputs.size() > 0)
        for (const TapeRef& tape : here.tapes) tape->record(op, attrs, inputs, outputs);
    return outputs;
}

Results apply(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
              Device* wanted) {
    const Context& here = context();
    if (here.tracer)
        if (Results outputs = follow(here, op, attrs, inputs); outputs.size() > 0) return outputs;
    Tensors converted;
    check_input_count(op, inputs.size());
    Device& device = device_of(op, inputs, wanted);
    if (needs_promotion(op.promotion, inputs)) {
        converted = promoted(op, inputs, device);
        inputs = converted;
    }
    if (has_wide_places(op, inputs)) [[unlikely]] {
        converted = with_narrow_places(op, inputs, device);
        inputs = converted;
    }
    if (is_laid_out(inputs)) [[unlikely]]
        lay_out_operands(op, inputs, converted, device, apply);
    Tracer* graph = edited_graph_of(inputs);
    Tracer* tracer = graph ? graph : here.tracer;
    Results outputs =
        tracer ? tracer->on_op(op, attrs, inputs, device) : run(op, attrs, inputs, device);
    for (const TapeRef& tape : here.tapes) tape->record(op, attrs, inputs, outputs);
    return outputs;
}

void add_edited_graph(uint64_t session, Tracer& graph) {
    const std::lock_guard lock(edited_graphs().mutex);
    edited_graphs().by_session[session] = &graph;
}

void remove_edited_graph(uint64_t session) {
    const std::lock_guard lock(edited_graphs().mutex);
    edited_graphs().by_session.erase(session);
}

TensorRef row_major(const TensorRef& tensor) {
    if (tensor->type().layout == Layout::row_major) return tensor;
    return compute(ops::relayout(), {to_string(Layout::row_major)}, {&tensor, 1})[0];
}

void require_data(Tensor& tensor) {
    if (tensor.has_data()) return;
    Tracer* tracer = tensor.trace.is_edited() ? &edited_graph_of(tensor) : context().tracer;
    if (tracer) {
        const WithoutHostLock others_run;  // a program may run, and this thread waits for it
        tracer->on_read(tensor);
    }
    if (!tensor.has_data() && tensor.type().numel() > 0)
        user_error({.what = cat("this tensor of type ", to_string(tensor.type()), " has no value"),
                    .why = "it was made inside a traced function and was not part of its results",
                    .fix = "return it from the traced function"},
                   ErrorKind::runtime);
}

bool is_readable(const Tensor& tensor) {
    if (tensor.has_data()) return true;
    const Tracer* tracer = tensor.trace.is_edited() ? &edited_graph_of(tensor) : context().tracer;
    return tracer && tracer->can_read(tensor);
}

namespace {

// Copies without the host; null where that is not possible.
TensorRef copied_across(const TensorRef& tensor, Device& device) {
    Device& from = tensor->device();
    if (from.is_host() || device.is_host() || !tensor->storage()) return nullptr;
    const Pins pins({&tensor, 1});
    TensorRef copy = empty_tensor(device, tensor->type());
    from.stream().refuse_lost(tensor->storage()->ready());
    // Uploads and programs' results have no tickets of their own: the copy follows all that is
    // queued.
    if (!device.stream().copy_across(copy->data(), from.stream(), from.stream().record(),
                                     tensor->data(), tensor->type().bytes()))
        return nullptr;
    copy->storage()->set_ready(device.stream().record());
    from.stream().wait(device.stream(), device.stream().record());  // before `from` reuses memory
    return copy;
}

}  // namespace

TensorRef readable_on(Device& device, const TensorRef& tensor) {
    return is_readable(device, *tensor) ? tensor : copied_to(tensor, device);
}

TensorRef copied_to(const TensorRef& tensor, Device& device) {
    if (&tensor->device() == &device) return tensor;
    TensorRef copy = copied_across(tensor, device);
    if (!copy) copy = tensor_from_host(device, tensor->type(), HostView(tensor).data());
    copy->is_constant = tensor->is_constant;
    return copy;
}

}  // namespace megjit::runtime
