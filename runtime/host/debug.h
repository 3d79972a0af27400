// runtime/host/debug.h -- every environment variable that megjit reads, in one table (debug.cpp).
// They are read once, at the first use; reload() reads them again.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megjit::runtime {

struct Switch {
    std::string_view name;
    std::string_view doc;
};
std::span<const Switch> switches();

struct Debug {
    bool check = false;  // MEGJIT_CHECK
    std::string jit_backend;  // MGB_JIT_BACKEND
    std::string compile;  // MEGJIT_COMPILE
    double compile_budget = 60;  // MEGJIT_COMPILE_BUDGET, seconds
    std::string tune;  // MEGJIT_TUNE
    std::string cache_dir;  // MEGJIT_CACHE_DIR
    std::optional<std::string> given_cache_dir;  // set by set_switch(); may be empty: no cache
    std::string plugin_dir;  // MEGJIT_PLUGIN_DIR
    std::string nvrtc;  // MEGJIT_NVRTC
    std::string cudnn;  // MEGJIT_CUDNN
    std::string cublaslt;  // MEGJIT_CUBLASLT
    std::string nccl;  // MEGJIT_NCCL
    bool overflow_is_silent = false;  // MEGJIT_OVERFLOW
    bool cross_memory = true;  // MEGJIT_CROSS_MEMORY
    std::string cuda_driver;  // MEGJIT_CUDA_DRIVER
    std::string isa;  // MEGJIT_ISA; runtime/host/isa.h reads it once
    int omp_threads = 0;  // OMP_NUM_THREADS
    int emulated_gpus = 0;  // MEGJIT_EMULATED_GPUS

    bool skips(std::string_view pass) const;  // MEGJIT_SKIP
    // MEGJIT_DUMP: when the stage is wanted, its first form goes to stderr, or each form to
    // NNN-stage<extension> in a folder.
    struct Form {
        std::string_view extension;
        std::function<std::string()> text;
    };
    void dump(std::string_view stage, std::initializer_list<Form> forms) const;

    std::vector<std::string> skipped, dumped;
    std::string dump_dir;
};

const Debug& debug();
void reload_debug();
// From now on this value replaces the environment's: for programs that set no variables.
void set_switch(const std::string& name, const std::string& value);

}  // namespace megjit::runtime
