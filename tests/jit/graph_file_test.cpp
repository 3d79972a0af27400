#include "jit/file/graph_file.h"

#include <cstring>

#include "runtime/host/checksum.h"
#include "runtime/host/error.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using GraphFile = World;

// y = x * w + 1 with w of 4 numbers
Model scaled() {
    Model model;
    const Type type{.dtype = runtime::DType::f32, .shape = {4}};
    const ValueId x = model.graph.add_input(type, 0);
    const ValueId w = model.graph.add_constant(floats({4}, {1, 2, 3, 4}));
    const ValueId one = model.graph.add_constant(floats({}, {1}));
    const ValueId product =
        model.graph.add({.op = &runtime::find_op("mul"), .inputs = {x, w}}, {&type, 1})[0];
    model.graph.outputs =
        model.graph.add({.op = &runtime::find_op("add"), .inputs = {product, one}}, {&type, 1});
    model.input_names = {"x"};
    model.output_names = {"y"};
    model.node_names = {"x", "w", "", "MUL", "ADD"};
    model.value_names = {"x", "w", "", "", "y"};
    model.params = {w};
    model.metadata = std::string("any\0bytes", 9);
    return model;
}

std::string bytes_of(const Model& model) {
    return to_bytes({.functions = {std::make_shared<const Model>(model)}});
}

Model model_from(std::string_view bytes) { return *from_bytes(bytes, "model.mge").functions[0]; }

// total = total + x; and a function that draws two keys and has the total as a constant's twin.
ModelFile with_states() {
    const Type type{.dtype = runtime::DType::f32, .shape = {4}};
    const Type keys{.dtype = runtime::DType::i32, .shape = {2, 4}};
    Model add, draw;
    add.name = "add";
    add.opt_level = 3;
    add.exact = true;
    const ValueId x = add.graph.add_input(type, 0), total = add.graph.add_input(type, 1);
    add.graph.outputs =
        add.graph.add({.op = &runtime::find_op("add"), .inputs = {total, x}}, {&type, 1});
    add.input_names = {"x"};
    add.inputs = {{}, {.kind = Input::Kind::state, .state = 0}};
    add.outputs = {{.kind = Output::Kind::state}};
    draw.name = "draw";
    const ValueId key = draw.graph.add_input(keys, 0), same = draw.graph.add_input(type, 1);
    draw.graph.outputs = {key, same};
    draw.output_names = {"keys", "total"};
    draw.inputs = {{.kind = Input::Kind::key, .state = 1},
                   {.kind = Input::Kind::captured, .state = 0}};
    for (Model* model : {&add, &draw}) {
        model->node_names.resize(model->graph.nodes().size());
        model->value_names.resize(model->graph.value_count());
    }
    const uint64_t key_words[] = {7, 1};
    return {
        {std::make_shared<const Model>(add), std::make_shared<const Model>(draw)},
        {{.name = "total", .value = floats({4}, {1, 2, 3, 4})},
         {.name = "random",
          .is_generator = true,
          .value = runtime::tensor_from_host(
              runtime::host_device(), {.dtype = runtime::DType::i32, .shape = {4}}, key_words)}}};
}

// The checksum after a change: what somebody who means harm would write.
std::string sealed(std::string bytes) {
    const uint64_t total = bytes.size();
    std::memcpy(bytes.data() + 16, &total, 8);
    const uint64_t sum = runtime::checksum(std::string_view(bytes).substr(32));
    std::memcpy(bytes.data() + 24, &sum, 8);
    return bytes;
}

std::string refusal(std::string_view bytes) {
    try {
        from_bytes(bytes, "model.mge");
        return "accepted";
    } catch (const runtime::UserError& error) {
        EXPECT_EQ(error.kind, runtime::ErrorKind::runtime);
        return error.what();
    }
}

