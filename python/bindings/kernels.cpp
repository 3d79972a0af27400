// What `python -m megengine` asks about generated kernels: the cache on disk.
#include <nanobind/stl/pair.h>

#include <map>

#include "codegen/disk_cache.h"
#include "python/bindings/handle.h"

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

}  // namespace

void bind_kernels(nb::module_& m) {
    m.def("cache_info", &cache_info);
    m.def("cache_clear", [] { return cache().clear(); });
    m.def("cache_verify", [] {
        const DiskCache::Verdict verdict = cache().verify();
        return std::pair(verdict.sound, verdict.broken);
    });
    m.def("cache_export", [](const std::string& archive) { return export_archive(cache(), archive); }, nb::arg("archive"));
    m.def("cache_import", [](const std::string& archive) {
        DiskCache disk = cache();
        return import_archive(disk, archive);
    }, nb::arg("archive"));
}

}  // namespace megjit::python
