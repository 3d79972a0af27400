#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "jit/file/graph_file.h"
#include "jit/file/graph_file_layout.h"
#include "runtime/host/checksum.h"
#include "runtime/host/debug.h"

namespace megjit::jit {
namespace {

using namespace graph_file;

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
    void flag(bool value) { number<uint32_t>(value); }
    void data(const runtime::Tensor& tensor) {
        bytes.resize((bytes.size() + kAlign - 1) / kAlign * kAlign);
        bytes.append(tensor.as<char>(), tensor.type().bytes());
    }
    template <class T>
    void patch(size_t where, T value) {
        std::memcpy(bytes.data() + where, &value, sizeof value);
    }

    std::string bytes;
};

// The graph with constants as inputs after the others; ids stay.
Graph without_constants(const Model& model) {
    Rewriter rewrite(model.graph);
    auto slot = static_cast<int>(model.input_names.size() + model.states().size());
    for (const Node& node : model.graph.nodes()) {
        if (is_constant(node))
            rewrite.replace(node.outputs[0],
                            rewrite.to.add_input(model.graph.type(node.outputs[0]), slot++));
        else rewrite.copy(node);
    }
    return rewrite.finish();
}

// Lists constants, each once.
class ConstantTable {
public:
    uint32_t add(const runtime::Tensor& tensor) {
        const auto [place, is_new] =
            places_.emplace(tensor.id(), static_cast<uint32_t>(tensors_.size()));
        if (is_new) tensors_.push_back(&tensor);
        return place->second;
    }
    void write(Writer& writer) const {
        writer.number<uint64_t>(tensors_.size());
        for (const runtime::Tensor* tensor : tensors_)
            writer.number<uint64_t>(tensor->type().bytes());
        for (const runtime::Tensor* tensor : tensors_) writer.data(*tensor);
    }

private:
    std::vector<const runtime::Tensor*> tensors_;
    std::unordered_map<uint64_t, uint32_t> places_;  // by id
};

void write_function(Writer& writer, const Model& model, ConstantTable& constants) {
    writer.text(model.name);
    writer.number<uint32_t>(static_cast<uint32_t>(model.opt_level));
    writer.flag(model.exact);
    writer.flag(model.follows_batch);
    writer.number<uint64_t>(model.memory_limit);
    writer.number<uint64_t>(model.order.size());
    for (uint32_t step : model.order) writer.number<uint32_t>(step);
    writer.text(print(without_constants(model)));
    writer.texts(model.input_names);
    writer.texts(model.output_names);
    writer.texts(model.node_names);
    writer.texts(model.value_names);
    writer.number<uint64_t>(model.params.size());
    for (ValueId id : model.params) writer.number<uint32_t>(static_cast<uint32_t>(id));
    writer.text(model.metadata);
    writer.text(model.cases);
    writer.number<uint64_t>(model.states().size());
    for (const Input& input : model.states()) {
        writer.number<uint32_t>(input.state);
        writer.flag(input.kind == Input::Kind::state);
    }
    writer.number<uint32_t>(static_cast<uint32_t>(model.count(Output::Kind::count)));
    std::vector<uint32_t> counted;
    for (uint32_t i = 0; i < model.outputs.size(); ++i)
        if (model.outputs[i].counted_by >= 0) counted.push_back(i);
    writer.number<uint64_t>(counted.size());
    for (const uint32_t output : counted) {
        writer.number<uint32_t>(output);
        writer.number<uint32_t>(static_cast<uint32_t>(model.outputs[output].counted_by));
    }
    std::vector<uint32_t> indices;
    for (const Node& node : model.graph.nodes())
        if (is_constant(node)) indices.push_back(constants.add(*node.constant));
    writer.number<uint64_t>(indices.size());
    for (uint32_t index : indices) writer.number<uint32_t>(index);
}

// MEGJIT_DUMP=file writes the functions, and a sum of all bytes.
std::string text_of(const ModelFile& file, std::string_view bytes) {
    std::string text =
        runtime::cat(bytes.size(), " bytes, checksum ", runtime::checksum(bytes), "\n");
    for (const auto& function : file.functions)
        text += runtime::cat(function->name, "\n", print(function->graph));
    return text;
}

}  // namespace

std::string to_bytes(const ModelFile& file) {
    Writer writer;
    ConstantTable constants;
    writer.bytes = kMagic;
    writer.number<uint32_t>(kSchema);
    writer.number<uint32_t>(0);
    writer.number<uint64_t>(0);
    writer.number<uint64_t>(0);
    writer.number<uint64_t>(file.states.size());
    for (const State& state : file.states) {
        writer.text(state.name);
        writer.flag(state.is_generator);
        writer.number<uint32_t>(constants.add(*state.value));
    }
    writer.number<uint64_t>(file.functions.size());
    for (const auto& function : file.functions) write_function(writer, *function, constants);
    constants.write(writer);
    writer.number<uint64_t>(file.kernels.size());
    for (const codegen::CacheEntry& kernel : file.kernels) {
        writer.text(kernel.key);
        writer.text(kernel.object);
    }
    writer.number<uint64_t>(file.weights.size());
    for (const PackedWeight& weight : file.weights) {
        writer.text(weight.key);
        writer.number<uint64_t>(weight.bytes->type().bytes());
    }
    for (const PackedWeight& weight : file.weights) writer.data(*weight.bytes);
    writer.patch<uint64_t>(kTotalAt, writer.bytes.size());
    writer.patch<uint64_t>(kChecksumAt,
                           runtime::checksum(std::string_view(writer.bytes).substr(kHeaderBytes)));
    runtime::debug().dump("file", {{".txt", [&] { return text_of(file, writer.bytes); }}});
    return std::move(writer.bytes);
}

}  // namespace megjit::jit
