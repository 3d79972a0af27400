#include "jit/file/graph_file.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "jit/file/graph_file_layout.h"
#include "runtime/core/device.h"
#include "runtime/host/checksum.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;
using namespace graph_file;

// A reader that never passes the end: every length is compared with what is left.
class Reader {
public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    [[noreturn]] static void fail(const std::string& why) {
        runtime::user_error({.what = why}, runtime::ErrorKind::runtime);
    }
    std::string_view take(uint64_t count) {
        if (count > bytes_.size() - at_)
            fail(cat("it ends at byte ", bytes_.size(), ", ", count, " bytes were expected at ",
                     at_));
        const std::string_view piece = bytes_.substr(at_, count);
        at_ += count;
        return piece;
    }
    template <class T>
    T number() {
        T value{};
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    std::string_view text() { return take(number<uint64_t>()); }
    // A count of things of at least `least` bytes each.
    uint64_t count(size_t least) {
        const auto n = number<uint64_t>();
        if (n > (bytes_.size() - at_) / least) fail(cat("it claims ", n, " entries at byte ", at_));
        return n;
    }
    std::vector<std::string> texts() {
        std::vector<std::string> list(count(sizeof(uint64_t)));
        for (std::string& item : list) item = text();
        return list;
    }
    bool flag() {
        const auto value = number<uint32_t>();
        if (value > 1) fail(cat("it has ", value, " where 0 or 1 belongs"));
        return value == 1;
    }
    // Reads the number of one of `count` things.
    uint32_t index(size_t count, std::string_view what) {
        const auto value = number<uint32_t>();
        if (value >= count) fail(cat("it names the ", what, " ", value, " of ", count));
        return value;
    }
    void align() { take((kAlign - at_ % kAlign) % kAlign); }
    size_t at() const { return at_; }

private:
    std::string_view bytes_;
    size_t at_ = 0;
};

struct StoredConstant {
    uint64_t bytes = 0;
    std::string_view data = {};
    std::shared_ptr<void> keep = {};  // holds the data; null: they go with the reader
    TensorRef tensor = {};  // made once its type is known; functions share it
};

// The part before the constants; graphs are made of it when the constants are known.
struct StoredFunction {
    Model model = {};  // its graph has constants as inputs
    std::vector<uint32_t> constants = {};  // by slot after inputs and states
};
struct StoredFile {
    std::vector<State> states = {};
    std::vector<uint32_t> state_values = {};  // which constants
    std::vector<StoredFunction> functions = {};
    std::vector<StoredConstant> constants = {};
};

// Slots 0..n-1, each once; returns n.
size_t checked_slots(const Graph& graph) {
    std::unordered_set<int> slots;
    for (const Node& node : graph.nodes())
        if (node.kind == NodeKind::input && (node.slot < 0 || !slots.insert(node.slot).second))
            Reader::fail(cat("slot ", node.slot, " is used twice"));
    for (int slot : slots)
        if (static_cast<size_t>(slot) >= slots.size())
            Reader::fail(cat("slot ", slot, " of ", slots.size(), " inputs"));
    return slots.size();
}

// Bytes of the file as a tensor, which uses them in place or copies them.
TensorRef tensor_of(std::string_view bytes, const Type& type, const std::shared_ptr<void>& keep) {
    runtime::Device& host = runtime::host_device();
    if (!keep) return runtime::tensor_from_host(host, type, bytes.data());
    return runtime::make_tensor(
        type, runtime::Storage::borrow(host, const_cast<char*>(bytes.data()), bytes.size(), keep));
}

TensorRef tensor_from(StoredConstant& stored, const Type& type) {
    if (type.bytes() != stored.bytes)
        Reader::fail(cat("a constant ", to_string(type), " has ", stored.bytes, " bytes"));
    if (!stored.tensor) stored.tensor = tensor_of(stored.data, type, stored.keep);
    else if (!(stored.tensor->type() == type))
        Reader::fail(
            cat("a constant is ", to_string(type), " and ", to_string(stored.tensor->type())));
    return stored.tensor;
}

Graph with_constants(const StoredFunction& function, std::vector<StoredConstant>& constants) {
    const Graph& skeleton = function.model.graph;
    const size_t inputs = function.model.inputs.size();
    Rewriter rewrite(skeleton);
    for (const Node& node : skeleton.nodes()) {
        if (node.kind != NodeKind::input || static_cast<size_t>(node.slot) < inputs) {
            rewrite.copy(node);
            continue;
        }
        StoredConstant& stored =
            constants[function.constants[static_cast<size_t>(node.slot) - inputs]];
        rewrite.replace(node.outputs[0], rewrite.to.add_constant(
                                             tensor_from(stored, skeleton.type(node.outputs[0]))));
    }
    return rewrite.finish();
}

void check_names(const StoredFunction& function) {
    const Model& model = function.model;
    const size_t slots = checked_slots(model.graph);
    const size_t told = model.inputs.size() + function.constants.size();
    if (slots != told)
        Reader::fail(cat("its graph has ", slots, " inputs, its names tell of ",
                         model.input_names.size(), ", of ", model.states().size(), " states and ",
                         function.constants.size(), " constants"));
    if (model.outputs.size() != model.graph.outputs.size())
        Reader::fail("it names other outputs than its graph has");
    for (size_t i = 0; i < model.outputs.size(); ++i) {
        const Type& type = model.graph.type(model.graph.outputs[i]);
        if (model.outputs[i].kind == Output::Kind::count &&
            (type.dtype != runtime::DType::i32 || type.rank() != 0))
            Reader::fail(cat("it counts rows by a ", to_string(type)));
        if (model.outputs[i].counted_by >= 0 && type.rank() == 0)
            Reader::fail(cat("it counts rows of ", model.output_names[i], ", a scalar"));
    }
    if (model.node_names.size() != model.graph.nodes().size() ||
        model.value_names.size() != model.graph.value_count())
        Reader::fail("it does not name each node and value");
}

bool is_key(const Type& type) {
    const int rank = type.rank();
    return type.dtype == runtime::DType::i32 && (rank == 1 || rank == 2) &&
           type.shape[rank - 1] == 4;
}

// Functions agree on what a state is.
void check_states(const Model& model, StoredFile& file) {
    const std::vector<Type> types = model.input_types();
    std::unordered_set<uint32_t> seen;
    size_t output = model.outputs.size() - model.count(Output::Kind::state);
    for (size_t slot = model.input_names.size(); slot < model.inputs.size(); ++slot) {
        const Input& input = model.inputs[slot];
        const bool is_replaced = input.kind == Input::Kind::state;
        State& state = file.states[input.state];
        const Type& type = types[slot];
        StoredConstant& stored = file.constants[file.state_values[input.state]];
        stored.keep = nullptr;  // runs write over it
        if (state.is_generator ? is_replaced || !is_key(type) : !seen.insert(input.state).second)
            Reader::fail(cat("the state ", state.name, " is not used as what it is"));
        state.value = tensor_from(
            stored, state.is_generator ? Type{.dtype = runtime::DType::i32, .shape = {4}} : type);
        if (is_replaced && !(model.graph.type(model.graph.outputs[output++]) == type))
            Reader::fail(cat("the state ", state.name, " is replaced by another type"));
    }
}

// Reads the states and counts, which come after the function's own inputs and results.
void read_interface(Reader& reader, uint32_t schema, const std::vector<State>& states,
                    Model& model) {
    std::vector<Output> replaced;
    for (uint64_t i = reader.count(2 * sizeof(uint32_t)); i > 0; --i) {
        const uint32_t state = reader.index(states.size(), "state");
        const bool is_replaced = reader.flag();
        if (is_replaced) replaced.push_back({.kind = Output::Kind::state});
        model.inputs.push_back({.kind = is_replaced                  ? Input::Kind::state
                                        : states[state].is_generator ? Input::Kind::key
                                                                     : Input::Kind::captured,
                                .state = state});
    }
    if (schema > 3) {
        const uint32_t counts = reader.number<uint32_t>();
        if (counts > model.graph.outputs.size())
            Reader::fail("it names other outputs than its graph has");
        model.outputs.insert(model.outputs.end(), counts, {.kind = Output::Kind::count});
        for (uint64_t i = reader.count(2 * sizeof(uint32_t)); i > 0; --i) {
            const uint32_t output = reader.index(model.output_names.size(), "output");
            model.outputs[output].counted_by = static_cast<int>(reader.index(counts, "count"));
        }
    }
    model.outputs.insert(model.outputs.end(), replaced.begin(), replaced.end());
}

// Schema 1 has only what no later schema has added.
StoredFunction read_function(Reader& reader, uint32_t schema, const std::vector<State>& states) {
    StoredFunction function;
    Model& model = function.model;
    if (schema > 1) {
        model.name = reader.text();
        model.opt_level = static_cast<int>(reader.index(4, "opt_level"));
        model.exact = reader.flag();
    }
    if (schema > 4) model.follows_batch = reader.flag();
    if (schema > 2) {
        model.memory_limit = reader.number<uint64_t>();
        model.order.resize(reader.count(sizeof(uint32_t)));
        for (uint32_t& step : model.order) step = reader.number<uint32_t>();
    }
    model.graph =
        parse_plain_graph(reader.text());  // constants and kernels never stand in the text
    model.input_names = reader.texts();
    model.output_names = reader.texts();
    model.node_names = reader.texts();
    model.value_names = reader.texts();
    const uint64_t params = reader.count(sizeof(uint32_t));
    for (uint64_t i = 0; i < params; ++i)
        model.params.push_back(static_cast<ValueId>(reader.number<uint32_t>()));
    model.metadata = reader.text();
    model.cases = reader.text();
    model.inputs.resize(model.input_names.size());
    model.outputs.resize(model.output_names.size());
    if (schema == 1) return function;
    read_interface(reader, schema, states, model);
    function.constants.resize(reader.count(sizeof(uint32_t)));
    for (uint32_t& index : function.constants) index = reader.number<uint32_t>();
    return function;
}

StoredFile read_stored(Reader& reader, uint32_t schema, const std::shared_ptr<void>& keep) {
    StoredFile file;
    if (schema > 1) {
        file.states.resize(reader.count(sizeof(uint64_t) + 2 * sizeof(uint32_t)));
        for (State& state : file.states) {
            state.name = reader.text();
            state.is_generator = reader.flag();
            file.state_values.push_back(reader.number<uint32_t>());
        }
    }
    const uint64_t functions = schema == 1 ? 1 : reader.count(sizeof(uint64_t));
    if (functions == 0) Reader::fail("it has no function");
    for (uint64_t i = 0; i < functions; ++i)
        file.functions.push_back(read_function(reader, schema, file.states));
    file.constants.resize(reader.count(sizeof(uint64_t)));
    for (StoredConstant& stored : file.constants) stored.bytes = reader.number<uint64_t>();
    for (StoredConstant& stored : file.constants) {
        reader.align();
        stored.data = reader.take(stored.bytes);
        stored.keep = keep;
    }
    if (schema == 1)
        for (uint32_t i = 0; i < file.constants.size(); ++i)
            file.functions[0].constants.push_back(i);
    const auto check = [&](const std::vector<uint32_t>& indices) {
        for (uint32_t index : indices)
            if (index >= file.constants.size())
                Reader::fail(cat("it names the constant ", index, " of ", file.constants.size()));
    };
    check(file.state_values);
    for (const StoredFunction& function : file.functions) check(function.constants);
    return file;
}

std::vector<PackedWeight> read_weights(Reader& reader, const std::shared_ptr<void>& keep) {
    std::vector<PackedWeight> weights(reader.count(2 * sizeof(uint64_t)));
    std::vector<uint64_t> sizes;
    for (PackedWeight& weight : weights) {
        weight.key = reader.text();
        sizes.push_back(reader.number<uint64_t>());
    }
    for (size_t i = 0; i < weights.size(); ++i) {
        reader.align();
        const std::string_view bytes = reader.take(sizes[i]);
        weights[i].bytes = tensor_of(
            bytes, {.dtype = runtime::DType::u8, .shape = {static_cast<int64_t>(bytes.size())}},
            keep);
    }
    return weights;
}

ModelFile read_body(Reader& reader, uint32_t schema, const std::shared_ptr<void>& keep) {
    StoredFile stored = read_stored(reader, schema, keep);
    ModelFile file;
    if (schema > 1) file.kernels.resize(reader.count(2 * sizeof(uint64_t)));
    for (codegen::CacheEntry& kernel : file.kernels) {
        kernel.key = reader.text();
        kernel.object = reader.text();
    }
    if (schema > 2) file.weights = read_weights(reader, keep);
    std::unordered_set<std::string> names;
    for (StoredFunction& function : stored.functions) {
        Model& model = function.model;
        check_names(function);
        model.graph = with_constants(function, stored.constants);
        if (std::string fault = fault_of(model.graph); !fault.empty()) Reader::fail(fault);
        for (ValueId id : model.params)
            if (at(id) >= model.graph.value_count() || !is_constant(model.graph.producer(id)))
                Reader::fail("a parameter is not a constant");
        check_states(model, stored);
        if (!names.insert(model.name).second)
            Reader::fail(cat("two functions are called ", model.name));
        file.functions.push_back(std::make_shared<const Model>(std::move(model)));
    }
    names.clear();
    for (const State& state : stored.states) {
        if (!state.value) Reader::fail(cat("no function has the state ", state.name));
        if (!names.insert(state.name).second)
            Reader::fail(cat("two states are called ", state.name));
    }
    file.states = std::move(stored.states);
    return file;
}

ModelFile read_container(std::string_view bytes, size_t* used, const std::shared_ptr<void>& keep) {
    if (bytes.size() < kHeaderBytes)
        Reader::fail(cat("it has ", bytes.size(), " bytes, less than the header"));
    if (bytes.substr(0, kMagic.size()) != kMagic)
        Reader::fail("it does not begin like a dumped model");
    Reader header(bytes.substr(kMagic.size(), kHeaderBytes - kMagic.size()));
    const auto schema = header.number<uint32_t>();
    if (schema > kSchema)
        runtime::user_error(
            {.what = cat("it has schema ", schema, ", this version reads those up to ", kSchema),
             .fix = "update megjit"},
            runtime::ErrorKind::runtime);
    if (schema == 0) Reader::fail("it has schema 0");
    if (header.number<uint32_t>() != 0)
        Reader::fail("it has flags that this version does not know");
    const auto total = header.number<uint64_t>();
    if (total < kHeaderBytes || total > bytes.size())
        Reader::fail(cat("it has ", bytes.size(), " bytes, its header says ", total));
    const std::string_view container = bytes.substr(0, total);
    const std::string_view rest = container.substr(kHeaderBytes);
    if (header.number<uint64_t>() !=
        (schema > 2 ? runtime::checksum(rest) : runtime::checksum_of_words(rest)))
        Reader::fail("its checksum is wrong");
    if (used) *used = total;
    Reader reader(container);
    reader.take(kHeaderBytes);
    ModelFile file = read_body(reader, schema, keep);
    if (reader.at() != total) Reader::fail(cat(total - reader.at(), " bytes follow its end"));
    return file;
}

}  // namespace

