// The extension module megengine._core.
#include <nanobind/stl/optional.h>

#include "codegen/compiler.h"
#include "jit/api/backends.h"
#include "python/bindings/handle.h"
#include "runtime/core/rematerializer.h"
#include "runtime/host/debug.h"
#include "runtime/host/isa.h"
#include "runtime/host/parallel.h"
#include "runtime/host/plugin_path.h"
#include "runtime/host/product_rules.h"
#include "runtime/host/size_text.h"

namespace megjit::python {
void bind_system(nb::module_& m) {
    // Devices go by any of their names; "" is the default one.
    const auto on = nb::arg("device") = "";
    nb::class_<runtime::DeviceInfo>(m, "DeviceInfo")
        .def_prop_ro("kind",
                     [](const runtime::DeviceInfo& info) {
        return info.kind == runtime::DeviceKind::gpu ? "gpu" : "cpu";
    })
        .def_ro("number", &runtime::DeviceInfo::number)
        .def_ro("model", &runtime::DeviceInfo::model)
        .def_ro("total_bytes", &runtime::DeviceInfo::total_bytes)
        .def_ro("free_bytes", &runtime::DeviceInfo::free_bytes);
    m.def("devices", [] {
        nb::dict table;
        runtime::discover_devices();
        for (const runtime::Device* device : runtime::all_devices())
            table[nb::str(std::string(device->name()).c_str())] = nb::cast(device->info());
        return table;
    }, "What there is, by name.");
    m.def("physical_name", [](const std::string& name) { return runtime::physical_name(name); },
          nb::arg("name"), "\"xpux\" -> \"cpu0:0\". ValueError for a malformed name.");
    m.def(
        "find_device",
        [](const std::string& name) { return std::string(device_named(name).name()); },
        nb::arg("name"),
        "Name of the device that is meant: \"gpu0:0\", \"xpux:0\" where there is no GPU. ValueError for "
        "a malformed name, RuntimeError without the device.");
    m.def("compute_capability", [](const std::string& name) {
        return device_named(name).target().gpu_arch;
    }, nb::arg("device"), "Of an NVIDIA GPU: 90 is 9.0; 0 of a CPU.");
    m.def("set_default_device", &set_default_device);
    m.def("synchronize", [] {
        const runtime::WithoutHostLock release;
        std::exception_ptr error;
        for (runtime::Device* device : runtime::all_devices()) try {
                device->stream().synchronize();
            } catch (...) { error = std::current_exception(); }
        if (error) std::rethrow_exception(error);
    }, "Waits for all queued work, and raises the last error of it.");
    m.def("memory_stats", [](const std::string& device) {
        const runtime::MemoryStats stats = device_named(device).allocator().stats();
        nb::dict result;
        result["in_use"] = stats.in_use;
        result["reserved"] = stats.reserved;
        result["peak_in_use"] = stats.peak_in_use;
        result["peak_reserved"] = stats.peak_reserved;
        result["allocations"] = stats.allocations;
        result["cap"] =
            stats.cap == runtime::kNoCap ? nb::object(nb::none()) : nb::object(nb::int_(stats.cap));
        return result;
    }, on);
    m.def("reset_peak_memory",
          [](const std::string& device) { device_named(device).allocator().reset_peak(); }, on);
    m.def("trim_memory", [](const std::string& device) { device_named(device).allocator().trim(); },
          on);
    m.def("set_memory_cap", [](size_t bytes, const std::string& device) {
        device_named(device).allocator().set_cap(bytes ? bytes : runtime::kNoCap);
    }, nb::arg("bytes"), on);
    m.def("set_memory_growth",
          [](size_t least, size_t overhead, double factor, const std::string& device) {
        device_named(device).allocator().set_growth(
            {.least = least, .overhead = overhead, .factor = factor});
    }, nb::arg("least"), nb::arg("overhead"), nb::arg("factor"), on);
    m.def(
        "fail_allocation",
        [](int64_t after, const std::string& device) {
        device_named(device).allocator().fail_after(after < 0 ? runtime::Allocator::kNever
                                                              : static_cast<uint64_t>(after));
    }, nb::arg("after"), on,
        "For tests: `after` more allocations succeed and the next one fails, once; -1 takes it back.");
    m.def("set_dtr", [](bool is_on, size_t threshold, size_t least_bytes, bool samples) {
        runtime::Rematerializer::instance().configure({.is_on = is_on,
                                                       .threshold = threshold,
                                                       .least_bytes = least_bytes,
                                                       .samples = samples});
    }, nb::arg("is_on"), nb::arg("threshold"), nb::arg("least_bytes"), nb::arg("samples"));
    m.def("dtr_stats", [] {
        const runtime::Rematerializer::Stats stats = runtime::Rematerializer::instance().stats();
        nb::dict result;
        result["values"] = stats.values;
        result["evictions"] = stats.evictions;
        result["recomputations"] = stats.recomputations;
        result["recompute_seconds"] = stats.recompute_seconds;
        return result;
    });
    m.def("size_text", &runtime::size_text, nb::arg("bytes"), nb::arg("beside") = nb::none());
    m.def("bytes_text", &runtime::bytes_text, nb::arg("bytes"), nb::arg("beside") = nb::none());
    m.def("thread_count", &runtime::thread_count);
    m.def("set_thread_count", &runtime::set_thread_count);
    m.def("set_product_rules",
          [](bool tf32, bool deterministic, bool timed) {
        runtime::set_product_rules({tf32, deterministic, timed});
    }, nb::arg("tf32"), nb::arg("deterministic"), nb::arg("timed"),
          "How a device's libraries may compute products from now on.");
    m.def("isa", [] { return std::string(runtime::name_of(runtime::isa())); });
    m.def("machine_isa", [] { return std::string(runtime::name_of(runtime::machine_isa())); });
    m.def("backends", [] {
        nb::list names;
        for (std::string_view name : codegen::KernelService::instance().backends())
            names.append(std::string(name));
        return names;
    });
    m.def("switches", [] {
        nb::dict table;
        runtime::discover_devices();
        for (const runtime::Switch& row : runtime::switches())
            table[std::string(row.name).c_str()] = std::string(row.doc);
        return table;
    });
    m.def("reload_debug", &runtime::reload_debug);
}

}  // namespace megjit::python

NB_MODULE(_core, m) {
    using namespace megjit::python;
    // Objects that a program still holds when the interpreter ends are no leaks of its making.
    nb::set_leak_warnings(false);
    megjit::api::start(megjit::runtime::plugin_folder());
    bind_host_lock(m);
    bind_errors(m);
    bind_tensor(m);
    bind_exchange(m);
    bind_library_tensors(m);
    bind_streams(m);
    bind_ops(m);
    bind_library_ops(m);
    bind_autodiff(m);
    bind_control_flow(m);
    bind_model(m);
    bind_network(m);
    bind_facts(m);
    bind_trace_options(m);
    bind_trace(m);
    bind_trace_notes(m);
    bind_kernels(m);
    bind_call_log(m);
    bind_communicator(m);
    bind_system(m);
}
