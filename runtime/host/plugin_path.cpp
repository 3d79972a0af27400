#include "runtime/host/plugin_path.h"

#include <dlfcn.h>

#include "runtime/host/debug.h"

namespace megjit::runtime {

std::filesystem::path package_folder() {
    Dl_info self{};
    static const char anchor = 0;
    if (!dladdr(&anchor, &self) || !self.dli_fname) return {};
    return std::filesystem::path(self.dli_fname).parent_path();
}

std::filesystem::path plugin_folder() {
    const std::string& named = debug().plugin_dir;
    return named.empty() ? package_folder() : std::filesystem::path(named);
}

}  // namespace megjit::runtime
