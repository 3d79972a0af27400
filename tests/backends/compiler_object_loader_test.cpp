// Objects that the compiler made, loaded without its own linker.
#include <gtest/gtest.h>

#include "codegen/object_loader.h"
#include "runtime/host/error.h"
#include "tests/backends/compiler_under_test.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

std::string object_of(const KernelIR& kernel) { return compiler().compile(kernel); }

TEST(ObjectLoader, KernelsGiveTheSameBits) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
        Case c = random_case(seed);
        const KernelFn fn = load_object(object_of(c.kernel));
        const auto expected = c.expected();
        std::vector<std::vector<char>> got;
        std::vector<void*> pointers;
        for (const auto& output : expected) got.emplace_back(output.size());
        for (auto& output : got) pointers.push_back(output.data());
        fn(c.input_pointers().data(), pointers.data(), c.launch.extents.data(),
           c.launch.strides.data(), 0, units(c.kernel, c.launch));
        for (size_t k = 0; k < got.size(); ++k) {
            const DType dtype = c.kernel.outputs[k].dtype;
            for (size_t i = 0; i + size_of(dtype) < got[k].size(); i += size_of(dtype))
                ASSERT_TRUE(same_value(dtype, got[k].data() + i, expected[k].data() + i))
                    << "seed " << seed << ", output " << k << ", byte " << i;
        }
    }
}

// mod has no instruction: the kernel calls fmodf, through a jump beside it.
TEST(ObjectLoader, KernelsCallWhatTheyMay) {
    KernelIR kernel;
    kernel.inputs = {{}};
    kernel.outputs = {{DType::f32}};
    kernel.results = {
        mod(Expr(&kernel.program, kernel.program.input(0, ScalarType::f32)), 3.0).id()};
    float x = -7.5f, y = 0;
    void *in = &x, *out = &y;
    const int64_t extent = 1, strides[] = {1, 1};
    load_object(object_of(kernel))(&in, &out, &extent, strides, 0, 1);
    const LaunchShape launch{{1}, {1, 1}};
    float expected = 0;
    void* wanted = &expected;
    interpret(kernel, launch, &in, &wanted);
    EXPECT_EQ(y, expected);
}

// Loaded or refused, and nothing of ours is touched; what was loaded is not run.
TEST(ObjectLoader, SurvivesChangedAndCutObjects) {
    const std::string object = object_of(random_case(3).kernel);
    int refused = 0;
    for (size_t at = 0; at < object.size(); at += 3) {
        for (const std::string& broken :
             {object.substr(0, at), object.substr(0, at) + static_cast<char>(object[at] ^ 0xff) +
                                        object.substr(at + 1)}) {
            try {
                load_object(broken);
            } catch (const runtime::DeviceError&) { ++refused; }
        }
    }
    EXPECT_GT(refused, static_cast<int>(object.size() / 3));
}

}}  // namespace megjit::codegen
