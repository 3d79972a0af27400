// The driver's ABI: modules, libraries, functions, launches.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/card/emulator/graph.h"

using namespace megjit::card;

namespace {

// Where a failed load writes its log, as the options say.
class LoadOptions {
public:
    LoadOptions(unsigned count, const int* options, void** values) {
        for (unsigned i = 0; i < count; ++i) {
            if (options[i] == 5) log_ = static_cast<char*>(values[i]);  // error log buffer
            if (options[i] == 6) {  // its size: given, and what was written
                bytes_ = reinterpret_cast<size_t>(values[i]);
                written_ = &values[i];
            }
            if (options[i] == 4) values[i] = nullptr;  // size of the information log
        }
    }
    void write(const std::string& text) const {
        if (!log_ || !bytes_) return;
        snprintf(log_, bytes_, "%s", text.c_str());
        *written_ = reinterpret_cast<void*>(std::min(text.size() + 1, bytes_));
    }

private:
    char* log_ = nullptr;
    size_t bytes_ = 0;
    void** written_ = nullptr;
};

void known_module(Module* module) {
    remember(module, Kind::module);
    for (const auto& [_, function] : module->functions()) remember(function.get(), Kind::function);
}
void forget_module(Module* module) {
    forget(module);
    for (const auto& [_, function] : module->functions()) forget(function.get());
}

int load(Module** module, const void* image, const LoadOptions& options,
         const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        check_not_capturing("cuModuleLoadData");
        if (!image) throw Fault(Result::invalid_value, "the image is null");
        try {
            out(module) = new Module(current_card(), image);
        } catch (const Fault& fault) {
            options.write(fault.text);
            throw;
        }
        known_module(*module);
    }, caller);
}

Function* named(Module& module, const char* name) {
    Function* function = module.function(name ? name : "");
    if (!function)
        throw Fault(Result::not_found,
                    std::string("the module has no kernel ") + (name ? name : "(null)"));
    remember(function, Kind::function);
    return function;
}

// Finds the function of a CUfunction, or of a CUkernel on the current card.
Function& resolved(void* handle) {
    if (is_known(handle, Kind::kernel)) {
        const auto& kernel = *static_cast<LibraryKernel*>(handle);
        Module& module = kernel.library->on(current_card());
        known_module(&module);
        return *named(module, kernel.name.c_str());
    }
    expect(handle, Kind::function);
    return *static_cast<Function*>(handle);
}

int attribute(int* value, int number, void* handle, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        const Function& function = resolved(handle);
        const ptx::Kernel* kernel = function.kernel;
        const int arch = function.module->card.description().arch;
        switch (number) {
            case 0:
                out(value) = kernel && kernel->max_threads ? static_cast<int>(kernel->max_threads)
                                                           : kMaxThreads;
                return;
            case 1: out(value) = kernel ? static_cast<int>(kernel->shared_bytes) : 0; return;
            case 2: out(value) = 0; return;
            case 3: out(value) = kernel ? static_cast<int>(kernel->local_bytes) : 0; return;
            case 4: out(value) = kernel ? kernel->registers : 32; return;
            case 5:
            case 6: out(value) = arch; return;
            case 8: out(value) = function.dynamic_shared_limit; return;
            default:
                if (number < 0 || number > 15)
                    throw Fault(Result::invalid_value, text("function attribute %d", number));
                out(value) = 0;
        }
    }, caller);
}

int set_attribute(void* handle, int number, int value, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        Function& function = resolved(handle);
        if (number == 9) return;  // preferred carve-out: a hint
        if (number != 8)
            throw Fault(Result::invalid_value, text("function attribute %d cannot be set", number));
        const int limit = function.module->card.description().shared_bytes_opt_in -
                          static_cast<int>(function.kernel ? function.kernel->shared_bytes : 0);
        if (value < 0 || value > limit)
            throw Fault(Result::invalid_value,
                        text("%d bytes of dynamic shared memory; the card allows %d to %s", value,
                             limit, function.name.c_str()));
        function.dynamic_shared_limit = value;
    }, caller);
}

int launch(void* handle, Dim3 grid, Dim3 block, unsigned shared_bytes, Stream* stream,
           void** parameters, void** extra, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        LaunchRequest request{&resolved(handle), grid, block, shared_bytes, {}};
        if (&request.function->module->card != &on.card)
            throw Fault(Result::invalid_context,
                        text("%s was loaded on card %d, the launch is on card %d",
                             request.function->name.c_str(),
                             request.function->module->card.ordinal(), on.card.ordinal()));
        request.parameters = gather_parameters(*request.function, parameters, extra);
        check_launch(request);
        if (!on.capture) ++launches;
        submit(on, std::make_shared<KernelWork>(std::move(request)));
    }, caller);
}

