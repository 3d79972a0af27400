#include "backends/cpu/kernels/winograd.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/host/parallel.h"

#define MEGJIT_KERNELS "backends/cpu/kernels/winograd.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::EpilogueKind;
using runtime::EpilogueStep;
using runtime::Layout;
using runtime::parallel_for;
using runtime::Type;

constexpr int64_t kPositions = 16;  // elements of a tile of 4x4
constexpr int64_t kPanel = WinogradShape::kPanel;
constexpr int64_t kTilesAtOnce =
    48;  // products and results between two transforms take 200 KB each, in the second cache

// Are the steps in the order bias, add, relu? Other orders are left to other kernels.
bool has_known_epilogue(const ConvProblem& p) {
    return std::is_sorted(
        p.steps.begin(), p.steps.end(),
        [](const EpilogueStep& a, const EpilogueStep& b) { return a.kind < b.kind; });
}

WinogradShape shape_of(const ConvProblem& p) {
    const Type &x = p.x, &w = p.w, &y = p.y;
    WinogradShape s{.images = x.shape[0],
                    .height = x.shape[2],
                    .width = x.shape[3],
                    .in_channels = w.shape[1],
                    .out_height = y.shape[2],
                    .out_width = y.shape[3],
                    .out_channels = w.shape[0]};
    for (int axis = 0; axis < 2; ++axis) s.padding[axis] = p.window.padding[axis];
    s.tile_rows = (s.out_height + 1) / 2, s.tile_columns = (s.out_width + 1) / 2;
    return s;
}

int64_t transformed_numel(const Type& w) { return kPositions * w.shape[0] * w.shape[1]; }

// Each thread takes a part of the tiles and does all three steps, if the weights stay in each
// core's cache. Otherwise threads share the panels of output channels, so that each weight is read
// once for all tiles.
class WinogradExecutable final : public runtime::Executable {
public:
    WinogradExecutable(WinogradShape shape, std::vector<EpilogueStep> steps)
        : s_(shape),
          steps_(std::move(steps)),
          slots_(runtime::thread_count()),
          splits_tiles_(s_.in_channels * s_.out_channels <= 16384) {
        constexpr int64_t kMostBytes = 2 << 20;  // bytes of transformed inputs that threads share
        const int64_t tiles = s_.tiles(), mine = (tiles + slots_ - 1) / slots_;
        const int64_t together =
            splits_tiles_
                ? mine
                : std::min(tiles, std::max<int64_t>(kTilesAtOnce, kMostBytes / (kPositions * 4 *
                                                                                s_.in_channels)));
        const int64_t parts = (together + kTilesAtOnce - 1) / kTilesAtOnce;
        part_ = (together + parts - 1) / parts;
        shared_ = splits_tiles_ ? part_ : together;
        input_floats_ = kPositions * shared_ * s_.in_channels;
        product_floats_ = kPositions * part_ * kPanel;
    }
    size_t workspace_bytes() const override {
        const int64_t inputs = splits_tiles_ ? slots_ * input_floats_ : input_floats_;
        return static_cast<size_t>(inputs + slots_ * product_floats_) * sizeof(float);
    }
    bool may_alias(int, int in) const override {
        return std::any_of(steps_.begin(), steps_.end(), [in](const EpilogueStep& step) {
            return step.kind == EpilogueKind::add && step.operand == static_cast<size_t>(in);
        });
    }

    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        WinogradEpilogue epilogue;
        for (const EpilogueStep& step : steps_) {
            if (step.kind == EpilogueKind::bias)
                epilogue.bias = static_cast<const float*>(in[step.operand]);
            else if (step.kind == EpilogueKind::add)
                epilogue.addend = static_cast<const float*>(in[step.operand]);
            else epilogue.rectifies = true;
        }
        const Run run{static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                      static_cast<float*>(out[0]), static_cast<float*>(workspace), epilogue};
        splits_tiles_ ? by_tiles(run) : by_panels(run);
    }