TEST_F(GraphFile, ReadingUndoesWriting) {
    const Model model = scaled();
    const Model again = model_from(bytes_of(model));
    EXPECT_EQ(print(again.graph), print(model.graph));
    EXPECT_EQ(again.input_names, model.input_names);
    EXPECT_EQ(again.output_names, model.output_names);
    EXPECT_EQ(again.node_names, model.node_names);
    EXPECT_EQ(again.value_names, model.value_names);
    EXPECT_EQ(again.params, model.params);
    EXPECT_EQ(again.metadata, model.metadata);
}

TEST_F(GraphFile, TheSameModelGivesTheSameBytes) {
    EXPECT_EQ(bytes_of(scaled()), bytes_of(scaled()));
}

TEST_F(GraphFile, AReadModelComputesTheSame) {
    const Model model = model_from(bytes_of(scaled()));
    const TensorRef x = floats({4}, {1, 1, 2, 2});
    EXPECT_EQ(values_of(interpret(model.graph, {&x, 1})[0]), (std::vector<float>{2, 3, 7, 9}));
}

TEST_F(GraphFile, ContainersMayFollowOneAnother) {
    const std::string one = bytes_of(scaled());
    size_t used = 0;
    from_bytes(one + one, "model.mge", &used);
    EXPECT_EQ(used, one.size());
}

TEST_F(GraphFile, EveryTruncationIsRefusedWithTheNameOfTheFile) {
    const std::string bytes = bytes_of(scaled());
    for (size_t size = 0; size < bytes.size(); ++size) {
        const std::string message = refusal(std::string_view(bytes).substr(0, size));
        ASSERT_TRUE(contains(message, "cannot read the model model.mge"))
            << size << ": " << message;
    }
}

TEST_F(GraphFile, EveryChangedByteIsRefused) {
    const std::string bytes = bytes_of(scaled());
    for (size_t i = 0; i < bytes.size(); ++i) {
        std::string changed = bytes;
        changed[i] ^= 0x20;
        ASSERT_NE(refusal(changed), "accepted") << "byte " << i;
    }
}

TEST_F(GraphFile, ChangedBytesBehindARightChecksumDoNoHarm) {
    const std::string bytes = bytes_of(scaled());
    for (size_t i = 32; i < bytes.size(); ++i)
        for (char value : {'\0', '9', '\x7f', '\xff'}) {
            std::string changed = bytes;
            changed[i] = value;
            refusal(sealed(changed));  // accepted or refused, never a crash
        }
}

TEST_F(GraphFile, ALaterSchemaIsToldApartFromDamage) {
    std::string bytes = bytes_of(scaled());
    bytes[8] = 6;
    EXPECT_TRUE(contains(refusal(bytes), "it has schema 6, this version reads those up to 5"));
    EXPECT_TRUE(contains(refusal(bytes), "fix: update megjit"));
    bytes[8] = 0;
    EXPECT_TRUE(contains(refusal(bytes), "damaged"));
}

