#include "jit/api/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "jit/api/model.h"
#include "jit/file/export.h"
#include "runtime/core/host_view.h"
#include "runtime/core/random.h"
#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"

namespace megjit::api {

using runtime::cat;
using Kind = jit::Input::Kind;

namespace {

[[noreturn]] void refuse_file(const std::string& what, const std::string& why,
                              const std::string& fix) {
    runtime::user_error({.what = what, .why = why, .fix = fix}, runtime::ErrorKind::runtime);
}

TensorRef host_copy(const TensorRef& value) {
    Type type = value->type();
    type.layout = runtime::Layout::row_major;
    return runtime::tensor_from_host(runtime::host_device(), type, runtime::HostView(value).data());
}

// The key, or keys, that `type` asks for; `state` moves on.
TensorRef draw(TensorRef& state, const Type& type, runtime::Device& device) {
    uint64_t words[2];  // seed, counter
    std::memcpy(words, state->data(), sizeof words);
    runtime::RandomState generator(words[0], words[1]);
    TensorRef keys =
        type.rank() == 1 ? generator.key(&device) : generator.keys(type.shape[0], &device);
    words[1] = generator.counter();
    state = runtime::tensor_from_host(runtime::host_device(), state->type(), words);
    return keys;
}

// A file's bytes, which nobody copies: the system reads pages as they are needed, and may drop
// them.
struct Mapping {
    std::shared_ptr<void> start = {};  // unmaps
    size_t size = 0;
    std::string_view view() const { return {static_cast<const char*>(start.get()), size}; }
};

Mapping mapped(const std::filesystem::path& path, std::error_code& error) {
    const auto failed = [&error](int number) {
        error.assign(number, std::generic_category());
        return Mapping();
    };
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return failed(errno);
    const std::unique_ptr<const int, decltype([](const int* open) { ::close(*open); })> closes(
        &file);
    struct stat status = {};
    if (::fstat(file, &status)) return failed(errno);
    if (!S_ISREG(status.st_mode)) return failed(S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    const auto size = static_cast<size_t>(status.st_size);
    if (size == 0) return {};
    void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (start == MAP_FAILED) return failed(errno);
    return {std::shared_ptr<void>(start, [size](void* at) { ::munmap(at, size); }), size};
}

}  // namespace

size_t position_of(std::string_view kind, const std::vector<std::string>& names,
                   std::string_view name) {
    const auto found = std::ranges::find(names, name);
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
    std::string all;
    for (const std::string& each : names) all += (all.empty() ? "" : ", ") + each;
    runtime::user_error({.what = cat("the model has no ", kind, " ", name),
                         .why = names.empty() ? cat("it has none") : cat("it has ", all),
                         .fix = "use one of these names"});
}

size_t position_of(std::string_view kind, const std::vector<Port>& ports, std::string_view name) {
    const auto found = std::ranges::find(ports, name, &Port::name);
    if (found != ports.end()) return static_cast<size_t>(found - ports.begin());
    std::vector<std::string> names;
    for (const Port& port : ports) names.push_back(port.name);
    return position_of(kind, names, name);
}

File::File(jit::ModelFile file)
    : file_(std::move(file)),
      packed_(std::make_shared<const jit::PackedWeights>(file_.weights, file_.constants())) {
    for (const jit::State& state : file_.states)
        ports_.push_back({state.name, state.value->type()});
}

const std::shared_ptr<const jit::Model>& File::function(std::string_view name) const {
    if (name.empty()) return file_.functions.front();
    std::vector<std::string> names;
    for (const auto& function : file_.functions) names.push_back(function->name);
    return file_.functions[position_of("function", names, name)];
}

size_t File::state(std::string_view name) const { return position_of("state", ports_, name); }

TensorRef File::value(size_t state) {
    const runtime::Turn::Held turn = turn_.take();
    return file_.states.at(state).value;
}

void File::set(size_t state, const TensorRef& value) {
    const Type& wanted = ports_.at(state).type;
    if (value->type().dtype != wanted.dtype || !(value->shape() == wanted.shape))
        runtime::user_error({.what = cat("a ", to_string(value->type()),
                                         " was given for the state ", ports_[state].name),
                             .why = cat("it is ", to_string(wanted)),
                             .fix = "convert it"});
    TensorRef copy = host_copy(value);
    const runtime::Turn::Held turn = turn_.take();
    std::swap(file_.states[state].value, copy);
}

std::vector<jit::State> File::states_on_host() {
    const runtime::Turn::Held turn = turn_.take();
    std::vector<jit::State> states = file_.states;
    for (jit::State& state : states)
        state.value = state.value->device().is_host() ? runtime::row_major(state.value)
                                                      : host_copy(state.value);
    return states;
}

void File::add_kernels(std::vector<codegen::CacheEntry> kernels) {
    std::ranges::move(kernels, std::back_inserter(file_.kernels));
}

void File::change(size_t function, const std::function<void(jit::Model&)>& how) {
    auto changed = std::make_shared<jit::Model>(*file_.functions[function]);
    how(*changed);
    file_.functions[function] = std::move(changed);
}

void File::add_package_of(const Model& model) {
    for (jit::PackedWeight& weight : model.weights_->for_file())
        if (std::ranges::find(file_.weights, weight.key, &jit::PackedWeight::key) ==
            file_.weights.end())
            file_.weights.push_back(std::move(weight));
    std::vector<std::string> names;
    for (const auto& function : file_.functions) names.push_back(function->name);
    change(position_of("function", names, model.function_->name),
           [&](jit::Model& function) { function.order = model.pending_->chosen_order(); });
}

void File::set_options(int opt_level, uint64_t memory_limit) {
    for (size_t i = 0; i < file_.functions.size(); ++i)
        change(i, [&](jit::Model& function) {
            if (opt_level >= 0) function.opt_level = opt_level;
            function.memory_limit = memory_limit;
        });
}

jit::Model File::without_states(std::string_view name) {
    return jit::without_states({file_.functions, states_on_host()}, *function(name));
}

std::string File::to_bytes() {
    return jit::to_bytes({file_.functions, states_on_host(), file_.kernels, file_.weights});
}

void File::save(const std::filesystem::path& path) {
    const std::string bytes = to_bytes();
    const std::filesystem::path part = cat(path.string(), ".", ::getpid(), ".part");
    std::ofstream stream(part, std::ios::binary);
    stream << bytes;
    stream.close();
    std::error_code error;
    if (stream) std::filesystem::rename(part, path, error);
    if (stream && !error) return;
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    refuse_file(cat("cannot write the model ", path.string()),
                error ? error.message() : "the file could not be written",
                "give the path of a file in a folder that can be written to");
}

// Gives the graph's inputs after the caller's, and the generators as they were. All that can fail
// comes before a value is given away.
File::Lent File::lend(const jit::Model& function, runtime::Device& device) {
    const std::span<const jit::Input> states = function.states();
    const size_t count = states.size();
    Lent lent{.inputs = std::vector<TensorRef>(count), .generators = std::vector<TensorRef>(count)};
    const std::vector<Type> types = function.input_types();
    for (const jit::Input& input : states)
        if (input.kind != Kind::key)
            file_.states[input.state].value =
                runtime::readable_on(device, file_.states[input.state].value);
    try {
        for (size_t i = 0; i < count; ++i) {
            if (states[i].kind != Kind::key) continue;
            lent.generators[i] = file_.states[states[i].state].value;
            lent.inputs[i] = draw(file_.states[states[i].state].value,
                                  types[function.input_names.size() + i], device);
        }
    } catch (...) {
        take_back(function, lent);
        throw;
    }
    for (size_t i = 0; i < count; ++i) {
        TensorRef& value = file_.states[states[i].state].value;
        // The run that replaces the state may write over its value.
        if (states[i].kind == Kind::state) lent.inputs[i] = std::move(value);
        else if (states[i].kind != Kind::key) lent.inputs[i] = value;
    }
    return lent;
}

void File::take_back(const jit::Model& function, const Lent& lent) {
    const std::span<const jit::Input> states = function.states();
    for (size_t i = states.size(); i-- > 0;) {
        TensorRef& value = file_.states[states[i].state].value;
        if (lent.generators[i]) value = lent.generators[i];
        if (states[i].kind == Kind::state && lent.inputs[i]) value = lent.inputs[i];
    }
}

void File::run(const jit::Model& function, jit::Program& program, std::span<TensorRef> given,
               std::span<TensorRef> results) {
    if (function.states().empty()) return program.run(given, results);
    const size_t replaced = function.count(jit::Output::Kind::state);
    runtime::Turn::Held turn = turn_.take();
    Lent lent = lend(function, program.graph().device());
    std::vector<TensorRef> inputs(given.begin(), given.end()),
        outputs(results.begin(), results.end());
    std::ranges::move(lent.inputs, std::back_inserter(inputs));
    outputs.resize(results.size() + replaced);
    if (!replaced) const runtime::Turn::Held ends = std::move(turn);  // the run has what it reads
    try {
        program.run(inputs, outputs);
    } catch (...) {
        std::ranges::move(inputs.begin() + static_cast<ptrdiff_t>(given.size()), inputs.end(),
                          lent.inputs.begin());
        if (replaced) take_back(function, lent);
        throw;
    }
    const auto is_given = [&](const TensorRef& value) {  // its memory is the caller's
        const auto is_its = [&](const TensorRef& other) {
            return other && other->storage() == value->storage();
        };
        return std::ranges::any_of(given, is_its) || std::ranges::any_of(results, is_its);
    };
    size_t output = results.size();
    for (const jit::Input& input : function.states()) {
        if (input.kind != Kind::state) continue;
        TensorRef& value = outputs[output++];
        file_.states[input.state].value = is_given(value) ? host_copy(value) : std::move(value);
    }
    std::move(outputs.begin(), outputs.begin() + static_cast<ptrdiff_t>(results.size()),
              results.begin());
}

std::shared_ptr<File> read_model(const std::filesystem::path& path) {
    std::error_code error;
    const Mapping bytes = mapped(path, error);
    if (error)
        refuse_file(cat("cannot read the model ", path.string()), error.message(),
                    "give the path of a file that dump() wrote");
    return std::make_shared<File>(
        jit::from_bytes(bytes.view(), path.filename().string(), nullptr, bytes.start));
}

}  // namespace megjit::api
