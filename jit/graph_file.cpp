#include "jit/graph_file.h"

#include <bit>
#include <cstring>
#include <unordered_set>

#include "runtime/core/device.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::cat;

static_assert(std::endian::native == std::endian::little,
              "the container holds numbers as they lie in memory");

constexpr std::string_view kMagic = "MEGJITGF";
constexpr uint32_t kSchema = 1;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kTotalAt = 16, kChecksumAt = 24;
constexpr size_t kAlign = 64;

class Writer {
public:
    template <class T>
    void number(T value) {
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void text(std::string_view value) {
        number<uint64_t>(value.size());
        bytes += value;
    }
    void texts(const std::vector<std::string>& list) {
        number<uint64_t>(list.size());
        for (const std::string& item : list) text(item);
    }
    void align() { bytes.resize((bytes.size() + kAlign - 1) / kAlign * kAlign); }
    template <class T>
    void patch(size_t where, T value) {
        std::memcpy(bytes.data() + where, &value, sizeof value);
    }

    std::string bytes;
};

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
    void align() { take((kAlign - at_ % kAlign) % kAlign); }
    size_t at() const { return at_; }

private:
    std::string_view bytes_;
    size_t at_ = 0;
};

bool is_constant(const Node& node) { return node.kind == NodeKind::constant; }

// The graph with constants as inputs behind the `inputs` real ones; ids stay.
Graph without_constants(const Graph& graph, size_t inputs) {
    Rewriter rewrite(graph);
    int slot = static_cast<int>(inputs);
    for (const Node& node : graph.nodes()) {
        if (is_constant(node))
            rewrite.replace(node.outputs[0],
                            rewrite.to.add_input(graph.type(node.outputs[0]), slot++));
        else rewrite.copy(node);
    }
    return rewrite.finish();
}

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

struct StoredConstant {
    uint64_t bytes = 0;
    std::string_view data = {};
};

Graph with_constants(const Graph& skeleton, size_t inputs,
                     const std::vector<StoredConstant>& pieces) {
    Rewriter rewrite(skeleton);
    for (const Node& node : skeleton.nodes()) {
        if (node.kind != NodeKind::input || static_cast<size_t>(node.slot) < inputs) {
            rewrite.copy(node);
            continue;
        }
        const Type& type = skeleton.type(node.outputs[0]);
        const StoredConstant& piece = pieces[static_cast<size_t>(node.slot) - inputs];
        if (type.bytes() != piece.bytes)
            Reader::fail(cat("a constant ", to_string(type), " has ", piece.bytes, " bytes"));
        TensorRef tensor =
            runtime::tensor_from_host(runtime::host_device(), type, piece.data.data());
        rewrite.replace(node.outputs[0], rewrite.to.add_constant(std::move(tensor)));
    }
    return rewrite.finish();
}

Model read_body(Reader& reader) {
    Model model;
    const Graph skeleton =
        parse_plain_graph(reader.text());  // constants and kernels never stand in the text
    model.inputs = reader.texts();
    model.outputs = reader.texts();
    model.node_names = reader.texts();
    model.value_names = reader.texts();
    const uint64_t params = reader.count(sizeof(uint32_t));
    for (uint64_t i = 0; i < params; ++i)
        model.params.push_back(static_cast<ValueId>(reader.number<uint32_t>()));
    model.metadata = reader.text();
    model.cases = reader.text();
    std::vector<StoredConstant> pieces(reader.count(sizeof(uint64_t)));
    for (StoredConstant& piece : pieces) piece.bytes = reader.number<uint64_t>();
    for (StoredConstant& piece : pieces) {
        reader.align();
        piece.data = reader.take(piece.bytes);
    }
    const size_t slots = checked_slots(skeleton);
    if (slots != model.inputs.size() + pieces.size())
        Reader::fail(cat("its graph has ", slots, " inputs, its names tell of ",
                         model.inputs.size(), " and ", pieces.size(), " constants"));
    if (model.outputs.size() != skeleton.outputs.size())
        Reader::fail("it names other outputs than its graph has");
    if (model.node_names.size() != skeleton.nodes().size() ||
        model.value_names.size() != skeleton.value_count())
        Reader::fail("it does not name each node and value");
    model.graph = with_constants(skeleton, model.inputs.size(), pieces);
    if (std::string fault = fault_of(model.graph); !fault.empty()) Reader::fail(fault);
    for (ValueId id : model.params)
        if (at(id) >= model.graph.value_count() || !is_constant(model.graph.producer(id)))
            Reader::fail("a parameter is not a constant");
    return model;
}

