// megjit-run: runs a dumped model on arrays of NumPy, compares its outputs, and tells what it
// costs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "jit/api/run/npy.h"

namespace megjit::run { namespace {

constexpr const char* kUsage = R"(usage: megjit-run MODEL [--input NAME=FILE.npy]... [options]

  --input NAME=FILE.npy  an input; all are needed
  --repeat N             runs N times more, and prints what a run takes
  --check FILE.npz       compares outputs with the arrays of their names; exits with 1 where one differs
  --profile              prints the steps and their times as JSON
  --level N              opt_level, 0 to 3; default: 3
  --function NAME        of a file with several functions; default: the first
  --trust                uses the compiled kernels of a packaged file: code that will run
  --device NAME          such as gpu0; default: cpu0
  --batch N              so many samples, in place of those of the file
)";

struct Options {
    std::string model, check;
    std::vector<std::pair<std::string, std::string>> inputs;
    int repeat = 0;
    megjit_model_options of_model = MEGJIT_MODEL_OPTIONS_DEFAULT;
};

[[noreturn]] void refuse(const std::string& what) {
    throw std::runtime_error("megjit-run: " + what + "\n" + kUsage);
}

int number_from(const char* text, const char* option) {
    char* end = nullptr;
    const long number = std::strtol(text, &end, 10);
    if (end == text || *end || number < 0 || number > 1000000)
        refuse(std::string(option) + " needs a number, not " + text);
    return static_cast<int>(number);
}

Options options_from(int argc, char** argv) {
    Options options;
    options.of_model.opt_level = 3;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto value = [&] {
            if (i + 1 == argc) refuse(word + " needs a value");
            return argv[++i];
        };
        if (word == "--input") {
            const std::string pair = value();
            const std::size_t sign = pair.find('=');
            if (sign == std::string::npos) refuse("--input needs NAME=FILE.npy, not " + pair);
            options.inputs.emplace_back(pair.substr(0, sign), pair.substr(sign + 1));
        } else if (word == "--repeat") {
            options.repeat = number_from(value(), "--repeat");
        } else if (word == "--check") {
            options.check = value();
        } else if (word == "--profile") {
            options.of_model.profile = 1;
        } else if (word == "--level") {
            options.of_model.opt_level = number_from(value(), "--level");
        } else if (word == "--function") {
            options.of_model.function = value();
        } else if (word == "--trust") {
            options.of_model.trusts_kernels = 1;
        } else if (word == "--batch") {
            options.of_model.batch = number_from(value(), "--batch");
        } else if (word == "--device") {
            options.of_model.device = value();
        } else if (word.starts_with("-") || !options.model.empty()) {
            refuse("what is " + word + "?");
        } else {
            options.model = word;
        }
    }
    if (options.model.empty()) refuse("no model was given");
    return options;
}

Tensor tensor_of(const Array& array) {
    Tensor tensor(array.dtype, array.shape);
    void* data = nullptr;
    check(megjit_tensor_data(tensor.handle(), &data));
    std::memcpy(data, array.bytes.data(), array.bytes.size());
    return tensor;
}

// Floats may differ by 1e-4 of the largest one; other elements not at all.
bool agrees(const Tensor& output, const std::string& name, const Array& wanted) {
    const TensorInfo info = output.info();
    if (info.dtype != wanted.dtype || info.shape != wanted.shape) {
        std::printf("%s: another dtype or shape than in the file\n", name.c_str());
        return false;
    }
    void* data = nullptr;
    check(megjit_tensor_data(output.handle(), &data));
    if (info.dtype != MEGJIT_FLOAT32) {
        const bool is_same = std::memcmp(data, wanted.bytes.data(), wanted.bytes.size()) == 0;
        std::printf("%s: %s\n", name.c_str(), is_same ? "the same bits" : "differs");
        return is_same;
    }
    const std::span<const float> found = output.as<float>();
    float largest = 0, error = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
        float number = 0;
        std::memcpy(&number, wanted.bytes.data() + i * sizeof number, sizeof number);
        if (found[i] == number || (std::isnan(found[i]) && std::isnan(number))) continue;
        largest = std::max(largest, std::abs(number));
        const float difference = std::abs(found[i] - number);
        error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    }
    const bool is_close = error <= 1e-4f * largest;
    std::printf("%s: largest difference %g, %s\n", name.c_str(), error,
                is_close ? "agrees" : "differs");
    return is_close;
}

bool check_outputs(const Model& model, std::span<const Tensor> outputs, const std::string& path) {
    std::map<std::string, Array> wanted = arrays_from(bytes_of(path), path);
    const std::vector<TensorInfo> ports = model.outputs();
    bool all_agree = true;
    for (std::size_t i = 0; i < ports.size(); ++i)
        if (const auto array = wanted.extract(ports[i].name))
            all_agree = agrees(outputs[i], ports[i].name, array.mapped()) && all_agree;
    if (!wanted.empty())
        throw std::runtime_error("the model has no output " + wanted.begin()->first +
                                 "\n  fix: name the arrays of " + path + " as its outputs");
    return all_agree;
}

int run(const Options& options) {
    const Model model(options.model, options.of_model);
    Context context(model);
    std::vector<Tensor> given;
    std::vector<std::pair<std::string, const Tensor*>> inputs;
    given.reserve(options.inputs.size());
    for (const auto& [name, path] : options.inputs) {
        given.push_back(tensor_of(array_from(bytes_of(path), path)));
        inputs.emplace_back(name, &given.back());
    }
    std::vector<std::string> names;
    for (const TensorInfo& port : model.outputs()) names.push_back(port.name);
    const std::vector<Tensor> outputs = context.run(inputs, names);

    std::vector<double> milliseconds;
    for (int i = 0; i < options.repeat; ++i) {
        const auto start = std::chrono::steady_clock::now();
        context.run(inputs, names);
        const std::chrono::duration<double, std::milli> time =
            std::chrono::steady_clock::now() - start;
        milliseconds.push_back(time.count());
    }
    std::sort(milliseconds.begin(), milliseconds.end());
    if (!milliseconds.empty())
        std::printf("%zu runs: median %.3f ms, least %.3f ms, most %.3f ms\n", milliseconds.size(),
                    milliseconds[milliseconds.size() / 2], milliseconds.front(),
                    milliseconds.back());
    if (options.of_model.profile) std::printf("%s\n", model.json("profile").c_str());
    return options.check.empty() || check_outputs(model, outputs, options.check) ? 0 : 1;
}

}}  // namespace megjit::run

int main(int argc, char** argv) try {
    return megjit::run::run(megjit::run::options_from(argc, argv));
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
}
