// The driver's ABI: functions by name, and those that are refused.
#include <dlfcn.h>

#include <string>

#include "tests/card/emulator/calls.h"

using namespace megjit::card;

// Libraries look these up before they know whether they will call them.
extern "C" __attribute__((visibility("default"))) int megjit_card_refused() {
    set_last_fault("a function of the driver that the emulated card lacks was called");
    return static_cast<int>(Result::not_supported);
}
#define MEGJIT_X(name) \
    extern "C" __attribute__((visibility("default"), alias("megjit_card_refused"))) int name();
#include "tests/card/emulator/refused.inl"
#undef MEGJIT_X

namespace {

// Functions whose form depends on the version that the caller was built for; others have one form,
// or that of _v2.
struct Form {
    const char* name;
    int since;
    const char* symbol;
};
constexpr Form kForms[] = {
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo_v2"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphGetEdges", 0, "cuGraphGetEdges"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 0, "cuGraphNodeGetDependencies"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeGetParams", 0, "cuGraphKernelNodeGetParams"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 0, "cuGraphInstantiate_v2"},
};

void* find(const std::string& name) {
    static void* self = [] {
        Dl_info info{};
        dladdr(reinterpret_cast<void*>(&megjit_card_refused), &info);
        return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }();
    return dlsym(self, name.c_str());
}

int look_up(const char* name, void** function, int version, int* status,
            const char* caller = __builtin_FUNCTION()) {
    return call(Needs::nothing, [&] {
        if (!name) throw Fault(Result::invalid_value, "the name is null");
        void*& found = out(function);
        found = nullptr;
        for (const Form& form : kForms)
            if (!found && form.name == std::string_view(name) && version >= form.since)
                found = find(form.symbol);
        if (!found) found = find(std::string(name) + "_v2");
        if (!found) found = find(name);
        if (status) *status = found ? 0 : 1;  // 1: no such symbol
        if (!found) throw Fault(Result::not_found, std::string("the driver has no ") + name);
    }, caller);
}

}  // namespace

MEGJIT_CARD_API cuGetProcAddress(const char* name, void** function, int version, uint64_t) {
    return look_up(name, function, version, nullptr);
}
MEGJIT_CARD_API cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t,
                                    int* status) {
    return look_up(name, function, version, status);
}
MEGJIT_CARD_API cuGetExportTable(const void** table, const void*) {
    if (table) *table = nullptr;
    return static_cast<int>(Result::not_supported);
}
