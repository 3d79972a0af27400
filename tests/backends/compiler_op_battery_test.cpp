// Every element-wise op, by dtype and placement, against the interpreter.
#include <gtest/gtest.h>

#include "codegen/expand_math.h"
#include "tests/backends/compiler_under_test.h"
#include "tests/codegen/op_battery.h"

namespace megjit::codegen { namespace {

class OpBattery : public testing::TestWithParam<std::tuple<DType, Placement>> {};

TEST_P(OpBattery, HasTheInterpretersBits) {
    register_all_ops();
    for (BatteryCase& entry : op_battery(std::get<0>(GetParam()), std::get<1>(GetParam()))) {
        // Functions of float64 are the C library's.
        if (!can_expand_math(entry.cases[0].kernel.program)) continue;
        const KernelFn fn = compile(entry.cases[0].kernel);
        for (Case& c : entry.cases) {
            std::vector<std::vector<char>> outputs;
            std::vector<void*> pointers;
            for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
                outputs.emplace_back(c.output_bytes(k) + 1);
            for (auto& output : outputs) pointers.push_back(output.data());
            fn(c.input_pointers().data(), pointers.data(), c.launch.extents.data(),
               c.launch.strides.data(), 0, units(c.kernel, c.launch));
            ASSERT_EQ(battery_fault_of(c, outputs, c.expected()), "")
                << entry.name << "of " << c.launch.numel() << " elements\n"
                << print(c.kernel);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, OpBattery,
                         testing::Combine(testing::ValuesIn(kScalarDTypes),
                                          testing::Values(Placement::contiguous,
                                                          Placement::broadcast,
                                                          Placement::strided)),
                         [](const auto& test) -> std::string {
                             return cat(tag_of(std::get<0>(test.param)), "_",
                                        name_of(std::get<1>(test.param)));
                         });

}}  // namespace megjit::codegen
