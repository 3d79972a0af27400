// tests/backends/ptxas.h -- NVIDIA's assembler, which finishes PTX for one architecture and says
// what a kernel needs there. Needs no GPU; MEGJIT_PTXAS names it (pip install nvidia-cuda-nvcc).
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <string>

#include "runtime/host/error.h"

namespace megjit::codegen {

struct Resources {
    int registers = 0, shared_bytes = 0, stack_bytes = 0;
    int spilled_bytes = 0;  // written and read where registers did not suffice
};

inline const char* ptxas() {
    const char* path = std::getenv("MEGJIT_PTXAS");
    return path && *path ? path : nullptr;
}

// Returns the most of each that a kernel in `ptx` takes. DeviceError with the assembler's words
// where it refuses.
inline Resources resources_of(const std::string& ptx, int arch) {
    namespace fs = std::filesystem;
    const fs::path base =
        fs::temp_directory_path() / runtime::cat("megjit_", ::getpid(), "_", arch);
    const fs::path source = fs::path(base).concat(".ptx"), log = fs::path(base).concat(".log");
    std::ofstream(source) << ptx.c_str();  // without the zero behind its end
    const std::string command = runtime::cat(ptxas(), " -v -arch=sm_", arch, " -o /dev/null ",
                                             source.string(), " >", log.string(), " 2>&1");
    const int status = std::system(command.c_str());
    std::stringstream words;
    words << std::ifstream(log).rdbuf();
    fs::remove(source), fs::remove(log);
    const std::string text = words.str();
    if (status != 0) throw runtime::DeviceError(runtime::cat("ptxas: ", text, "\n", ptx));
    const auto number = [&](const char* pattern) {
        const std::regex wanted(pattern);
        int most = 0;
        for (std::sregex_iterator at(text.begin(), text.end(), wanted), end; at != end; ++at)
            most = std::max(most, std::stoi((*at)[1]));
        return most;
    };
    return {.registers = number("Used ([0-9]+) registers"),
            .shared_bytes = number("([0-9]+) bytes smem"),
            .stack_bytes = number("([0-9]+) bytes stack frame"),
            .spilled_bytes =
                number("([0-9]+) bytes spill stores") + number("([0-9]+) bytes spill loads")};
}

}  // namespace megjit::codegen