TEST_F(GraphFile, FunctionsAndStatesComeBack) {
    const ModelFile again = from_bytes(to_bytes(with_states()), "model.mge");
    ASSERT_EQ(again.functions.size(), 2u);
    EXPECT_EQ(again.functions[0]->name, "add");
    EXPECT_EQ(again.functions[0]->opt_level, 3);
    EXPECT_TRUE(again.functions[0]->exact);
    EXPECT_EQ(again.functions[0]->inputs[1].kind, Input::Kind::state);
    EXPECT_EQ(again.functions[0]->outputs, with_states().functions[0]->outputs);
    EXPECT_EQ(again.functions[1]->inputs[0].kind, Input::Kind::key);
    EXPECT_EQ(again.functions[1]->inputs[0].state, 1u);
    EXPECT_EQ(again.states[0].name, "total");
    EXPECT_EQ(values_of(again.states[0].value), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_TRUE(again.states[1].is_generator);
    EXPECT_EQ(to_bytes(again), to_bytes(with_states()));
}

TEST_F(GraphFile, ATensorThatFunctionsShareIsWrittenOnce) {
    const auto model = std::make_shared<const Model>(scaled());
    auto other = std::make_shared<Model>(*model);
    other->name = "other";
    const ModelFile twice{.functions = {model, other}};
    const ModelFile again = from_bytes(to_bytes(twice), "model.mge");
    const auto constant = [&](size_t function) {
        const Model& model = *again.functions[function];
        return model.graph.producer(model.params[0]).constant;
    };
    EXPECT_EQ(constant(0), constant(1));
}

TEST_F(GraphFile, ChangedStatesBehindARightChecksumDoNoHarm) {
    const std::string bytes = to_bytes(with_states());
    for (size_t size = 32; size < bytes.size(); ++size) refusal(sealed(bytes.substr(0, size)));
    for (size_t i = 32; i < bytes.size(); ++i)
        for (char value : {'\0', '\1', '9', '\xff'}) {
            std::string changed = bytes;
            changed[i] = value;
            refusal(sealed(changed));  // accepted or refused, never a crash
        }
}

TEST_F(GraphFile, AStateIsUsedAsWhatItIs) {
    const auto refused = [](const auto& change) {
        ModelFile file = with_states();
        Model add = *file.functions[0], draw = *file.functions[1];
        change(add, draw, file);
        file.functions = {std::make_shared<const Model>(add), std::make_shared<const Model>(draw)};
        return refusal(to_bytes(file));
    };
    EXPECT_TRUE(contains(refused([](Model&, Model& draw, ModelFile&) { draw.inputs[1].state = 1; }),
                         "the state random is not used as what it is"));
    EXPECT_TRUE(contains(refused([](Model& add, Model&, ModelFile&) { add.name = "draw"; }),
                         "two functions are called draw"));
    EXPECT_TRUE(
        contains(refused([](Model&, Model&, ModelFile& file) { file.states[1].name = "total"; }),
                 "two states are called total"));
    EXPECT_TRUE(contains(
        refused([](Model& add, Model&, ModelFile&) { add.inputs[1].kind = Input::Kind::captured; }),
        "it names other outputs than its graph has"));
    EXPECT_TRUE(contains(refused([](Model&, Model&, ModelFile& file) {
        file.states.push_back({.name = "left", .value = floats({1}, {0})});
    }),
                         "no function has the state left"));
}

TEST_F(GraphFile, ALengthBeyondTheEndIsRefusedBeforeAnythingIsAllocated) {
    std::string bytes = bytes_of(scaled());
    const uint64_t huge = uint64_t{1} << 60;
    std::memcpy(bytes.data() + 48, &huge, 8);  // of the first function's name
    EXPECT_TRUE(contains(refusal(sealed(bytes)), "bytes were expected at 56"));
}

// Refused was only "= const ", and the parser reads the others alike: a file of some bytes could
// ask for any memory.
TEST_F(GraphFile, AConstantInTheTextIsRefusedHoweverItIsWritten) {
    const std::string bytes = bytes_of(scaled());
    for (std::string_view written :
         {"= const 1", "=const  1", "=  const ", "= fused 1", "=fused  1"}) {
        std::string changed = bytes;
        changed.replace(changed.find("= input 1"), 9, written);
        EXPECT_TRUE(contains(refusal(sealed(changed)), "' may not stand here")) << written;
    }
}

TEST_F(GraphFile, ATypeThatInferenceDoesNotGiveIsRefused) {
    std::string bytes = bytes_of(scaled());
    bytes.replace(bytes.find("= mul"), 5, "= neg");
    EXPECT_NE(refusal(sealed(bytes)), "accepted");
}

TEST_F(GraphFile, SomethingElseIsNoModel) {
    EXPECT_TRUE(contains(refusal(std::string(100, 'x')), "does not begin like a dumped model"));
}

}}  // namespace megjit::jit