std::vector<TensorRef> ModelFile::constants() const {
    std::vector<TensorRef> all;
    for (const auto& function : functions)
        for (const Node& node : function->graph.nodes())
            if (node.kind == NodeKind::constant) all.push_back(node.constant);
    return all;
}

size_t Model::constant_bytes() const {
    size_t bytes = 0;
    for (const Node& node : graph.nodes())
        if (is_constant(node)) bytes += node.constant->type().bytes();
    return bytes;
}

std::vector<Type> Model::input_types() const {
    std::vector<Type> types(input_names.size() + states().size());
    for (const Node& node : graph.nodes())
        if (node.kind == NodeKind::input)
            types[static_cast<size_t>(node.slot)] = graph.type(node.outputs[0]);
    return types;
}

ModelFile from_bytes(std::string_view bytes, std::string_view file_name, size_t* used,
                     const std::shared_ptr<void>& keep) {
    std::string why, fix;
    try {
        return read_container(bytes, used, keep);
    } catch (const runtime::UserError& error) {
        why = error.message.what;
        fix = error.message.fix;
    } catch (const std::bad_alloc&) { throw; } catch (const std::exception& error) {
        why = error.what();
    }
    if (fix.empty())
        fix =
            "the file is truncated, damaged or not one that dump() wrote: write or download it again";
    runtime::user_error({.what = cat("cannot read the model ", file_name), .why = why, .fix = fix},
                        runtime::ErrorKind::runtime);
}

}  // namespace megjit::jit
