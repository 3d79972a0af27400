#include "tests/card/driver.h"

#include <cstdlib>
#include <mutex>

namespace megjit::card_tests {

static void* opened(const char* path) {
    void* found = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!found) ADD_FAILURE() << dlerror();
    return found;
}

void* library() {
    static void* const handle = [] {
        setenv("MEGJIT_EMULATED_GPUS", std::to_string(kCards).c_str(), 1);
        return opened(MEGJIT_CARD);
    }();
    return handle;
}

void* stand_in(const char* path) {
    library();
    return opened(path);
}

std::string last_fault() {
    return reinterpret_cast<const char* (*)()>(dlsym(library(), "megjit_card_last_fault"))();
}

void CardTest::SetUp() {
    CHECK_DRIVER("cuInit", 0u);
    for (int card = 0; card < kCards; ++card) CHECK_DRIVER("cuDevicePrimaryCtxReset_v2", card);
    CHECK_DRIVER("cuDevicePrimaryCtxRetain", &context_, 0);
    CHECK_DRIVER("cuCtxSetCurrent", context_);
    stream_ = new_stream();
}

void CardTest::TearDown() {
    for (Handle stream : streams_) call("cuStreamDestroy_v2", stream);
    call("cuDevicePrimaryCtxReset_v2", 0);
    call("cuDevicePrimaryCtxRelease_v2", 0);
}

Handle CardTest::new_stream(unsigned flags) {
    Handle stream = nullptr;
    EXPECT_DRIVER(0, "cuStreamCreate", &stream, flags);
    streams_.push_back(stream);
    return stream;
}

Address CardTest::allocate(size_t bytes) {
    Address address = 0;
    EXPECT_DRIVER(0, "cuMemAlloc_v2", &address, bytes);
    return address;
}

Handle CardTest::load(const std::string& ptx, const char* name) {
    Handle module = nullptr, function = nullptr;
    EXPECT_DRIVER(0, "cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str())) << ptx;
    if (module) { EXPECT_DRIVER(0, "cuModuleGetFunction", &function, module, name); }
    return function;
}

std::string kernel(const std::string& parameters, const std::string& body) {
    return ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(" + parameters +
           ")\n{\n" + body + "\n}\n";
}

namespace {

// The type in memory: packed and predicate-like types are plain bits there.
std::string bits_of(const std::string& type) {
    if (type.find("x2") != std::string::npos) return type == "f32x2" ? "b64" : "b32";
    if (type == "f16" || type == "bf16") return "b16";
    return type;
}
size_t bytes_of(const std::string& type) {
    return static_cast<size_t>(std::atoi(bits_of(type).c_str() + 1)) / 8;
}
// Registers have at least 16 bits.
std::string register_of(const std::string& type) {
    const std::string bits = bits_of(type);
    return bytes_of(type) == 1 ? std::string(1, bits[0]) + "16" : bits;
}

}  // namespace

std::string elementwise(const std::string& statement, const std::string& out_type,
                        const std::vector<std::string>& in_types) {
    std::string parameters = ".param .u64 n, .param .u64 out", body = R"(
    .reg .pred %p, %q; .reg .b32 %t<4>; .reg .b64 %i, %a<8>, %n;
    ld.param.u64 %n, [n];
    mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x;
    mad.lo.s32 %t3, %t0, %t1, %t2; cvt.u64.u32 %i, %t3;
    setp.ge.u64 %p, %i, %n; @%p ret;
)";
    const auto address = [&](const std::string& name, size_t index, size_t bytes) {
        const std::string a = "%a" + std::to_string(index);
        body += "ld.param.u64 " + a + ", [" + name + "]; mad.lo.u64 " + a + ", %i, " +
                std::to_string(bytes) + ", " + a + ";\n";
    };
    address("out", 7, bytes_of(out_type));
    body += ".reg ." + register_of(out_type) + " %d;\n";
    const char* names = "xyzw";
    for (size_t k = 0; k < in_types.size(); ++k) {
        const std::string name(1, names[k]);
        parameters += ", .param .u64 " + name + "_p";
        address(name + "_p", k, bytes_of(in_types[k]));
        body += ".reg ." + register_of(in_types[k]) + " %" + name + ";\nld.global." +
                bits_of(in_types[k]) + " %" + name + ", [%a" + std::to_string(k) + "];\n";
    }
    body += statement + "\nst.global." + bits_of(out_type) + " [%a7], %d;\nret;\n";
    return kernel(parameters, body);
}

// ---- NVRTC

namespace {
void* nvrtc() {
    static void* const handle = [] {
        const char* named = std::getenv("MEGJIT_NVRTC");
        return dlopen(named ? named : "libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
    }();
    return handle;
}
template <class... A>
int rtc(const char* name, A... arguments) {
    return reinterpret_cast<int (*)(A...)>(dlsym(nvrtc(), name))(arguments...);
}
}  // namespace

bool has_nvrtc() { return nvrtc() != nullptr; }

std::string compile(const std::string& source, const std::vector<std::string>& extra) {
    Handle program = nullptr;
    rtc("nvrtcCreateProgram", &program, source.c_str(), "test.cu", 0, nullptr, nullptr);
    std::vector<std::string> options = {"--gpu-architecture=compute_80", "--std=c++17"};
    options.insert(options.end(), extra.begin(), extra.end());
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    const int failed =
        rtc("nvrtcCompileProgram", program, static_cast<int>(pointers.size()), pointers.data());
    const auto text = [&](const char* size_name, const char* name) {
        size_t size = 0;
        rtc(size_name, program, &size);
        std::string bytes(size, '\0');
        rtc(name, program, bytes.data());
        return bytes;
    };
    if (failed) ADD_FAILURE() << text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog");
    const std::string ptx = failed ? "" : text("nvrtcGetPTXSize", "nvrtcGetPTX");
    rtc("nvrtcDestroyProgram", &program);
    return ptx;
}

}  // namespace megjit::card_tests