int blocks_per_sm(const Function& function, int threads, size_t dynamic_bytes) {
    const Description& card = function.module->card.description();
    const size_t shared = (function.kernel ? function.kernel->shared_bytes : 0) + dynamic_bytes;
    const int registers = function.kernel ? function.kernel->registers : 32;
    int blocks = std::min(kMaxBlocksOfSm, kMaxThreadsOfSm / ((threads + 31) / 32 * 32));
    blocks = std::min(blocks, kRegistersOfSm / (registers * ((threads + 31) / 32 * 32)));
    return std::min<int>(blocks, static_cast<int>(static_cast<size_t>(card.shared_bytes_of_sm) /
                                                  (shared + kReservedSharedBytes)));
}

struct LaunchConfig {  // CUlaunchConfig
    unsigned grid[3], block[3], shared_bytes;
    Stream* stream;
    struct Attribute {
        int id;
        char pad[4];
        union {
            int flag;
            unsigned cluster[3];
            char bytes[64];
        };
    }* attributes;
    unsigned count;
};

}  // namespace

MEGJIT_CARD_API cuModuleLoadDataEx(Module** module, const void* image, unsigned count, int* options,
                                   void** values) {
    return load(module, image, LoadOptions(count, options, values));
}
MEGJIT_CARD_API cuModuleLoadData(Module** module, const void* image) {
    return load(module, image, LoadOptions(0, nullptr, nullptr));
}
MEGJIT_CARD_API cuModuleLoadFatBinary(Module** module, const void* image) {
    return load(module, image, LoadOptions(0, nullptr, nullptr));
}
MEGJIT_CARD_API cuModuleLoad(Module** module, const char* path) {
    std::ifstream file(path ? path : "", std::ios::binary);
    if (!file) return static_cast<int>(Result::file_not_found);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return cuModuleLoadData(module, bytes.str().c_str());
}
// Waits: the code may still be running.
MEGJIT_CARD_API cuModuleUnload(Module* module) {
    return call(Needs::init, [&] {
        expect(module, Kind::module);
        check_not_capturing("cuModuleUnload");
        if (&current_card() != &module->card)
            throw Fault(Result::invalid_context,
                        text("a module of card %d is unloaded while card %d's context is current",
                             module->card.ordinal(), current_card().ordinal()));
        module->card.wait_for_all();
        forget_module(module);
        delete module;
    });
}
MEGJIT_CARD_API cuModuleGetFunction(Function** function, Module* module, const char* name) {
    return call(Needs::context, [&] {
        expect(module, Kind::module);
        out(function) = named(*module, name);
    });
}
MEGJIT_CARD_API cuModuleGetGlobal_v2(Address* address, size_t* bytes, Module* module,
                                     const char* name) {
    return call(Needs::context, [&] {
        expect(module, Kind::module);
        const ptx::Variable variable = module->variable(name ? name : "");
        if (address) *address = variable.address;
        if (bytes) *bytes = variable.bytes;
    });
}
MEGJIT_CARD_API cuModuleGetLoadingMode(int* mode) {
    return call(Needs::init, [&] { out(mode) = 1; });  // eager
}
MEGJIT_CARD_API cuModuleGetFunctionCount(unsigned* count, Module* module) {
    return call(Needs::context, [&] {
        expect(module, Kind::module);
        out(count) = static_cast<unsigned>(module->functions().size());
    });
}

// ---- libraries