Model read_container(std::string_view bytes, size_t* used) {
    if (bytes.size() < kHeaderBytes)
        Reader::fail(cat("it has ", bytes.size(), " bytes, less than the header"));
    if (bytes.substr(0, kMagic.size()) != kMagic)
        Reader::fail("it does not begin like a dumped model");
    Reader header(bytes.substr(kMagic.size(), kHeaderBytes - kMagic.size()));
    const auto schema = header.number<uint32_t>();
    if (schema != kSchema)
        Reader::fail(cat("it has schema ", schema, ", this version reads ", kSchema));
    if (header.number<uint32_t>() != 0)
        Reader::fail("it has flags that this version does not know");
    const auto total = header.number<uint64_t>();
    if (total < kHeaderBytes || total > bytes.size())
        Reader::fail(cat("it has ", bytes.size(), " bytes, its header says ", total));
    const std::string_view container = bytes.substr(0, total);
    if (header.number<uint64_t>() != checksum(container.substr(kHeaderBytes)))
        Reader::fail("its checksum is wrong");
    if (used) *used = total;
    Reader reader(container);
    reader.take(kHeaderBytes);
    Model model = read_body(reader);
    if (reader.at() != total)
        Reader::fail(cat(total - reader.at(), " bytes follow its last constant"));
    return model;
}

}  // namespace

size_t Model::constant_bytes() const {
    size_t bytes = 0;
    for (const Node& node : graph.nodes())
        if (is_constant(node)) bytes += node.constant->type().bytes();
    return bytes;
}

// Multiply and rotate, eight bytes at a time: finds accidents, keeps nobody out.
uint64_t checksum(std::string_view bytes) {
    constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
    uint64_t sum = bytes.size() * kOdd;
    for (size_t i = 0; i < bytes.size(); i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
        sum = std::rotl((sum ^ word) * kOdd, 29);
    }
    return sum ^ (sum >> 32);
}

std::string to_bytes(const Model& model) {
    Writer writer;
    writer.bytes = kMagic;
    writer.number<uint32_t>(kSchema);
    writer.number<uint32_t>(0);
    writer.number<uint64_t>(0);
    writer.number<uint64_t>(0);
    writer.text(print(without_constants(model.graph, model.inputs.size())));
    writer.texts(model.inputs);
    writer.texts(model.outputs);
    writer.texts(model.node_names);
    writer.texts(model.value_names);
    writer.number<uint64_t>(model.params.size());
    for (ValueId id : model.params) writer.number<uint32_t>(static_cast<uint32_t>(id));
    writer.text(model.metadata);
    writer.text(model.cases);
    std::vector<const runtime::Tensor*> constants;
    for (const Node& node : model.graph.nodes())
        if (is_constant(node)) constants.push_back(node.constant.get());
    writer.number<uint64_t>(constants.size());
    for (const runtime::Tensor* tensor : constants) writer.number<uint64_t>(tensor->type().bytes());
    for (const runtime::Tensor* tensor : constants) {
        writer.align();
        writer.bytes.append(tensor->as<char>(), tensor->type().bytes());
    }
    writer.patch<uint64_t>(kTotalAt, writer.bytes.size());
    writer.patch<uint64_t>(kChecksumAt,
                           checksum(std::string_view(writer.bytes).substr(kHeaderBytes)));
    return std::move(writer.bytes);
}

Model from_bytes(std::string_view bytes, std::string_view file_name, size_t* used) {
    std::string why, fix;
    try {
        return read_container(bytes, used);
    } catch (const runtime::UserError& error) {
        why = error.message.what;
        fix = error.message.fix;
    } catch (const std::exception& error) { why = error.what(); }
    if (fix.empty())
        fix =
            "the file is truncated, damaged or not one that dump() wrote: write or download it again";
    runtime::user_error({.what = cat("cannot read the model ", file_name), .why = why, .fix = fix},
                        runtime::ErrorKind::runtime);
}

}  // namespace megjit::jit
