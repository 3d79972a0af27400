// Measures every transcendental function against libm in double precision, on some two million
// floats: all exponents with either sign, denormal ones too, and closer together where functions
// bend. Prints a table in Markdown, and fails if a compiler gives other bits than the virtual
// machine.
#include <bit>
#include <cstdio>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/vm/vm.h"
#include "codegen/expand_math.h"
#include "tests/fuzz/backends.h"
#include "tests/numerics/references.h"

namespace megjit::numerics { namespace {

using codegen::KernelIR;
using codegen::LaunchShape;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity(),
                kNaN = std::numeric_limits<float>::quiet_NaN();
const Floats kSpecial = {0.0f,
                         -0.0f,
                         1,
                         -1,
                         2,
                         -2,
                         3,
                         -3,
                         0.5f,
                         -0.5f,
                         kInf,
                         -kInf,
                         kNaN,
                         1e-45f,
                         -1e-45f,
                         1e-40f,
                         -1e-40f,
                         1e30f,
                         -1e30f,
                         3.40282347e38f,
                         -3.40282347e38f,
                         1.17549435e-38f,
                         16777217.0f,
                         4294967296.0f};

Floats points(bool positive_only) {
    Floats x;
    for (uint32_t i = 0; i < 1u << 20; ++i)
        x.push_back(std::bit_cast<float>(i * 4096u + i % 4093u));
    for (int i = 0; i < 1 << 19; ++i)
        x.push_back(static_cast<float>(i - (1 << 18)) * 0x1p-15f + 0x1p-17f);
    for (int i = 0; i < 1 << 19; ++i)
        x.push_back((i % 2 ? 1.0f : -1.0f) * (0.25f + static_cast<float>(i) * 0x1.cp-19f));
    if (positive_only) std::erase_if(x, [](float value) { return std::signbit(value); });
    return x;
}

KernelIR kernel_of(int inputs, const auto& build) {
    KernelIR kernel;
    std::vector<Expr> args;
    for (int i = 0; i < inputs; ++i) {
        kernel.inputs.push_back({});
        args.emplace_back(&kernel.program, kernel.program.input(i, runtime::ScalarType::f32));
    }
    kernel.results = {build(args).id()};
    kernel.outputs = {{}};
    return kernel;
}

// By the virtual machine; every compiler must give the same bits.
Floats compute(const char* name, const KernelIR& kernel, const std::vector<const Floats*>& inputs,
               bool& agree) {
    const auto count = static_cast<int64_t>(inputs[0]->size());
    const LaunchShape launch{{count}, std::vector<int64_t>(inputs.size() + 1, 1)};
    std::vector<void*> in;
    for (const Floats* input : inputs) in.push_back(const_cast<float*>(input->data()));
    Floats result(inputs[0]->size()), other(result.size());
    void* out[] = {result.data()};
    cpu::prepare_vm(kernel, launch)->enqueue(runtime::inline_stream(), in.data(), out, nullptr);
    out[0] = other.data();
    auto& service = codegen::KernelService::instance();
    for (std::string_view backend : service.backends()) {
        service.get(kernel, backend)
            ->fn(in.data(), out, launch.extents.data(), launch.strides.data(), 0, count);
        for (size_t i = 0; i < result.size(); ++i) {
            if (std::bit_cast<uint32_t>(result[i]) == std::bit_cast<uint32_t>(other[i]) ||
                (std::isnan(result[i]) && std::isnan(other[i])))
                continue;
            std::fprintf(stderr, "%s(%.9g): %.9g by the virtual machine, %.9g by %s\n", name,
                         (*inputs[0])[i], result[i], other[i], std::string(backend).c_str());
            agree = false;
            break;
        }
    }
    return result;
}

struct Worst {
    double error = 0, absolute = 0, sum = 0;
    size_t count = 0, at = 0, wrong = 0;
    void note(float got, double want, size_t i) {
        const double e = ulp_error(got, want);
        if (e == kWrong) return void(++wrong);
        sum += e, ++count;
        if (e > error) error = e, at = i;
        if (e > 0)
            absolute = std::max(absolute, std::fabs(got - want) / std::max(1.0, std::fabs(want)));
    }
};

bool row(const Function& f) {
    bool agree = true;
    const KernelIR kernel = kernel_of(1, [&](const std::vector<Expr>& a) { return f.ours(a[0]); });
    const auto measure = [&](const Floats& x) {
        const Floats y = compute(f.name, kernel, {&x}, agree);
        Worst worst;
        for (size_t i = 0; i < x.size(); ++i) worst.note(y[i], f.reference(x[i]), i);
        return worst;
    };
    const Floats x = points(f.positive_only);
    const Worst worst = measure(x), special = measure(kSpecial);
    std::printf("| %s%s | %.2f | %.9g | %.3f | %s |\n", f.name, f.positive_only ? ", x > 0" : "",
                worst.error, x[worst.at], worst.sum / static_cast<double>(worst.count),
                special.wrong + worst.wrong ? "**wrong**" : "right");
    if (f.positive_only) {
        Floats negative = points(false);
        std::erase_if(negative, [](float value) { return !std::signbit(value); });
        const Worst below = measure(negative);
        std::printf("| %s, x < 0 | error at most %.1e of max(1, \\|y\\|) | %.9g | %.3f | %s |\n",
                    f.name, below.absolute, negative[below.at],
                    below.sum / static_cast<double>(below.count),
                    below.wrong ? "**wrong**" : "right");
    }
    return agree && special.wrong + worst.wrong == 0;
}

bool row(const BinaryFunction& f) {
    std::mt19937 random(7);
    Floats x, y;
    for (float a : kSpecial)
        for (float b : kSpecial) x.push_back(a), y.push_back(b);
    const size_t special = x.size();
    for (int i = 0; i < 1 << 20; ++i) {
        x.push_back(i % 2 ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                          : std::ldexp(static_cast<float>(random()) * 0x1p-32f,
                                       static_cast<int>(random() % 12) - 6));
        y.push_back(i % 3
                        ? std::ldexp(static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f,
                                     static_cast<int>(random() % 10))
                        : std::bit_cast<float>(static_cast<uint32_t>(random())));
    }
    bool agree = true;
    const Floats z = compute(
        f.name, kernel_of(2, [&](const std::vector<Expr>& a) { return f.ours(a[0], a[1]); }),
        {&x, &y}, agree);
    Worst worst;
    for (size_t i = 0; i < x.size(); ++i) worst.note(z[i], f.reference(x[i], y[i]), i);
    std::printf("| %s | %.2f | %.9g, %.9g | %.3f | %s (%zu pairs) |\n", f.name, worst.error,
                x[worst.at], y[worst.at], worst.sum / static_cast<double>(worst.count),
                worst.wrong ? "**wrong**" : "right", special);
    return agree && worst.wrong == 0;
}

}}  // namespace megjit::numerics

int main() {
    using namespace megjit::numerics;
    megjit::fuzz::start_backends();
    bool good = true;
    std::printf(
        "| function | worst ulp | at | mean ulp | special values |\n|---|---|---|---|---|\n");
    for (const Function& f : functions()) good = row(f) && good;
    for (const BinaryFunction& f : binary_functions()) good = row(f) && good;
    return good ? 0 : 1;
}
