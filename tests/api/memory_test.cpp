// What libmegjit asks the system's allocator for: nothing from the second run on, and where there
// is no memory, at any point, an error and no leak. The functions of malloc are this program's, for
// all libraries.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "megjit/megjit.hpp"

namespace {

std::atomic<long> asked = 0, living = 0;
// This thread gets so many more blocks, then none once; below 0: all.
thread_local long left = -1;

bool may_have() {
    ++asked;
    if (left < 0) return true;
    if (left-- == 0) return false;
    return true;
}

template <class Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void* counted(void* block) {
    if (block) ++living;
    return block;
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
    static auto* const real = next<void*(size_t)>("malloc");
    return may_have() ? counted(real(bytes)) : nullptr;
}
void* aligned_alloc(size_t alignment, size_t bytes) {
    static auto* const real = next<void*(size_t, size_t)>("aligned_alloc");
    return may_have() ? counted(real(alignment, bytes)) : nullptr;
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
    static auto* const real = next<int(void**, size_t, size_t)>("posix_memalign");
    if (!may_have()) return ENOMEM;
    const int error = real(block, alignment, bytes);
    if (!error) ++living;
    return error;
}
void free(void* block) {
    static auto* const real = next<void(void*)>("free");
    if (block) --living;
    real(block);
}

}  // extern "C"

namespace {

std::string path_of(const std::string& name) { return MEGJIT_MODELS "/" + name + ".dump"; }

megjit_tensor* borrowed(float* numbers, const megjit_tensor_info& info) {
    megjit_tensor* tensor = nullptr;
    megjit::check(
        megjit_tensor_borrow(info.dtype, info.rank, info.shape, nullptr, numbers, &tensor));
    return tensor;
}

TEST(Memory, RunsAfterTheFirstAskForNone) {
    const megjit::Model model(path_of("chain"));
    megjit_context* context = nullptr;
    megjit_tensor_info info{};
    megjit::check(megjit_context_create(model.handle(), &context));
    megjit::check(megjit_model_input(model.handle(), 0, &info));
    std::array<float, 1024> x{}, y{};
    const megjit_tensor* const inputs[] = {borrowed(x.data(), info)};
    megjit_tensor* outputs[] = {borrowed(y.data(), info)};
    megjit_named_tensor in = {"x", const_cast<megjit_tensor*>(inputs[0])}, out = {"y", outputs[0]};
    megjit::check(megjit_run(context, inputs, 1, outputs, 1));
    const long before = asked;
    for (int i = 0; i < 100; ++i) {
        megjit::check(megjit_run(context, inputs, 1, outputs, 1));
        megjit::check(megjit_run_named(context, &in, 1, &out, 1));
    }
    EXPECT_EQ(asked - before, 0);
    EXPECT_EQ(y[0], 1);  // exp(-0)
    megjit_tensor_free(outputs[0]);
    megjit_tensor_free(in.tensor);
    megjit_context_free(context);
}

// Loads, runs and reads a report, with so many blocks; frees what there is then.
megjit_status use(const char* path, long refused) {
    megjit_model* model = nullptr;
    megjit_context* context = nullptr;
    std::array<megjit_tensor*, 5> tensors{};
    std::array<char, 64> text{};
    const auto all = [&]() -> megjit_status {
        size_t outputs = 0, needed = 0;
        void* numbers = nullptr;
        megjit_tensor_info info{};
        megjit_status status = megjit_model_load(path, nullptr, &model);
        if (!status) status = megjit_context_create(model, &context);
        if (!status) status = megjit_model_input(model, 0, &info);
        if (!status) status = megjit_tensor_create(info.dtype, info.rank, info.shape, &tensors[0]);
        if (!status) status = megjit_tensor_data(tensors[0], &numbers);
        if (!status) std::memset(numbers, 0, info.bytes);
        if (!status) status = megjit_model_output_count(model, &outputs);
        if (!status) status = megjit_run(context, &tensors[0], 1, &tensors[1], outputs);
        if (!status) status = megjit_model_json(model, "plan", text.data(), text.size(), &needed);
        return status;
    };
    left = refused;
    const megjit_status status = all();
    left = -1;
    for (megjit_tensor* tensor : tensors) megjit_tensor_free(tensor);
    megjit_context_free(context);
    megjit_model_free(model);
    return status;
}

class FailingMemory : public testing::TestWithParam<const char*> {};

TEST_P(FailingMemory, LeavesAnErrorAndNoLeak) {
    const std::string path = path_of(GetParam());
    for (int i = 0; i < 2; ++i)  // caches are filled
        ASSERT_EQ(use(path.c_str(), -1), MEGJIT_OK) << megjit_error_text();
    const long before = living;
    long refused = 0;
    for (; const megjit_status status = use(path.c_str(), refused); ++refused) {
        EXPECT_EQ(status, MEGJIT_OUT_OF_MEMORY) << refused << ": " << megjit_error_text();
        ASSERT_STRNE(megjit_error_text(), "");
        ASSERT_LT(refused, 100000);
    }
    EXPECT_GT(refused, 100);
    EXPECT_LT(living - before, 20) << "after " << refused << " refusals";
    EXPECT_EQ(use(path.c_str(), -1), MEGJIT_OK) << megjit_error_text();
}

INSTANTIATE_TEST_SUITE_P(Models, FailingMemory,
                         testing::Values("classify", "chain", "count", "rows"));

}  // namespace
