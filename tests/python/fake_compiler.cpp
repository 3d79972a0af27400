// A kernel compiler for tests: what it does are the words in MEGJIT_FAKE. fail: no kernel compiles.
// slow: none is ready before the file MEGJIT_FAKE_GATE is there. wrong: kernels store 7. All others
// compute 2 * x + 1 on one contiguous f32 operand.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <unistd.h>

#include "backends/mlir/abi.h"

namespace {

bool is(const char* what) {
    const char* fake = std::getenv("MEGJIT_FAKE");
    return fake && std::strstr(fake, what);
}

void twice_plus_one(void* const* inputs, void* const* outputs, const int64_t*, const int64_t*,
                    int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i)
        static_cast<float*>(outputs[0])[i] = 2 * static_cast<const float*>(inputs[0])[i] + 1;
}
void seven(void* const*, void* const* outputs, const int64_t*, const int64_t*, int64_t lo,
           int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) static_cast<float*>(outputs[0])[i] = 7;
}

int say(megjit_mlir_sink sink, void* to, std::string_view text, int status) {
    sink(to, text.data(), text.size());
    return status;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int megjit_mlir_abi(void) { return kMegjitMlirAbi; }
EXPORT void megjit_mlir_bound(int) {}
EXPORT void megjit_mlir_version(megjit_mlir_sink sink, void* to) { say(sink, to, "fake", 0); }
EXPORT int megjit_mlir_compile(const char*, size_t, megjit_mlir_sink sink, void* to) {
    if (is("fail")) return say(sink, to, "no register is left\nand more", 1);
    if (is("slow"))
        while (access(std::getenv("MEGJIT_FAKE_GATE"), F_OK) != 0) usleep(1000);
    return say(sink, to, is("wrong") ? "wrong" : "right", 0);
}
EXPORT int megjit_mlir_source(const char*, size_t, megjit_mlir_sink sink, void* to) {
    return say(sink, to, "source", 0);
}
EXPORT void* megjit_mlir_load(const char* object, size_t bytes, megjit_mlir_sink, void*) {
    return reinterpret_cast<void*>(std::string_view(object, bytes) == "wrong" ? seven
                                                                              : twice_plus_one);
}
