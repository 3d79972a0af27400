// backends/cpu/kernels/conv_phases.h -- a convolution, or the gradient of its data, as sums over
// runs of neighboring taps (dense_conv.h): which points of a grid each result reads, along each of
// three axes. A missing axis has one place and one tap.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/ops/conv.h"

namespace megjit::cpu {

// A tap of the window and the grid point, counted from the first one, that it reads.
struct PhaseTap {
    int64_t tap = 0, at = 0;
};

// Results and grid along an axis. Results phase + q * phases, for q = 0, 1, ..., read the grid
// points q * stride + at of the taps of their phase. Grid point g is pixel g * step - before.
struct ConvAxis {
    ConvAxis() = default;
    ConvAxis(const runtime::ConvProblem& problem, runtime::ConvRole role, int axis);

    int64_t phases() const { return std::ssize(taps); }
    int64_t results_of(int64_t phase) const { return (results - phase + phases() - 1) / phases(); }
    int64_t most_results() const { return results_of(0); }
    // Grid points that so many results of a phase read.
    int64_t grid(int64_t count) const { return (count - 1) * stride + reach + 1; }
    // Are all grid points that are read pixels?
    bool has_no_padding() const;

    int64_t results = 1, pixels = 1;
    int64_t stride = 1, step = 1, before = 0, reach = 0;
    std::vector<std::vector<PhaseTap>> taps = {{{0, 0}}};  // of each phase, in the grid's order
};

// Terms of a sum that lie next to each other, from x's number `offset` on.
struct TermRun {
    int64_t offset = 0, count = 0;
};
// Runs whose weights fit the first-level cache together.
struct TermChunk {
    int64_t first_run = 0, end_run = 0, first_term = 0;
};
// Results that meet the same taps.
struct ConvPhase {
    std::array<int64_t, 3> at = {};  // along each axis
    std::vector<TermRun> runs = {};
    std::vector<TermChunk> chunks = {};
};

// Numbers between neighboring grid points of each axis, and the terms that each point gives.
struct GridSteps {
    std::array<int64_t, 3> point = {};
    int64_t terms = 1, term = 1;  // of a point; numbers from one to the next
};

struct ConvPhases {
    ConvPhases() = default;
    // A chunk has at most `most_terms` terms.
    ConvPhases(const std::array<ConvAxis, 3>& axes, const GridSteps& steps, int64_t most_terms);

    std::vector<ConvPhase> phases = {};
    std::vector<int64_t> taps =
        {};  // of the window, in the order of their terms: those of phase after phase
};

}  // namespace megjit::cpu
