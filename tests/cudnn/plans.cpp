// Plans every op of the networks for described cards, without one, and compares what is refused
// with a table. Prints for each op what plans it, its workspace and the time.
//   cudnn_plans [--sample] [--cards sm_80,sm_90,sm_100] [--types f32,tf32,f16,bf16] [--only TEXT]
//               [--refusals FILE] [--write]
#include <ctime>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "backends/cuda/products/product.h"
#include "runtime/host/error.h"
#include "runtime/host/nvidia_libraries.h"
#include "tests/cudnn/networks.h"

namespace megjit::cuda { namespace {

using runtime::cat;
using runtime::DType;
using runtime::Layout;

struct Options {
    bool sample = false, write = false;
    std::string cards = "sm_80,sm_90,sm_100", types = "f32,tf32,f16,bf16", only, refusals;
};

Options options_of(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--sample") options.sample = true;
        else if (word == "--write") options.write = true;
        else if (i + 1 < argc && word == "--cards") options.cards = argv[++i];
        else if (i + 1 < argc && word == "--types") options.types = argv[++i];
        else if (i + 1 < argc && word == "--only") options.only = argv[++i];
        else if (i + 1 < argc && word == "--refusals") options.refusals = argv[++i];
        else runtime::user_error({.what = cat("cudnn_plans: what is ", word, "?")});
    }
    return options;
}

bool has(const std::string& list, const std::string& word) {
    return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// How values are stored, and how products of them are computed.
struct Numbers {
    std::string name;
    DType dtype;
    bool tf32 = false;
};
const Numbers kNumbers[] = {
    {"f32", DType::f32}, {"tf32", DType::f32, true}, {"f16", DType::f16}, {"bf16", DType::bf16}};

class Run {
public:
    explicit Run(const Options& options) : options_(options) {}

    void plan(const CardDescription& card, const Numbers& numbers, const OpCase& c) {
        if (c.text().find(options_.only) == std::string::npos) return;
        if (c.op.starts_with("matmul") && !runtime::find_library(runtime::NvidiaLibrary::cublaslt))
            return;
        const std::string name = cat("sm_", card.arch, " ", numbers.name, " ", c.text());
        const runtime::OpCall call = c.call();
        std::string why_not;
        const std::clock_t start = std::clock();
        const auto product =
            make_product(call, runtime::infer(call), card, {.tf32 = numbers.tf32}, &why_not);
        const double time = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        std::cout << c.network << ": " << name << ": "
                  << (product ? product->describe() : "REFUSED: " + why_not) << " (" << time
                  << " s of CPU)" << std::endl;
        if (!product) refused_.insert(name);
        else ++planned_, largest_ = std::max(largest_, product->workspace_bytes());
    }

    // 1 where the table differs from what was refused.
    int finish() const {
        std::cout << planned_ << " planned, " << refused_.size() << " refused, workspaces of up to "
                  << largest_ << " bytes\n";
        if (options_.refusals.empty()) return 0;
        std::set<std::string> expected, others;
        std::ifstream file(options_.refusals);
        for (std::string line; std::getline(file, line);)
            (is_asked_for(line) ? expected : others).insert(line);
        if (options_.write) {
            others.insert(refused_.begin(), refused_.end());
            std::ofstream table(options_.refusals);
            for (const std::string& name : others) table << name << "\n";
            return 0;
        }
        for (const std::string& name : refused_)
            if (!expected.contains(name)) std::cout << "newly refused: " << name << "\n";
        for (const std::string& name : expected)
            if (!refused_.contains(name)) std::cout << "no longer refused: " << name << "\n";
        return refused_ == expected ? 0 : 1;
    }

private:
    bool is_asked_for(const std::string& line) const {
        std::istringstream words(line);
        std::string card, numbers;
        words >> card >> numbers;
        return has(options_.cards, card) && has(options_.types, numbers) &&
               line.find(options_.only) != std::string::npos;
    }

    const Options& options_;
    std::set<std::string> refused_;
    int planned_ = 0;
    size_t largest_ = 0;
};

int run(const Options& options) {
    Run run(options);
    for (const CardDescription& card : {a100(), h100(), b200()})
        for (const Numbers& numbers : kNumbers)
            for (Layout layout : {Layout::channels_last, Layout::row_major})
                // What tensor cores compute is laid out for them.
                if ((layout == Layout::channels_last || numbers.name == "f32") &&
                    has(options.cards, cat("sm_", card.arch)) && has(options.types, numbers.name))
                    for (const OpCase& c :
                         (options.sample ? sample_cases : network_cases)(numbers.dtype, layout))
                        run.plan(card, numbers, c);
    return run.finish();
}

}}  // namespace megjit::cuda

int main(int argc, char** argv) {
    try {
        return megjit::cuda::run(megjit::cuda::options_of(argc, argv));
    } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        return 2;
    }
}
