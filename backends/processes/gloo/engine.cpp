#include "backends/processes/gloo/engine.h"

#include <dlfcn.h>

#include "runtime/host/error.h"

namespace megjit::processes::gloo {

Engine::Engine(const std::string& plugin, const std::string& address) {
    void* opened = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened) throw runtime::DeviceError(runtime::cat("Gloo cannot be opened: ", dlerror()));
    const auto table =
        reinterpret_cast<decltype(&megjit_gloo_table_2)>(dlsym(opened, "megjit_gloo_table_2"));
    if (!table) throw runtime::DeviceError(runtime::cat(plugin, " is of another build"));
    table_ = table();
    check([&](char* error) { return table_->open(address.c_str(), &device_, error); });
}

void check(const std::function<bool(char* error)>& body) {
    char error[kErrorBytes] = "";
    if (!body(error)) throw runtime::DeviceError(runtime::cat("Gloo: ", error));
}

}  // namespace megjit::processes::gloo
