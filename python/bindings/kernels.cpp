// Generated kernels as Python sees them: the cache on disk, Ctrl-C while one is compiled, the end
// of the process.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include "codegen/compiler.h"
#include "codegen/disk_cache.h"
#include "codegen/tuning.h"
#include "python/bindings/handle.h"
#include "runtime/core/bandwidth.h"
#include "runtime/host/interrupt.h"
#include "runtime/host/nvidia_libraries.h"

namespace megjit::python {
namespace {

using codegen::DiskCache;

DiskCache cache() { return DiskCache(codegen::default_cache_folder()); }

nb::dict cache_info() {
    const DiskCache disk = cache();
    size_t entries = 0, bytes = 0;
    std::map<std::string, size_t> by_backend;
    disk.each([&](const codegen::CacheEntry& entry) {
        ++entries;
        bytes += entry.key.size() + entry.object.size();
        ++by_backend[entry.key.substr(0, entry.key.find('\n'))];
    });
    nb::dict result, backends;
    for (const auto& [name, count] : by_backend) backends[name.c_str()] = count;
    result["folder"] = disk.folder().string();
    result["refusal"] = disk.refusal();
    result["entries"] = entries;
    result["bytes"] = bytes;
    result["by_backend"] = backends;
    return result;
}

// Ctrl-C, for waits that run without the Python lock. Only in the main thread does it find
// anything.
void check_signals() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// The thread that compiles must not meet the destructors of the libraries that it uses. A kernel
// takes a moment as a rule, and after Ctrl-C nobody waits even for the others.
void finish_compiling() {
    const char* const name = PY_VERSION_HEX >= 0x030C0000 ? "last_exc" : "last_value";
    PyObject* last = PySys_GetObject(name);
    const bool interrupted = last && PyErr_GivenExceptionMatches(last, PyExc_KeyboardInterrupt);
    const runtime::WithoutHostLock release;
    codegen::KernelService::instance().stop(std::chrono::milliseconds(interrupted ? 100 : 5000));
}

// Lists name, version (as the library counts it, and as text), path, and why there is none.
nb::list nvidia_libraries() {
    nb::list rows;
    for (const runtime::NvidiaLibrary library : runtime::kNvidiaLibraries) {
        const runtime::FoundLibrary& found = runtime::find_library(library);
        const std::string_view name = runtime::name_of(library);
        rows.append(nb::make_tuple(nb::str(name.data(), name.size()), found.version,
                                   found.version_text, found.path, found.why_not));
    }
    return rows;
}

}  // namespace

void bind_kernels(nb::module_& m) {
    runtime::set_interrupt_check(check_signals);
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(&finish_compiling));
    m.def("copy_bandwidth", [](const std::string& device) {
        runtime::Device& place = device_named(device);
        const runtime::WithoutHostLock release;
        return runtime::copy_bandwidth(place);
    }, nb::arg("device") = "");
    // A kernel from its text, as dumps have it; gives the compiler's name and readable code.
    m.def("compile_kernel", [](const std::string& text) {
        const auto made = codegen::KernelService::instance().get(codegen::parse_kernel(text));
        return std::pair(made->backend, made->source());
    }, nb::arg("text"), nb::call_guard<runtime::WithoutHostLock>());
    // Returns the products that this process has looked up or measured: seconds by candidate.
    m.def("timings", [] { return codegen::Timings::instance().all(); });
    m.def("nvidia_libraries", &nvidia_libraries);
    m.def("cache_info", &cache_info);
    m.def("cache_clear", [] { return cache().clear(); });
    m.def("cache_verify", [] {
        const DiskCache::Verdict verdict = cache().verify();
        return std::pair(verdict.sound, verdict.broken);
    });
    m.def("cache_entries", [](const std::string& folder) {
        nb::list rows;
        DiskCache(folder).each([&](const codegen::CacheEntry& entry) {
            rows.append(nb::make_tuple(nb::bytes(entry.key.data(), entry.key.size()),
                                       nb::bytes(entry.object.data(), entry.object.size())));
        });
        return rows;
    }, nb::arg("folder"), "Keys and objects of all compiled kernels there.");
    m.def("cache_export", [](const std::string& archive) {
        return export_archive(cache(), archive);
    }, nb::arg("archive"));
    m.def("cache_import", [](const std::string& archive) {
        DiskCache disk = cache();
        return import_archive(disk, archive);
    }, nb::arg("archive"));
}

}  // namespace megjit::python
