#include "backends/cpu/kernels/conv_phases.h"

#include <algorithm>

#include "backends/cpu/kernels/conv_panels.h"

namespace megjit::cpu {

using runtime::ConvProblem;
using Role = runtime::ConvRole;

namespace {

// A window of more pixels than one tap reads them all; one tap leaves out what its stride skips.
void set_forward(ConvAxis& axis, int64_t taps, int64_t stride, int64_t dilation, int64_t padding) {
    axis.before = padding;
    (taps == 1 ? axis.step : axis.stride) = stride;
    axis.reach = (taps - 1) * dilation;
    axis.taps[0].clear();
    for (int64_t tap = 0; tap < taps; ++tap) axis.taps[0].push_back({tap, tap * dilation});
}

// Pixel i of x meets tap t at place (i + padding - t * dilation) / stride, if that is an integer.
void set_data(ConvAxis& axis, int64_t taps, int64_t stride, int64_t dilation, int64_t padding) {
    axis.taps.assign(static_cast<size_t>(stride), {});
    int64_t first = 0, last = 0;
    for (int64_t phase = 0, is_first = 1; phase < stride; ++phase)
        for (int64_t tap = taps; tap-- > 0;) {
            const int64_t reach = phase + padding - tap * dilation;
            if (reach % stride != 0) continue;
            const int64_t at = reach / stride;
            axis.taps[static_cast<size_t>(phase)].push_back({tap, at});
            first = is_first ? at : std::min(first, at);
            last = is_first ? at : std::max(last, at);
            is_first = 0;
        }
    for (std::vector<PhaseTap>& phase : axis.taps)
        for (PhaseTap& tap : phase) tap.at -= first;
    axis.before = -first;
    axis.reach = last - first;
}

}  // namespace

ConvAxis::ConvAxis(const ConvProblem& p, Role role, int axis) {
    const bool is_data = role == Role::data;
    const runtime::Window& window = p.window;
    results = (is_data ? p.x : p.y).shape[axis + 2];
    pixels = (is_data ? p.y : p.x).shape[axis + 2];
    (is_data ? set_data : set_forward)(*this, window.kernel[axis], window.stride[axis],
                                       window.dilation[axis], window.padding[axis]);
}

bool ConvAxis::has_no_padding() const {
    for (int64_t phase = 0; phase < std::min(phases(), results); ++phase)
        for (const PhaseTap& tap : taps[static_cast<size_t>(phase)]) {
            const int64_t last = (results_of(phase) - 1) * stride + tap.at;
            if (tap.at * step < before || last * step - before >= pixels) return false;
        }
    return true;
}

namespace {

// Cuts runs into pieces of at most `most` terms, and joins pieces to chunks of as many.
void set_chunks(ConvPhase& phase, const std::vector<TermRun>& runs, int64_t most, int64_t first,
                int64_t step) {
    int64_t room = 0, term = first;
    for (const TermRun& run : runs) {
        const int64_t part = even_part(run.count, most);
        for (int64_t begin = 0; begin < run.count; begin += part) {
            const int64_t count = std::min(part, run.count - begin);
            if (count > room) {
                phase.chunks.push_back({std::ssize(phase.runs), std::ssize(phase.runs), term});
                room = most;
            }
            phase.runs.push_back({run.offset + begin * step, count});
            ++phase.chunks.back().end_run;
            room -= count, term += count;
        }
    }
}

}  // namespace

ConvPhases::ConvPhases(const std::array<ConvAxis, 3>& axes, const GridSteps& steps,
                       int64_t most_terms) {
    const auto add_phase = [&](const std::array<int64_t, 3>& at) {
        const auto taps_of = [&](size_t axis) {
            return axes[axis].taps[static_cast<size_t>(at[axis])];
        };
        const auto kernel = [&](size_t axis) {
            int64_t count = 0;
            for (const auto& phase : axes[axis].taps) count += std::ssize(phase);
            return count;
        };
        const int64_t term = std::ssize(taps) * steps.terms;
        std::vector<TermRun> runs;
        for (const PhaseTap& a : taps_of(0))
            for (const PhaseTap& b : taps_of(1))
                for (const PhaseTap& c : taps_of(2)) {
                    const int64_t offset =
                        a.at * steps.point[0] + b.at * steps.point[1] + c.at * steps.point[2];
                    if (!runs.empty() &&
                        runs.back().offset + runs.back().count * steps.term == offset)
                        runs.back().count += steps.terms;
                    else runs.push_back({offset, steps.terms});
                    taps.push_back((a.tap * kernel(1) + b.tap) * kernel(2) + c.tap);
                }
        phases.push_back({.at = at});
        set_chunks(phases.back(), runs, most_terms, term, steps.term);
    };
    for (int64_t a = 0; a < axes[0].phases(); ++a)
        for (int64_t b = 0; b < axes[1].phases(); ++b)
            for (int64_t c = 0; c < axes[2].phases(); ++c) add_phase({a, b, c});
}

}  // namespace megjit::cpu
