#include "jit/graph_file.h"

#include <cstring>

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
    model.inputs = {"x"};
    model.outputs = {"y"};
    model.node_names = {"x", "w", "", "MUL", "ADD"};
    model.value_names = {"x", "w", "", "", "y"};
    model.params = {w};
    model.metadata = std::string("any\0bytes", 9);
    return model;
}

// The checksum after a change: what somebody who means harm would write.
std::string sealed(std::string bytes) {
    const uint64_t total = bytes.size();
    std::memcpy(bytes.data() + 16, &total, 8);
    const uint64_t sum = checksum(std::string_view(bytes).substr(32));
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
    const Model again = from_bytes(to_bytes(model), "model.mge");
    EXPECT_EQ(print(again.graph), print(model.graph));
    EXPECT_EQ(again.inputs, model.inputs);
    EXPECT_EQ(again.outputs, model.outputs);
    EXPECT_EQ(again.node_names, model.node_names);
    EXPECT_EQ(again.value_names, model.value_names);
    EXPECT_EQ(again.params, model.params);
    EXPECT_EQ(again.metadata, model.metadata);
}

TEST_F(GraphFile, TheSameModelGivesTheSameBytes) {
    EXPECT_EQ(to_bytes(scaled()), to_bytes(scaled()));
}

TEST_F(GraphFile, AReadModelComputesTheSame) {
    const Model model = from_bytes(to_bytes(scaled()), "model.mge");
    const TensorRef x = floats({4}, {1, 1, 2, 2});
    EXPECT_EQ(values_of(interpret(model.graph, {&x, 1})[0]), (std::vector<float>{2, 3, 7, 9}));
}

TEST_F(GraphFile, ContainersMayFollowOneAnother) {
    const std::string one = to_bytes(scaled());
    size_t used = 0;
    from_bytes(one + one, "model.mge", &used);
    EXPECT_EQ(used, one.size());
}

TEST_F(GraphFile, EveryTruncationIsRefusedWithTheNameOfTheFile) {
    const std::string bytes = to_bytes(scaled());
    for (size_t size = 0; size < bytes.size(); ++size) {
        const std::string message = refusal(std::string_view(bytes).substr(0, size));
        ASSERT_TRUE(contains(message, "cannot read the model model.mge"))
            << size << ": " << message;
    }
}

TEST_F(GraphFile, EveryChangedByteIsRefused) {
    const std::string bytes = to_bytes(scaled());
    for (size_t i = 0; i < bytes.size(); ++i) {
        std::string changed = bytes;
        changed[i] ^= 0x20;
        ASSERT_NE(refusal(changed), "accepted") << "byte " << i;
    }
}

TEST_F(GraphFile, ChangedBytesBehindARightChecksumDoNoHarm) {
    const std::string bytes = to_bytes(scaled());
    for (size_t i = 32; i < bytes.size(); ++i)
        for (char value : {'\0', '9', '\x7f', '\xff'}) {
            std::string changed = bytes;
            changed[i] = value;
            refusal(sealed(changed));  // accepted or refused, never a crash
        }
}

TEST_F(GraphFile, AnotherSchemaIsRefused) {
    std::string bytes = to_bytes(scaled());
    bytes[8] = 2;
    EXPECT_TRUE(contains(refusal(bytes), "it has schema 2, this version reads 1"));
}

TEST_F(GraphFile, ALengthBeyondTheEndIsRefusedBeforeAnythingIsAllocated) {
    std::string bytes = to_bytes(scaled());
    const uint64_t huge = uint64_t{1} << 60;
    std::memcpy(bytes.data() + 32, &huge, 8);
    EXPECT_TRUE(contains(refusal(sealed(bytes)), "bytes were expected at 40"));
}

// Refused was only "= const ", and the parser reads the others alike: a file of some bytes could
// ask for any memory.
TEST_F(GraphFile, AConstantInTheTextIsRefusedHoweverItIsWritten) {
    const std::string bytes = to_bytes(scaled());
    for (std::string_view written :
         {"= const 1", "=const  1", "=  const ", "= fused 1", "=fused  1"}) {
        std::string changed = bytes;
        changed.replace(changed.find("= input 1"), 9, written);
        EXPECT_TRUE(contains(refusal(sealed(changed)), "' may not stand here")) << written;
    }
}

TEST_F(GraphFile, ATypeThatInferenceDoesNotGiveIsRefused) {
    std::string bytes = to_bytes(scaled());
    bytes.replace(bytes.find("= mul"), 5, "= neg");
    EXPECT_NE(refusal(sealed(bytes)), "accepted");
}

TEST_F(GraphFile, SomethingElseIsNoModel) {
    EXPECT_TRUE(contains(refusal(std::string(100, 'x')), "does not begin like a dumped model"));
}

}}  // namespace megjit::jit
