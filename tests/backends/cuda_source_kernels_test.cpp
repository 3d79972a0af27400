// The kernels written by hand compile on every architecture, keep everything in registers, and
// leave room for two blocks on a multiprocessor.
#include <gtest/gtest.h>

#include <regex>

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"
#include "backends/nvrtc/library.h"
#include "runtime/host/nvidia_libraries.h"
#include "tests/backends/ptxas.h"

namespace megjit::cuda { namespace {

std::vector<std::string> sources() {
    std::vector<std::string> all;
    const auto add = [&](const std::string& text, const std::string& defines) {
        for (const char* index : {"unsigned", "unsigned long long"}) {
            std::string lines = cat("#define INDEX ", index, "\n");
            std::istringstream words(defines);
            for (std::string word; words >> word;)
                lines += cat("#define ", word.replace(word.find('='), 1, " "), "\n");
            all.push_back(lines + text);
        }
    };
    const std::string copy = with_prelude(texts::copy), index = with_prelude(texts::index),
                      labels = with_prelude(texts::labels), pool = with_prelude(texts::pool),
                      scan = with_prelude(texts::scan), conv = with_prelude(texts::quantized_conv);
    const std::string scores = cat(texts::prelude, texts::philox, texts::attention_scores),
                      attention = cat(scores, texts::attention, texts::attention_gradients),
                      tensor = cat(scores, texts::attention_tensor, texts::attention_gradients);
    add(attention, "T=f16 COLUMNS=128 DROPS=0 MASKS=1 HIDES=0");
    add(attention, "T=float COLUMNS=64 DROPS=1 MASKS=1 HIDES=0");
    add(attention, "T=float COLUMNS=64 DROPS=0 MASKS=0 HIDES=1");
    add(tensor, "T=bf16 COLUMNS=64 DROPS=0 MASKS=0 HIDES=0");
    add(tensor, "T=f16 COLUMNS=128 DROPS=1 MASKS=3 HIDES=1");
    if (std::getenv("MEGJIT_LONG")) {
        add(tensor, "T=f16 COLUMNS=64 DROPS=1 MASKS=0 HIDES=1");
        add(tensor, "T=bf16 COLUMNS=128 DROPS=0 MASKS=2 HIDES=0");
    }
    add(copy, "UNIT=uint4 RANK=4");
    add(copy, "UNIT=u8 RANK=8");
    add(copy, "UNIT=u16 T=bf16 MODE=0 PAD_RANK=5");
    add(copy, "UNIT=u16 T=f16 MODE=1 PAD_RANK=8");
    add(copy, "UNIT=u32 T=float MODE=2 PAD_RANK=8");
    add(index, "INDICES=1 PLACES_RANK=1 REST_RANK=0 ALONG=0 UNIT=uint4 T=float COMBINE=plus");
    add(index, "INDICES=8 PLACES_RANK=8 REST_RANK=3 ALONG=0 UNIT=u32 T=i8 COMBINE=times");
    add(index, "INDICES=1 PLACES_RANK=4 REST_RANK=0 ALONG=1 UNIT=u16 T=f16 COMBINE=larger");
    add(labels, "EXTENT=1");
    add(labels, "EXTENT=0 LABEL=u8 T=uint2");
    add(with_prelude(texts::sort), "T=f16");
    add(with_prelude(texts::linalg), "");
    add(with_prelude(texts::matmul), "T=i8 R=i32 RANK=3");
    add(cat(texts::prelude, texts::philox, texts::distributions, texts::random), "");
    for (const char* layout : {"0", "1"}) {
        add(pool, cat("T=f16 CHANNELS_LAST=", layout));
        add(conv, cat("X=u8 Y=i8 CHANNELS_LAST=", layout, " FOURS=", layout));
    }
    add(scan, "FLOATING=1 T=bf16 OUT=bf16");
    add(scan, "FLOATING=0 T=u8 OUT=i32");
    return all;
}

// The most threads that a block has.
int threads_of(const std::string& ptx) {
    const std::regex wanted(R"(\.maxntid (\d+))");
    int most = 0;
    for (std::sregex_iterator at(ptx.begin(), ptx.end(), wanted), end; at != end; ++at)
        most = std::max(most, std::stoi((*at)[1]));
    return most ? most : 256;
}

constexpr int kRegisters = 65536;  // of a multiprocessor

class SourceKernels : public testing::TestWithParam<int> {};

TEST_P(SourceKernels, CompileAndSpillNothing) {
    const nvrtc::Library nvrtc(runtime::candidates_of(runtime::NvidiaLibrary::nvrtc));
    if (!nvrtc.found()) GTEST_SKIP() << nvrtc.why_not();
    for (const std::string& text : sources()) {
        const std::string head = text.substr(0, text.find("//"));
        const std::string ptx = nvrtc.compile(text, cat("compute_", GetParam()));
        EXPECT_EQ(ptx.find(".local"), std::string::npos) << head;
        if (!codegen::ptxas()) continue;
        const codegen::Resources needs = codegen::resources_of(ptx, GetParam());
        EXPECT_EQ(needs.spilled_bytes, 0) << head;
        EXPECT_EQ(needs.stack_bytes, 0) << head;
        EXPECT_LE(needs.registers * threads_of(ptx), kRegisters / 2) << head;
    }
}

INSTANTIATE_TEST_SUITE_P(Archs, SourceKernels,
                         testing::ValuesIn(std::getenv("MEGJIT_LONG")
                                               ? std::vector<int>{80, 90, 100}
                                               : std::vector<int>{90}));

}}  // namespace megjit::cuda
