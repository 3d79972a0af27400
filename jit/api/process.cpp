#include "jit/api/process.h"

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "codegen/compiler.h"
#include "codegen/disk_cache.h"
#include "jit/api/backends.h"
#include "jit/api/c_error.h"
#include "runtime/host/debug.h"
#include "runtime/host/isa.h"
#include "runtime/host/parallel.h"
#include "runtime/host/plugin_path.h"

namespace megjit::api {
namespace {

std::atomic<bool> has_started{false};

}  // namespace

void ensure_started() {
    static const bool started = [] {
        start(runtime::plugin_folder(), MEGJIT_LIBHALIDE);
        // The thread that compiles must not meet the destructors of the libraries that it uses.
        std::atexit([] { codegen::KernelService::instance().stop(std::chrono::seconds(5)); });
        return true;
    }();
    has_started = started;
}

}  // namespace megjit::api

using namespace megjit;
using megjit::api::guarded;

extern "C" int32_t megjit_api_version(void) { return MEGJIT_API_VERSION; }

extern "C" megjit_status megjit_configure(const megjit_process_options* options) {
    return guarded([&] {
        const megjit_process_options wanted = api::options_from<megjit_process_options>(
            &api::not_null(options, "options"), MEGJIT_PROCESS_OPTIONS_DEFAULT);
        if (api::has_started)
            runtime::user_error({.what = "megjit_configure was called after the first use",
                                 .why = "what it sets is read once",
                                 .fix = "call it before any other function"});
        if (wanted.threads < 0)
            runtime::user_error({.what = runtime::cat("threads is ", wanted.threads),
                                 .fix = "give a number from 1, or 0 for what is granted"});
        if (wanted.isa) {
            runtime::bounded_isa(wanted.isa, runtime::machine_isa());  // UserError for no level
            runtime::set_switch("MEGJIT_ISA", wanted.isa);
        }
        if (wanted.cache_folder) runtime::set_switch("MEGJIT_CACHE_DIR", wanted.cache_folder);
        if (wanted.plugin_folder) runtime::set_switch("MEGJIT_PLUGIN_DIR", wanted.plugin_folder);
        runtime::set_thread_count(wanted.threads);
        if (!wanted.log) return;
        codegen::set_warning_sink([log = wanted.log, data = wanted.log_data](
                                      const std::string& text) { log(data, text.c_str()); });
    });
}
