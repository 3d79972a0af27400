#include "codegen/imported_kernels.h"

#include "codegen/host_cpu.h"
#include "codegen/legalize.h"
#include "codegen/object_loader.h"
#include "runtime/error.h"

namespace megjit::codegen {
namespace {

constexpr std::string_view kPackage = "megjit " MEGJIT_VERSION " for ";

// The text up to the end of its line, which is taken off.
std::string_view take_line(std::string_view& text) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
}

}  // namespace

std::string disk_key(std::string_view compiler, std::string_view version, const KernelIR& legal) {
    return runtime::cat(compiler, "\n", kPackage, host_features(), "\n", version, "\n",
                        print(legal));
}

ImportedKernels::ImportedKernels(const DiskCache& cache) : cache_(cache) {
    cache.each([this](const CacheEntry& entry) {
        std::string_view rest = entry.key;
        take_line(rest);
        const std::string_view target = take_line(rest);
        take_line(rest);
        if (target.starts_with(kPackage) && runs_here(target.substr(kPackage.size())))
            key_of_.emplace(rest, entry.key);
    });
}

ImportedKernels::Found ImportedKernels::find(const KernelIR& kernel) const {
    auto it = key_of_.find(print(legalize(kernel, kX86Ops)));
    if (it == key_of_.end()) it = key_of_.find(print(legalize(kernel)));
    if (it == key_of_.end()) return {};
    const auto object = cache_.find(it->second);
    if (!object) return {};
    try {
        return {it->second.substr(0, it->second.find('\n')), load_object(*object)};
    } catch (const runtime::Error&) { return {}; }
}

}  // namespace megjit::codegen