MEGJIT_CARD_API cuLibraryLoadData(Library** library, const void* image, int* options, void** values,
                                  unsigned count, int*, void**, unsigned) {
    return call(Needs::init, [&] {
        if (!image) throw Fault(Result::invalid_value, "the image is null");
        auto made = std::make_unique<Library>(image);
        try {
            made->on(current_context() ? *current_context()->card : device(0));
        } catch (const Fault& fault) {
            LoadOptions(count, options, values).write(fault.text);
            throw;
        }
        out(library) = made.release();
        remember(*library, Kind::library);
    });
}
MEGJIT_CARD_API cuLibraryUnload(Library* library) {
    return call(Needs::init, [&] {
        expect(library, Kind::library);
        check_not_capturing("cuLibraryUnload");
        for (const auto& [card, module] : library->modules) {
            card->wait_for_all();
            forget_module(module.get());
        }
        for (const auto& [_, kernel] : library->kernels) forget(kernel.get());
        forget(library);
        delete library;
    });
}
MEGJIT_CARD_API cuLibraryGetKernel(LibraryKernel** kernel, Library* library, const char* name) {
    return call(Needs::init, [&] {
        expect(library, Kind::library);
        named(*library->modules.begin()->second, name);
        auto& known = library->kernels[name];
        if (!known) known.reset(new LibraryKernel{library, name});
        remember(known.get(), Kind::kernel);
        out(kernel) = known.get();
    });
}
MEGJIT_CARD_API cuLibraryGetModule(Module** module, Library* library) {
    return call(Needs::context, [&] {
        expect(library, Kind::library);
        out(module) = &library->on(current_card());
        known_module(*module);
    });
}
MEGJIT_CARD_API cuLibraryGetGlobal(Address* address, size_t* bytes, Library* library,
                                   const char* name) {
    return call(Needs::context, [&] {
        expect(library, Kind::library);
        const ptx::Variable variable = library->on(current_card()).variable(name ? name : "");
        if (address) *address = variable.address;
        if (bytes) *bytes = variable.bytes;
    });
}
MEGJIT_CARD_API cuLibraryGetKernelCount(unsigned* count, Library* library) {
    return call(Needs::init, [&] {
        expect(library, Kind::library);
        out(count) = static_cast<unsigned>(library->modules.begin()->second->functions().size());
    });
}
MEGJIT_CARD_API cuKernelGetFunction(Function** function, LibraryKernel* kernel) {
    return call(Needs::context, [&] {
        expect(kernel, Kind::kernel);
        out(function) = &resolved(kernel);
    });
}
MEGJIT_CARD_API cuKernelGetAttribute(int* value, int number, LibraryKernel* kernel, int) {
    return attribute(value, number, kernel);
}
MEGJIT_CARD_API cuKernelSetAttribute(int number, int value, LibraryKernel* kernel, int) {
    return set_attribute(kernel, number, value);
}
MEGJIT_CARD_API cuKernelGetName(const char** name, LibraryKernel* kernel) {
    return call(Needs::init, [&] {
        expect(kernel, Kind::kernel);
        out(name) = kernel->name.c_str();
    });
}

// ---- functions

MEGJIT_CARD_API cuFuncGetAttribute(int* value, int number, void* function) {
    return attribute(value, number, function);
}
MEGJIT_CARD_API cuFuncSetAttribute(void* function, int number, int value) {
    return set_attribute(function, number, value);
}
MEGJIT_CARD_API cuFuncSetCacheConfig(void* function, int) {
    return call(Needs::context, [&] { resolved(function); });
}
MEGJIT_CARD_API cuFuncGetModule(Module** module, void* function) {
    return call(Needs::context, [&] { out(module) = resolved(function).module; });
}
MEGJIT_CARD_API cuFuncGetName(const char** name, void* function) {
    return call(Needs::context, [&] { out(name) = resolved(function).name.c_str(); });
}
MEGJIT_CARD_API cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* bytes) {
    return call(Needs::context, [&] {
        const Function& found = resolved(function);
        if (!found.kernel || index >= found.kernel->parameters.size())
            throw Fault(Result::invalid_value,
                        text("%s has no parameter %zu", found.name.c_str(), index));
        out(offset) = found.kernel->parameters[index].offset;
        if (bytes) *bytes = found.kernel->parameters[index].bytes;
    });
}
MEGJIT_CARD_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function,
                                                            int threads, size_t dynamic_bytes) {
    return call(Needs::context, [&] {
        if (threads <= 0)
            throw Fault(Result::invalid_value, text("a block of %d threads", threads));
        out(blocks) =
            threads > kMaxThreads ? 0 : blocks_per_sm(resolved(function), threads, dynamic_bytes);
    });
}
MEGJIT_CARD_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* function,
                                                                     int threads,
                                                                     size_t dynamic_bytes,
                                                                     unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_bytes);
}

// ---- launches

MEGJIT_CARD_API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared_bytes, Stream* stream,
                               void** parameters, void** extra) {
    return launch(function, {gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, parameters, extra);
}
MEGJIT_CARD_API cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters,
                                 void** extra) {
    if (!config) return static_cast<int>(Result::invalid_value);
    const LaunchConfig& c = *config;
    for (unsigned i = 0; i < c.count; ++i) {
        enum { kCooperative = 2, kCluster = 4 };
        const LaunchConfig::Attribute& a = c.attributes[i];
        if (a.id == kCooperative && a.flag) return static_cast<int>(Result::not_supported);
        if (a.id == kCluster && a.cluster[0] * a.cluster[1] * a.cluster[2] > 1)
            return static_cast<int>(Result::not_supported);
    }
    return launch(function, {c.grid[0], c.grid[1], c.grid[2]}, {c.block[0], c.block[1], c.block[2]},
                  c.shared_bytes, c.stream, parameters, extra);
}
