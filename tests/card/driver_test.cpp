// What depends on the driver as a whole: its version, its end, and who unloads what.
#include <cstdlib>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

class Driver : public CardTest {};

TEST_F(Driver, CompilesThePtxThatItsVersionKnows) {
    const auto load_as = [](const std::string& version) {
        const std::string ptx = ".version " + version +
                                "\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n";
        Handle module = nullptr;
        return call("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str()));
    };
    EXPECT_EQ(load_as("9.9"), 0);  // any, until a version is asked for
    const auto of_driver = [&](const char* driver, const char* newest, const char* too_new) {
        setenv("MEGJIT_CARD_DRIVER", driver, 1);
        EXPECT_EQ(load_as(newest), 0) << driver;
        EXPECT_EQ(load_as(too_new), kUnsupportedPtx) << driver;
        EXPECT_EQ(last_fault(), std::string("PTX of version ") + too_new +
                                    "; the driver compiles up to " + newest);
        unsetenv("MEGJIT_CARD_DRIVER");
    };
    of_driver("12.4", "8.4", "8.5");
    of_driver("12.6", "8.5", "8.6");
    of_driver("12.9", "8.8", "9.0");
    of_driver("13.1", "9.1", "9.2");
}

TEST_F(Driver, UnloadsModulesWithTheirContext) {
    Handle module = nullptr, other = nullptr;
    const std::string ptx = kernel("", "ret;");
    CHECK_DRIVER("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str()));
    CHECK_DRIVER("cuDevicePrimaryCtxRetain", &other, 1);
    CHECK_DRIVER("cuCtxSetCurrent", other);
    EXPECT_DRIVER(kInvalidContext, "cuModuleUnload", module);
    EXPECT_EQ(last_fault(), "a module of card 0 is unloaded while card 1's context is current");
    CHECK_DRIVER("cuCtxSetCurrent", context_);
    CHECK_DRIVER("cuModuleUnload", module);
}

// In a process of its own: what was registered before cuInit runs after the driver's end.
TEST(DriverDeathTest, EndsBeforeWhatWasThereFirst) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            std::atexit([] {
                Handle context = nullptr;
                std::_Exit(call("cuCtxGetCurrent", &context));
            });
            call("cuInit", 0u);
            std::exit(0);
        },
        testing::ExitedWithCode(kDeinitialized), "");
}

}}  // namespace megjit::card_tests
