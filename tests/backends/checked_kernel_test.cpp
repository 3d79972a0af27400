#include "codegen/checked_kernel.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/host/error.h"
#include "tests/backends/dnn_testing.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen { namespace {

// Writes what it was given, as a kernel would that computes something else.
struct Writes final : runtime::Executable {
    explicit Writes(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
    void enqueue(runtime::Stream&, void* const*, void* const* outputs, void*) const override {
        std::memcpy(outputs[0], bytes_.data(), bytes_.size());
    }
    std::vector<char> bytes_;
};

template <class T>
std::vector<char> bytes_of(std::initializer_list<T> values) {
    std::vector<char> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.begin(), bytes.size());
    return bytes;
}

// "" if a kernel that should copy `input` may give `output`; else the error.
std::string check(DType dtype, std::vector<char> input, const std::vector<char>& output) {
    const int64_t n = static_cast<int64_t>(input.size() / size_of(dtype));
    const std::string_view tag = info(dtype).tag;
    const std::string_view computed = size_of(dtype) >= 4  ? tag
                                      : is_floating(dtype) ? "f32"
                                                           : "i32";
    const KernelIR kernel =
        parse_kernel(cat("kernel rank=1\nin ", tag, " contiguous\n%0: ", computed,
                         " = input 0\nout ", tag, " %0\n"));
    EXPECT_EQ(fault_of(kernel), "");
    std::vector<char> room(output.size());
    void *in = input.data(), *out = room.data();
    const auto run = checked(std::make_shared<Writes>(output),
                             {.kernel = kernel,
                              .launches = {{.extents = {n}, .strides = {1, 1}}},
                              .name = "the kernel",
                              .input_bytes = {input.size()},
                              .output_bytes = {output.size()}});
    try {
        run->enqueue(testing::device().stream(), &in, &out, nullptr);
    } catch (const runtime::InternalError& error) { return error.what(); }
    return "";
}

template <class T>
void tells_seven_from_minus_three(DType dtype, T seven, T minus_three) {
    const std::vector<char> right = bytes_of({seven, minus_three});
    EXPECT_EQ(check(dtype, right, right), "") << info(dtype).name;
    const std::string error = check(dtype, right, bytes_of({seven, seven}));
    EXPECT_NE(error.find("gives 7 at element 1 of output 0; the interpreter gives -3"),
              std::string::npos)
        << info(dtype).name << ": " << error;
}

TEST(CheckedKernel, NamesTheElementThatDiffersInEveryType) {
    tells_seven_from_minus_three<float>(DType::f32, 7, -3);
    tells_seven_from_minus_three<double>(DType::f64, 7, -3);
    tells_seven_from_minus_three<uint16_t>(DType::f16, 0x4700, 0xc200);
    tells_seven_from_minus_three<uint16_t>(DType::bf16, 0x40e0, 0xc040);
    tells_seven_from_minus_three<int64_t>(DType::i64, 7, -3);
    tells_seven_from_minus_three<int32_t>(DType::i32, 7, -3);
    tells_seven_from_minus_three<int16_t>(DType::i16, 7, -3);
    tells_seven_from_minus_three<int8_t>(DType::i8, 7, -3);
}

TEST(CheckedKernel, TakesAnyNaNForAnother) {
    const auto takes = [](DType dtype, auto a, auto b) {
        EXPECT_EQ(check(dtype, bytes_of({a}), bytes_of({b})), "") << info(dtype).name;
        EXPECT_NE(check(dtype, bytes_of({a}), bytes_of({decltype(b){}})), "") << info(dtype).name;
    };
    takes(DType::f32, uint32_t{0x7fc00000}, uint32_t{0xffc00001});
    takes(DType::f64, uint64_t{0x7ff8000000000000}, uint64_t{0xfff8000000000001});
    takes(DType::f16, uint16_t{0x7e00}, uint16_t{0xfe01});
    takes(DType::bf16, uint16_t{0x7fc0}, uint16_t{0xffc1});
}

}}  // namespace megjit::codegen
