#include "backends/cpu/epilogue.h"

#include <algorithm>

#include "runtime/host/parallel.h"

namespace megjit::cpu {
namespace {

using runtime::EpilogueStep;
using Kind = runtime::EpilogueKind;

void apply(const EpilogueStep& step, const float* operand, const EpilogueRows& rows, float* y,
           int64_t lo, int64_t hi) {
    const int64_t size = rows.channels * rows.inner;
    for (int64_t first = lo * rows.step; first < hi * rows.step; first += rows.step)
        switch (step.kind) {
            case Kind::relu:
                for (int64_t i = first; i < first + size; ++i)
                    y[i] = y[i] > 0 || y[i] != y[i] ? y[i] : 0.0f;
                break;
            case Kind::add:
                for (int64_t i = first; i < first + size; ++i) y[i] += operand[i];
                break;
            case Kind::bias:
                for (int64_t c = 0; c < rows.channels; ++c)
                    for (int64_t i = 0; i < rows.inner; ++i)
                        y[first + c * rows.inner + i] += operand[c];
                break;
            case Kind::mask: break;  // gradients' own, which a host computes apart
        }
}

}  // namespace

Prepared steps_after(Prepared product, const std::vector<EpilogueStep>& steps,
                     const EpilogueRows& rows) {
    const size_t workspace = product->workspace_bytes();
    const auto run = [product, steps, rows](void* const* in, void* const* out, void* work) {
        product->enqueue(runtime::inline_stream(), in, out, work);
        const int64_t grain =
            std::max<int64_t>(1, 32768 / std::max<int64_t>(1, rows.channels * rows.inner));
        runtime::parallel_for(rows.outer, grain, 1, [&](int64_t lo, int64_t hi) {
            for (const EpilogueStep& step : steps)
                apply(step,
                      step.takes_operand() ? static_cast<const float*>(in[step.operand]) : nullptr,
                      rows, static_cast<float*>(out[0]), lo, hi);
        });
    };
    return executable(run, workspace);
}

}  // namespace megjit::cpu
