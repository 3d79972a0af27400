#include "runtime/host/debug.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "runtime/host/mutex.h"
#include "runtime/host/number_text.h"

namespace megjit::runtime {
namespace {

constexpr Switch kSwitches[] = {
    {"MGB_JIT_BACKEND",
     "compiler of fused kernels: MLIR, HALIDE or NVRTC; default: the best for the device"},
    {"MEGJIT_COMPILE",
     "async (default): calls run without the kernels that are being compiled; sync: they wait for them; off: no kernels are compiled"},
    {"MEGJIT_COMPILE_BUDGET",
     "seconds after which a traced function stops waiting for kernels that are not compiled yet; default: 60"},
    {"MEGJIT_TUNE",
     "whether a product is the library's or a generated kernel's: cached (default): as was measured on this machine, else by a model; on: measures what was not yet; off: by the model"},
    {"MEGJIT_DUMP",
     "stages to print, separated by commas: trace, a pass's name, plan, kernel, file, or all; `all@folder` or `@folder` writes files"},
    {"MEGJIT_SKIP",
     "passes to leave out, separated by commas: the first thing to try if a result is wrong"},
    {"MEGJIT_CHECK",
     "1: verify the graph after every pass, check every memory plan, compare every kernel with the interpreter, and each call that skips its Python body with one that does not; N: every N-th of these calls"},
    {"MEGJIT_MEMORY_CAP",
     "bytes, or text such as 11GB: the most memory that is taken from the system (megengine.device.set_memory_cap)"},
    {"MEGJIT_MEMORY_LIMIT",
     "bytes, or text such as 6GB: memory_limit of traced functions without one of their own"},
    {"MEGJIT_VERSION_MEMORY",
     "bytes, or text such as 1GB: the most that the versions of a traced function, one for each shape, hold beside its arena; default: 512MB"},
    {"MGB_SUBLINEAR_MEMORY_THRESH_NR_TRY",
     "SublinearMemoryConfig.thresh_nr_try of all traced functions that have a config"},
    {"MGB_SUBLINEAR_MEMORY_GENETIC_NR_ITER", "likewise genetic_nr_iter"},
    {"MGB_SUBLINEAR_MEMORY_GENETIC_POOL_SIZE", "likewise genetic_pool_size"},
    {"MGB_SUBLINEAR_MEMORY_LOWER_BOUND_MB", "likewise lb_memory_mb"},
    {"MGB_SUBLINEAR_MEMORY_WORKERS", "likewise num_worker"},
    {"MEGJIT_PROGRESS",
     "0: long calls show no progress; default: they show it where stderr is a terminal"},
    {"MEGJIT_CACHE_DIR",
     "folder of compiled kernels; default: megjit/kernels under the XDG cache home; empty: no cache"},
    {"MEGJIT_PLUGIN_DIR",
     "folder of the kernel compilers' plug-ins; default: the package's folder"},
    {"MEGJIT_NVRTC",
     "path of libnvrtc.so; default: the loader's path, the nvidia-cuda-nvrtc package, /usr/local/cuda*"},
    {"MEGJIT_CUDNN",
     "path of libcudnn.so.9; default: the emulated GPU's, if there is one; else the loader's path, the nvidia-cudnn-cu13 package, /usr/local/cuda*"},
    {"MEGJIT_CUBLASLT",
     "path of libcublasLt.so; default: the emulated GPU's, if there is one; else the loader's path, the nvidia-cublas package, /usr/local/cuda*"},
    {"MEGJIT_NCCL",
     "path of libnccl.so.2; default: the loader's path, the nvidia-nccl-cu13 package, /usr/local/cuda*"},
    {"MEGJIT_COMM",
     "what init_process_group takes where the program names no backend: mpi, gloo, local, tcp, nccl or auto, the default"},
    {"MEGJIT_CROSS_MEMORY",
     "0: processes of one machine exchange all through sockets; default: they read large tensors from each other's memory, where the system permits it"},
    {"MEGJIT_OVERFLOW",
     "silent: an integer from Python or NumPy that its dtype cannot hold becomes another one; default: OverflowError"},
    {"MEGJIT_ISA",
     "highest level of instructions that is used: avx2, avx512, avx512_vnni or amx; "
     "on Arm neon, dotprod, i8mm, bf16 or sve2; default: the machine's"},
    {"MEGJIT_EMULATED_GPUS",
     "for tests: number of emulated devices gpu0, gpu1, ..., which compute on the host, asynchronously and in memory of their own"},
    {"MEGJIT_CARD_ARCH",
     "for tests: compute capability of an emulated card: 80, 90 (default) or 100; tests/card/emulator reads it, and MEGJIT_EMULATED_GPUS"},
    {"MEGJIT_CARD_DRIVER",
     "for tests: version of CUDA that the driver of an emulated card gives as its own, such as 12.4"},
    {"MEGJIT_CARD_FAIL",
     "for tests: name:n lets the n-th call of that function of an emulated card's driver fail, as if there were no memory"},
    {"MEGJIT_CARD_HMM",
     "for tests: 1: an emulated card reads pageable memory when a copy runs, not when it is queued"},
    {"MEGJIT_CUDA_DRIVER", "path of the CUDA driver library; default: libcuda.so.1"},
    {"OMP_NUM_THREADS",
     "largest number of threads on the host, within the container's CPU quota and the cores that the process may use; megengine.device.set_num_threads overrides all three"},
};

using Given = std::map<std::string, std::string>;  // values of set_switch()

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts;
    for (size_t from = 0; from < list.size();) {
        const size_t comma = std::min(list.find(',', from), list.size());
        if (comma > from) parts.push_back(list.substr(from, comma - from));
        from = comma + 1;
    }
    return parts;
}

Debug load(const Given& given) {
    const auto read = [&](const char* name) -> std::string {
        if (const auto there = given.find(name); there != given.end()) return there->second;
        const char* value = std::getenv(name);
        return value ? value : "";
    };
    Debug debug;
    debug.check = !read("MEGJIT_CHECK").empty() && read("MEGJIT_CHECK") != "0";
    debug.jit_backend = read("MGB_JIT_BACKEND");
    debug.compile = read("MEGJIT_COMPILE");
    if (const std::string budget = read("MEGJIT_COMPILE_BUDGET"); !budget.empty())
        debug.compile_budget = number_in(budget).value_or(0);
    debug.tune = read("MEGJIT_TUNE");
    debug.cache_dir = read("MEGJIT_CACHE_DIR");
    if (const auto there = given.find("MEGJIT_CACHE_DIR"); there != given.end())
        debug.given_cache_dir = there->second;
    debug.plugin_dir = read("MEGJIT_PLUGIN_DIR");
    debug.nvrtc = read("MEGJIT_NVRTC");
    debug.cudnn = read("MEGJIT_CUDNN");
    debug.cublaslt = read("MEGJIT_CUBLASLT");
    debug.nccl = read("MEGJIT_NCCL");
    debug.overflow_is_silent = read("MEGJIT_OVERFLOW") == "silent";
    debug.cross_memory = read("MEGJIT_CROSS_MEMORY") != "0";
    debug.cuda_driver = read("MEGJIT_CUDA_DRIVER");
    debug.isa = read("MEGJIT_ISA");
    debug.omp_threads = std::atoi(read("OMP_NUM_THREADS").c_str());  // "4,2" gives 4
    debug.emulated_gpus = std::clamp(std::atoi(read("MEGJIT_EMULATED_GPUS").c_str()), 0, 16);
    debug.skipped = split(read("MEGJIT_SKIP"));
    std::string dump = read("MEGJIT_DUMP");
    if (const size_t sign = dump.find('@'); sign != std::string::npos) {
        debug.dump_dir = dump.substr(sign + 1);
        dump = sign == 0 ? "all" : dump.substr(0, sign);
    }
    debug.dumped = split(dump);
    return debug;
}

// All readings stay: a thread may still look at an older one.
struct Readings {
    Mutex mutex{"the environment"};
    std::deque<Debug> all;
    Given given;
    std::atomic<const Debug*> newest;
    Readings() { read_again(); }
    void read_again(const Given& more = {}) {
        const std::lock_guard lock(mutex);
        for (const auto& [name, value] : more) given[name] = value;
        newest.store(&all.emplace_back(load(given)), std::memory_order_release);
        Mutex::check(all.back().check);
    }
};
Readings& readings() {
    static auto* const instance = new Readings;  // never destroyed: threads outlive main()
    return *instance;
}

bool holds(const std::vector<std::string>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

std::span<const Switch> switches() { return kSwitches; }
const Debug& debug() { return *readings().newest.load(std::memory_order_acquire); }
void reload_debug() { readings().read_again(); }
void set_switch(const std::string& name, const std::string& value) {
    readings().read_again({{name, value}});
}

bool Debug::skips(std::string_view pass) const { return holds(skipped, pass); }

void Debug::dump(std::string_view stage, std::initializer_list<Form> forms) const {
    if (dumped.empty() || (!holds(dumped, stage) && !holds(dumped, "all"))) return;
    if (dump_dir.empty()) {
        std::fprintf(stderr, "--- %.*s\n%s", static_cast<int>(stage.size()), stage.data(),
                     forms.begin()->text().c_str());
        return;
    }
    static std::atomic<int> serial{0};
    std::error_code ignored;  // a dump that cannot be written must not stop the program
    std::filesystem::create_directories(dump_dir, ignored);
    char number[16];
    std::snprintf(number, sizeof number, "%03d-", serial++);
    for (const Form& form : forms) {
        const std::filesystem::path path =
            std::filesystem::path(dump_dir) /
            (number + std::string(stage) + std::string(form.extension));
        static std::atomic<bool> is_told{false};
        if (!(std::ofstream(path) << form.text() << std::flush) && !is_told.exchange(true))
            std::fprintf(stderr, "megjit: MEGJIT_DUMP: %s cannot be written\n", path.c_str());
    }
}

}  // namespace megjit::runtime
