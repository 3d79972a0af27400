// codegen/tuning.h -- what was measured on this machine: how long a library and generated kernels
// take for a problem (MEGJIT_TUNE). Measurements lie in the cache of kernels on disk. A process
// reads each at most once, so that its kernels, and with them its bits, never change while it runs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "codegen/disk_cache.h"
#include "runtime/host/mutex.h"

namespace megjit::codegen {

// MEGJIT_TUNE: what chooses between a library and a generated kernel.
enum class TuneMode : uint8_t {
    off,  // a model
    cached,  // measurements that exist, else the model
    on,  // measurements, which are made where there are none
};
TuneMode tune_mode();  // UserError when the variable has none of these values

using Timing = std::map<std::string, double>;  // candidate -> seconds

// Thread-safe. Entries of another CPU, instruction set, number of threads or version, and damaged
// ones, are ignored.
class Timings {
public:
    static Timings& instance();
    explicit Timings(std::filesystem::path folder) : disk_(std::move(folder)) {}

    std::optional<Timing> find(const std::string& problem);
    void keep(const std::string& problem, Timing timing);
    std::map<std::string, Timing> all() const;  // what this process has found or measured

private:
    mutable runtime::Mutex mutex_{"measured times"};
    DiskCache disk_;
    std::map<std::string, std::optional<Timing>> known_;
};

}  // namespace megjit::codegen
