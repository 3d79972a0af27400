#include "codegen/tuning.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "runtime/host/parallel.h"

namespace megjit::codegen { namespace {

namespace fs = std::filesystem;

class TimingsTest : public testing::Test {
protected:
    TimingsTest() {
        std::string name = fs::temp_directory_path() / "megjit-timings-XXXXXX";
        folder_ = ::mkdtemp(name.data());
    }
    ~TimingsTest() override { fs::remove_all(folder_); }

    fs::path folder_;
};

TEST_F(TimingsTest, AreThereInTheNextProcess) {
    EXPECT_FALSE(Timings(folder_).find("a product"));
    Timings(folder_).keep("a product", {{"library", 2e-3}, {"tiles", 1.5e-7}});
    Timings later(folder_);
    EXPECT_TRUE(later.all().empty());
    const std::optional<Timing> found = later.find("a product");
    ASSERT_TRUE(found);
    EXPECT_DOUBLE_EQ(found->at("library"), 2e-3);
    EXPECT_DOUBLE_EQ(found->at("tiles"), 1.5e-7);
    EXPECT_FALSE(later.find("another product"));
    EXPECT_EQ(later.all().size(), 1u);
}

TEST_F(TimingsTest, WhatAnotherProcessMeasuresMeanwhileChangesNothing) {
    Timings running(folder_);
    EXPECT_FALSE(running.find("a product"));
    Timings(folder_).keep("a product", {{"library", 2}, {"tiles", 1}});
    EXPECT_FALSE(running.find("a product"));
}

TEST_F(TimingsTest, OfAnotherNumberOfThreadsAreNotFound) {
    const int threads = runtime::thread_count();
    Timings(folder_).keep("a product", {{"library", 2}, {"tiles", 1}});
    runtime::set_thread_count(threads + 1);
    const bool is_found = Timings(folder_).find("a product").has_value();
    runtime::set_thread_count(threads);
    EXPECT_FALSE(is_found);
    EXPECT_TRUE(Timings(folder_).find("a product"));
}

TEST_F(TimingsTest, ThatAreNoTimesAreNotTaken) {
    Timings(folder_).keep("negative", {{"library", -1}, {"tiles", 1}});
    Timings(folder_).keep("no number", {{"library", std::nan("")}, {"tiles", 1}});
    EXPECT_FALSE(Timings(folder_).find("negative"));
    EXPECT_FALSE(Timings(folder_).find("no number"));
}

}}  // namespace megjit::codegen
