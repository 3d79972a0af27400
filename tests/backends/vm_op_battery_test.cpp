// Every element-wise op, by dtype and placement: the eager virtual machine against the interpreter.
#include "tests/backends/vm_testing.h"
#include "tests/codegen/op_battery.h"

#include <gtest/gtest.h>

namespace megjit::cpu::testing { namespace {

using namespace codegen;

class VmOpBattery : public ::testing::TestWithParam<DType> {};

TEST_P(VmOpBattery, HasTheInterpretersBits) {
    register_all_ops();
    for (Placement placement : {Placement::contiguous, Placement::broadcast, Placement::strided})
        for (BatteryCase& entry : op_battery(GetParam(), placement))
            for (Case& c : entry.cases) {
                std::vector<std::vector<char>> outputs;
                std::vector<void*> pointers;
                for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
                    outputs.emplace_back(c.output_bytes(k) + 1);
                for (auto& output : outputs) pointers.push_back(output.data());
                prepare_vm(c.kernel, c.launch)
                    ->enqueue(runtime::inline_stream(), c.input_pointers().data(), pointers.data(),
                              nullptr);
                ASSERT_EQ(battery_fault_of(c, outputs, c.expected()), "")
                    << entry.name << "of " << c.launch.numel() << " elements";
            }
}

INSTANTIATE_TEST_SUITE_P(All, VmOpBattery, ::testing::ValuesIn(kScalarDTypes),
                         [](const auto& test) { return std::string(tag_of(test.param)); });

}}  // namespace megjit::cpu::testing
