// Random programs through a back-end, against the eager kernels.
//   graph_fuzz --programs 1000 --seed 1 --backend MLIR|HALIDE|NVRTC [--device gpu0] [--most 1.2]
// Programs run in child processes, a batch in each: a crash
// is a failure like any other, and what was compiled is given back. Each failure is made small and
// printed with its seed;
// `--seed N --programs 1` shows it again. With --most, moving more bytes than that part of what the
// unfused graph moves, or a higher peak of memory, is a failure too.
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <tuple>

#include "runtime/host/error.h"
#include "tests/fuzz/backends.h"
#include "tests/fuzz/judge.h"
#include "tests/fuzz/minimize.h"

namespace megjit::fuzz { namespace {

constexpr time_t kMostSeconds =
    60;  // of the processor, for one program: a busy machine is no fault
constexpr int kMostTries = 300;  // to make a failure small: each is a child of its own

// Written by the child, read by the parent.
struct Shared {
    uint64_t seed = 0;  // the one that runs
    uint64_t programs = 0, nodes = 0, kernels = 0, failures = 0;
    // Tame programs, fused and not (`plain`: as recorded).
    uint64_t measured = 0, more_traffic = 0, more_traffic_than_plain = 0, more_peak = 0,
             more_peak_than_plain = 0;
    uint64_t worst_traffic_seed = 0, worst_plain_seed = 0, worst_peak_seed = 0,
             worst_plain_peak_seed = 0;
    double worst_traffic = 0, worst_plain = 0, worst_peak = 0, worst_plain_peak = 0;
    uint64_t traffic = 0, unfused_traffic = 0, plain_traffic = 0, arena = 0, unfused_arena = 0,
             plain_arena = 0;
};

struct Options {
    uint64_t programs = 200, seed = 1, batch = 0;
    std::string backend = "MLIR";
    double most = 0;  // of the unfused graph's bytes; 0: does not matter
    std::string device = "cpu0";
};

Temper temper_of(uint64_t seed) { return seed % 2 ? Temper::tame : Temper::wild; }

void limit_seconds(time_t seconds) {
    const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
    setitimer(ITIMER_PROF, &limit, nullptr);
}

// True if `body` returns true, or crashes, or takes too long.
template <class Body>
bool fails_in_child(const Body& body) {
    std::cout.flush();
    const pid_t child = fork();
    if (child == 0) {
        limit_seconds(kMostSeconds);
        const bool failed = body();
        std::cout.flush();
        _exit(failed);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}

// What fusion costs, against the same graph unfused.
std::string excess_of(const Subject& subject, double most) {
    const Footprint fused = footprint_of(optimized(subject.graph, Temper::tame), subject.graph);
    const Footprint unfused =
        footprint_of(optimized(subject.graph, Temper::tame, {"fuse", "batch"}), subject.graph);
    for (const auto& [what, ours, theirs] :
         {std::tuple("bytes moved", fused.traffic, unfused.traffic),
          std::tuple("peak of memory", fused.peak_live, unfused.peak_live)})
        if (static_cast<double>(ours) > most * static_cast<double>(theirs))
            return runtime::cat(what, ": ", ours, " instead of ", theirs);
    return "";
}

std::string fault_of_one(const Subject& subject, Temper temper, const Options& options) {
    const std::string fault = fault_of(subject, temper, runtime::find_device(options.device));
    return fault.empty() && options.most > 0 && temper == Temper::tame
               ? excess_of(subject, options.most)
               : fault;
}

void report(uint64_t seed, const std::string& fault, const Options& options) {
    std::cout << "FAILURE seed " << seed << ", " << options.backend << ": " << fault << "\n"
              << std::flush;
    fails_in_child([&] {
        const Temper temper = temper_of(seed);
        const Subject whole = random_subject(seed, temper);
        int tries = 0;
        const auto fails = [&](const Subject& subject) {
            return ++tries <= kMostTries &&
                   fails_in_child([&] { return !fault_of_one(subject, temper, options).empty(); });
        };
        limit_seconds(20 * kMostSeconds);
        if (!fails(whole)) {
            std::cout << "does not fail by itself:\n" << print(whole.graph);
            return false;
        }
        const Subject small = minimize(whole, fails);
        std::cout << "smallest graph that fails:\n" << print(small.graph);
        for (size_t slot = 0; slot < small.inputs.size(); ++slot) {
            std::cout << "input " << slot << ":";
            for (int64_t i = 0; i < std::min<int64_t>(small.inputs[slot]->type().numel(), 16); ++i)
                std::cout << " " << item_as_double(*small.inputs[slot], i);
            std::cout << "\n";
        }
        std::cout.flush();
        fails_in_child([&] {
            std::cout << "there: " << fault_of_one(small, temper, options) << "\n" << std::flush;
            try {
                std::cout << print(optimized(small.graph, temper));
            } catch (const runtime::Error&) {  // it is the fault that was printed
            }
            return false;
        });
        return false;
    });
}

void note_ratio(size_t ours, size_t theirs, uint64_t seed, uint64_t& count, double& worst,
                uint64_t& worst_seed) {
    if (ours <= theirs) return;
    ++count;
    const double ratio =
        static_cast<double>(ours) / static_cast<double>(std::max<size_t>(theirs, 1));
    if (theirs > 0 && ratio > worst) worst = ratio, worst_seed = seed;
}

void measure(const Subject& subject, const Graph& graph, uint64_t seed, Shared& shared) {
    const Footprint fused = footprint_of(graph, subject.graph);
    const Footprint unfused =
        footprint_of(optimized(subject.graph, Temper::tame, {"fuse", "batch"}), subject.graph);
    const Footprint plain = footprint_of(
        optimized(subject.graph, Temper::tame, {"expand", "fuse", "batch"}), subject.graph);
    ++shared.measured;
    shared.traffic += fused.traffic, shared.unfused_traffic += unfused.traffic,
        shared.plain_traffic += plain.traffic;
    shared.arena += fused.arena, shared.unfused_arena += unfused.arena,
        shared.plain_arena += plain.arena;
    note_ratio(fused.traffic, unfused.traffic, seed, shared.more_traffic, shared.worst_traffic,
               shared.worst_traffic_seed);
    note_ratio(fused.traffic, plain.traffic, seed, shared.more_traffic_than_plain,
               shared.worst_plain, shared.worst_plain_seed);
    note_ratio(fused.peak_live, unfused.peak_live, seed, shared.more_peak, shared.worst_peak,
               shared.worst_peak_seed);
    note_ratio(fused.peak_live, plain.peak_live, seed, shared.more_peak_than_plain,
               shared.worst_plain_peak, shared.worst_plain_peak_seed);
}

void run_batch(uint64_t first, uint64_t last, const Options& options, Shared& shared) {
    for (uint64_t seed = first; seed < last; ++seed) {
        shared.seed = seed;
        limit_seconds(kMostSeconds);
        const Temper temper = temper_of(seed);
        const Subject subject = random_subject(seed, temper);
        const Graph graph = optimized(subject.graph, temper);
        ++shared.programs;
        for (const jit::Node& node : subject.graph.nodes())
            shared.nodes += node.kind == jit::NodeKind::op;
        for (const jit::Node& node : graph.nodes())
            shared.kernels += node.kind == jit::NodeKind::fused;
        const std::string fault = fault_of_one(subject, temper, options);
        if (!fault.empty() && options.device != "cpu0") {
            std::cout << fault << "\n" << std::flush;
            _exit(1);  // the parent reports: a GPU that is in use bears no fork
        } else if (!fault.empty()) {
            ++shared.failures;
            report(seed, fault, options);
        } else if (temper == Temper::tame && options.device == "cpu0") {
            measure(subject, graph, seed, shared);
        }
    }
}

double ratio(uint64_t a, uint64_t b) {
    return static_cast<double>(a) / static_cast<double>(std::max<uint64_t>(b, 1));
}

void summarize(const Shared& s, const Options& options) {
    std::printf("%s on %s: %lu programs, %lu nodes, %lu kernels, %lu failures\n",
                options.backend.c_str(), options.device.c_str(), s.programs, s.nodes, s.kernels,
                s.failures);
    if (!s.measured) return;
    std::printf(
        "bytes moved: %.3f of unfused, %.3f of recorded; arena: %.3f of unfused, %.3f of recorded (%lu programs)\n",
        ratio(s.traffic, s.unfused_traffic), ratio(s.traffic, s.plain_traffic),
        ratio(s.arena, s.unfused_arena), ratio(s.arena, s.plain_arena), s.measured);
    std::printf(
        "moves more than unfused: %lu (worst %.3f, seed %lu); than recorded: %lu (worst %.3f, seed %lu)\n",
        s.more_traffic, s.worst_traffic, s.worst_traffic_seed, s.more_traffic_than_plain,
        s.worst_plain, s.worst_plain_seed);
    std::printf(
        "higher peak than unfused: %lu (worst %.3f, seed %lu); than recorded: %lu (worst %.3f, seed %lu)\n",
        s.more_peak, s.worst_peak, s.worst_peak_seed, s.more_peak_than_plain, s.worst_plain_peak,
        s.worst_plain_peak_seed);
}

// Kernels of the fuzzer are of no use to anybody else.
class CacheFolder {
public:
    CacheFolder() {
        mkdtemp(path_.data());
        setenv("MEGJIT_CACHE_DIR", path_.c_str(), 1);
    }
    ~CacheFolder() { std::filesystem::remove_all(path_); }
    void clear() const {
        for (const auto& file : std::filesystem::directory_iterator(path_))
            std::filesystem::remove_all(file);
    }

private:
    std::string path_ = std::filesystem::temp_directory_path() / "megjit-fuzz-XXXXXX";
};

int fuzz(const Options& options) {
    const CacheFolder cache;
    Shared& shared = *new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
    const uint64_t end = options.seed + options.programs,
                   batch = options.batch ? options.batch : 250;
    for (uint64_t first = options.seed; first < end;) {
        const uint64_t last = std::min(end, first + batch);
        const bool crashed = fails_in_child([&] {
            run_batch(first, last, options, shared);
            return false;
        });
        if (crashed) {
            ++shared.failures;
            report(shared.seed, "crashed, took too long, or failed on a GPU", options);
        }
        first = crashed ? shared.seed + 1 : last;
        cache.clear();
    }
    summarize(shared, options);
    return shared.failures != 0;
}

// A GPU that is in use bears no fork: a child looks.
bool has_device(const std::string& name) {
    return !fails_in_child([&] {
        try {
            runtime::find_device(name);
            return false;
        } catch (const runtime::UserError& error) {
            std::cerr << error.what() << "\n";
            return true;
        }
    });
}

std::optional<Options> parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string flag = argv[i], value = argv[i + 1];
        if (flag == "--programs") options.programs = std::stoull(value);
        else if (flag == "--seed") options.seed = std::stoull(value);
        else if (flag == "--batch") options.batch = std::stoull(value);
        else if (flag == "--backend") options.backend = value;
        else if (flag == "--device") options.device = value;
        else if (flag == "--most") options.most = std::stod(value);
        else return std::nullopt;
    }
    return argc % 2 ? std::optional(options) : std::nullopt;
}

}}  // namespace megjit::fuzz

int main(int argc, char** argv) {
    const auto options = megjit::fuzz::parse(argc, argv);
    if (!options) {
        std::cerr
            << "usage: graph_fuzz [--programs N] [--seed S] [--backend MLIR|HALIDE|NVRTC] [--device gpu0] [--batch N] [--most RATIO]\n";
        return 2;
    }
    setenv("MGB_JIT_BACKEND", options->backend.c_str(), 1);
    megjit::fuzz::start_backends();
    if (!megjit::fuzz::has_device(options->device)) return 1;
    return megjit::fuzz::fuzz(*options);
}
