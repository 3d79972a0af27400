#include "codegen/tuning.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>

#include "codegen/host_cpu.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/number_text.h"
#include "runtime/host/parallel.h"

namespace megjit::codegen {
namespace {

using runtime::cat;

std::string key_of(const std::string& problem) {
    return cat("timing\n", cpu_model(), ", ", host_features(), ", ", runtime::thread_count(),
               " threads, megjit " MEGJIT_VERSION "\n", problem);
}

// "library 0.002 tiles 0.0015"
std::string to_text(const Timing& timing) {
    std::string text;
    for (const auto& [candidate, seconds] : timing)
        text += cat(text.empty() ? "" : " ", candidate, " ", runtime::number_text(seconds, 9));
    return text;
}

std::optional<Timing> from_text(const std::string& text) {
    std::istringstream words(text);
    Timing timing;
    std::string candidate;
    for (double seconds = 0; words >> candidate; timing[candidate] = seconds)
        if (!(words >> seconds) || !std::isfinite(seconds) || seconds <= 0) return {};
    if (timing.empty()) return {};
    return timing;
}

}  // namespace

TuneMode tune_mode() {
    const std::string& mode = runtime::debug().tune;
    if (mode.empty() || mode == "cached") return TuneMode::cached;
    if (mode == "on") return TuneMode::on;
    if (mode == "off") return TuneMode::off;
    runtime::user_error({.what = cat("MEGJIT_TUNE=", mode, " is not a way to choose kernels"),
                         .why = "valid are off, cached and on",
                         .fix = "leave it unset, for cached"});
}

Timings& Timings::instance() {
    static auto* const timings =
        new Timings(default_cache_folder());  // never destroyed: threads outlive main()
    return *timings;
}

std::optional<Timing> Timings::find(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = known_.try_emplace(problem);
    if (is_new)
        if (const auto text = disk_.find(key_of(problem))) it->second = from_text(*text);
    return it->second;
}

void Timings::keep(const std::string& problem, Timing timing) {
    {
        const std::lock_guard lock(mutex_);
        known_[problem] = timing;
    }
    disk_.store(key_of(problem), to_text(timing));
}

std::map<std::string, Timing> Timings::all() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, Timing> found;
    for (const auto& [problem, timing] : known_)
        if (timing) found.emplace(problem, *timing);
    return found;
}

}  // namespace megjit::codegen