private:
    struct Run {
        const float *x, *u;
        float *y, *work;
        WinogradEpilogue epilogue;
    };

    // Computes products and results of tiles [lo, lo + count) in one panel; v begins with tile
    // `origin` of `rows`.
    void finish(const Run& run, const float* v, float* m, int64_t panel, int64_t origin,
                int64_t rows, int64_t lo, int64_t count) const {
        for (int64_t i = 0; i < kPositions; ++i)
            MEGJIT_BEST(multiply_panel)(v + (i * rows + lo - origin) * s_.in_channels,
                                        run.u + (panel * kPositions + i) * s_.in_channels * kPanel,
                                        m + i * count * kPanel, count, s_.in_channels);
        MEGJIT_BEST(transform_output)(s_, run.epilogue, m, run.y, panel, lo, count);
    }

    void by_tiles(const Run& run) const {
        const int64_t tiles = s_.tiles(), mine = (tiles + slots_ - 1) / slots_;
        parallel_for(slots_, 1, 1, [&](int64_t first, int64_t last) {
            for (int64_t slot = first; slot < last; ++slot) {
                float *const v = run.work + slot * (input_floats_ + product_floats_),
                             *const m = v + input_floats_;
                const int64_t end = std::min(tiles, (slot + 1) * mine);
                for (int64_t lo = slot * mine; lo < end; lo += part_) {
                    const int64_t count = std::min(part_, end - lo);
                    MEGJIT_BEST(transform_input)(s_, run.x, v, lo, count, lo, lo + count);
                    for (int64_t panel = 0; panel < s_.panels(); ++panel)
                        finish(run, v, m, panel, lo, count, lo, count);
                }
            }
        });
    }

    void by_panels(const Run& run) const {
        float* const v = run.work;
        for (int64_t origin = 0; origin < s_.tiles(); origin += shared_) {
            const int64_t rows = std::min(shared_, s_.tiles() - origin);
            parallel_for(rows, 1, 1, [&](int64_t lo, int64_t hi) {
                MEGJIT_BEST(transform_input)(s_, run.x, v, origin, rows, origin + lo, origin + hi);
            });
            parallel_for(slots_, 1, 1, [&](int64_t first, int64_t last) {
                for (int64_t slot = first; slot < last; ++slot) {
                    float* const m = v + input_floats_ + slot * product_floats_;
                    for (int64_t panel = s_.panels() * slot / slots_;
                         panel < s_.panels() * (slot + 1) / slots_; ++panel)
                        for (int64_t lo = 0; lo < rows; lo += part_)
                            finish(run, v, m, panel, origin, rows, origin + lo,
                                   std::min(part_, rows - lo));
                }
            });
        }
    }

    WinogradShape s_;
    std::vector<EpilogueStep> steps_;
    int64_t slots_ = 1;
    bool splits_tiles_ = false;
    int64_t part_ = 0, shared_ = 0, input_floats_ = 0, product_floats_ = 0;
};

}  // namespace

bool takes_winograd(const ConvProblem& p) {
    if (p.x.rank() != 4 || p.x.dtype != runtime::DType::f32 || p.w.dtype != p.x.dtype ||
        p.y.numel() == 0 || p.x.layout != Layout::channels_last || p.groups != 1)
        return false;
    const runtime::Window& window = p.window;
    for (int axis = 0; axis < 2; ++axis)
        if (window.kernel[axis] != 3 || window.stride[axis] != 1 || window.dilation[axis] != 1)
            return false;
    return p.w.shape[1] % 16 == 0 && p.w.shape[0] % kPanel == 0 && has_known_epilogue(p);
}

bool suits_winograd(const ConvProblem& p) {
    constexpr int64_t kFewestTiles = 16;
    return takes_winograd(p) && shape_of(p).tiles() >= kFewestTiles;
}

size_t winograd_bytes(const Type& w) {
    return static_cast<size_t>(transformed_numel(w) + w.numel()) * sizeof(float);
}

// Writes G g G^T with G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1] as [panel][16][ic][kPanel].
void pack_winograd(const Type& w, const float* from, float* to) {
    const int64_t channels = w.shape[1];
    const auto transform = [](const float g[3], float out[4]) {
        out[0] = g[0], out[1] = (g[0] + g[1] + g[2]) / 2, out[2] = (g[0] - g[1] + g[2]) / 2,
        out[3] = g[2];
    };
    parallel_for(w.shape[0], 1, kPanel, [&](int64_t lo, int64_t hi) {
        for (int64_t o = lo; o < hi; ++o)
            for (int64_t c = 0; c < channels; ++c) {
                const float* const g = from + (o * channels + c) * 9;
                float half[3][4];
                for (int i = 0; i < 3; ++i) transform(g + 3 * i, half[i]);
                for (int j = 0; j < 4; ++j) {
                    const float line[3] = {half[0][j], half[1][j], half[2][j]};
                    float out[4];
                    transform(line, out);
                    for (int i = 0; i < 4; ++i)
                        to[((o / kPanel * kPositions + 4 * i + j) * channels + c) * kPanel +
                           o % kPanel] = out[i];
                }
            }
    });
    std::memcpy(to + transformed_numel(w), from, static_cast<size_t>(w.numel()) * sizeof(float));
}

void unpack_winograd(const Type& w, const float* from, float* to) {
    std::memcpy(to, from + transformed_numel(w), static_cast<size_t>(w.numel()) * sizeof(float));
}

Prepared prepare_winograd(const ConvProblem& p) {
    return std::make_shared<const WinogradExecutable>(shape_of(p), p.steps);
}

}  // namespace megjit::cpu
