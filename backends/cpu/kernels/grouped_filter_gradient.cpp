#include "backends/cpu/kernels/grouped_filter_gradient.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/conv_panels.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

// Places whose products are added in registers; steps are in floats.
struct TapStrip {
    const float *x = nullptr, *y = nullptr;
    int64_t rows = 1, columns = 1;
    int64_t x_row_step = 0, x_column_step = 0, y_row_step = 0, y_column_step = 0;
    const int64_t* runs = nullptr;  // from the first tap to that of each run
    // The first channel of y in the group of each lane.
    LaneChannels lanes = {};
    bool is_depthwise = false;  // lanes of x and y are the same
    int64_t outputs = 1, output_step = 0;  // channels of y in a group, and how far apart their sums
    bool adds = false;
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/grouped_filter_gradient.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::parallel_for;

// Rows of an image that are packed at once.
struct Block {
    int64_t image = 0, row = 0, rows = 0;
};

struct GroupedFilter {
    // Products of a strip are added in registers: longer ones leave the first-level cache, shorter
    // ones are stored too often.
    static constexpr int64_t kStripPlaces = 128;
    // A block stays in the second-level cache while its panels are packed one by one.
    static constexpr int64_t kBlockBytes = 1 << 19;
    // Threads share panels and, where these are few, parts of sums.
    static constexpr int64_t kUnits = 32, kMostParts = 16;
    static constexpr int64_t kMostRunTaps = 7;  // of which kernels are compiled

    explicit GroupedFilter(const ConvProblem& p)
        : x(p.x),
          y(p.y),
          images(p.x.shape[0]),
          places{y.extent[0], y.extent[1]},
          groups{x.channels, x.channels / p.groups, y.channels / p.groups},
          window(p.window) {
        x.set_window(p.window);
        window.cut_runs(kMostRunTaps);
        columns = x.grid(1, places[1]);
        for (int64_t run = 0; run < window.runs(); ++run)
            run_steps.push_back(window.run_at(run, columns) * kPanelLanes);
        cut();
    }

    // Floats of the sums of a channel of y and a panel of x, of a panel of x, and of all.
    int64_t output_sums() const { return window.count() * kPanelLanes; }
    int64_t panel_sums() const { return groups.others * output_sums(); }
    int64_t sums() const { return groups.panels() * panel_sums(); }
    // Floats of a packed panel of a block; vectors of y are read whole.
    int64_t packed_x() const { return x.grid(0, block_rows) * columns * kPanelLanes; }
    int64_t packed_y() const {
        int64_t most = 0;
        for (int64_t panel = 0; panel < groups.panels(); ++panel)
            most = std::max(most, groups.others_of(panel).floats());
        return block_rows * places[1] * most + kPanelLanes;
    }
    int64_t products() const {
        return images * places[0] * places[1] * y.channels * groups.lanes * window.count();
    }

    Block block(int64_t index) const {
        const int64_t row_blocks = parts_of(places[0], block_rows),
                      row = index % row_blocks * block_rows;
        return {index / row_blocks, row, std::min(block_rows, places[0] - row)};
    }
    // y is packed if it is read several times, if it is large, or if lanes are missing.
    bool reads_y_in_place(int64_t panel) const {
        const int64_t most_runs = MEGJIT_BEST(runs_with)(static_cast<int>(window.run_taps));
        return groups.is_depthwise() && !y.is_planar && !y.is_large() &&
               window.runs() <= most_runs && groups.lanes_of(panel).count == kPanelLanes;
    }

    ConvOperand x, y;
    int64_t images = 0, places[2] = {1, 1};
    LaneGroups groups;
    WindowTaps window;
    int64_t columns = 1;  // of x's grid
    std::vector<int64_t> run_steps = {};
    int64_t strip_rows = 1, strip_columns = 1;
    int64_t block_rows = 1, blocks = 1, parts = 1;

private:
    void cut() {
        strip_columns = even_part(places[1], kStripPlaces);
        if (strip_columns == places[1])
            strip_rows = std::clamp<int64_t>(kStripPlaces / places[1], 1, places[0]);
        const int64_t bytes = 4 * (x.image() + y.image());
        block_rows =
            even_part(places[0], std::max<int64_t>(1, places[0] / parts_of(bytes, kBlockBytes)));
        block_rows = std::min(parts_of(block_rows, strip_rows) * strip_rows, places[0]);
        blocks = images * parts_of(places[0], block_rows);
        parts =
            std::clamp<int64_t>(parts_of(kUnits, groups.panels()), 1, std::min(blocks, kMostParts));
    }
};

class GroupedFilterExecutable final : public runtime::Executable {
public:
    explicit GroupedFilterExecutable(const ConvProblem& p) : g_(p) {
        shares_ = std::min(units(), threads_for(g_.products()));
        packed_floats_ = g_.packed_x() + g_.packed_y();
    }
    size_t workspace_bytes() const override {
        return static_cast<size_t>(shares_ * packed_floats_ + g_.parts * g_.sums()) * sizeof(float);
    }
    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        Run run{static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                static_cast<float*>(out[0]), static_cast<float*>(workspace)};
        run.sums = run.packed + shares_ * packed_floats_;
        parallel_for(shares_, 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t share = lo; share < hi; ++share) sum_share(run, share);
        });
        if (g_.parts > 1) join(run);
    }

private:
    struct Run {
        const float *x, *y;
        float *w, *packed, *sums = nullptr;
    };

    // Each is a part of the sums of a panel.
    int64_t units() const { return g_.parts * g_.groups.panels(); }

    void sum_share(Run run, int64_t share) const {
        run.packed += share * packed_floats_;
        const Range units = share_of(this->units(), share, shares_);
        for (int64_t begin = units.begin, end = 0; begin < units.end; begin = end) {
            const int64_t part = begin / g_.groups.panels(), first = part * g_.groups.panels();
            end = std::min(units.end, first + g_.groups.panels());
            sum_part(run, part, {begin - first, end - first});
        }
    }

    void sum_part(Run run, int64_t part, Range panels) const {
        run.sums += part * g_.sums();
        const Range blocks = share_of(g_.blocks, part, g_.parts);
        for (int64_t i = blocks.begin; i < blocks.end; ++i)
            for (int64_t panel = panels.begin; panel < panels.end; ++panel)
                sum_panel(run, g_.block(i), panel, i > blocks.begin);
        for (int64_t i = panels.begin; i < panels.end && g_.parts == 1; ++i) join_panel(run, i);
    }

    void sum_panel(const Run& run, const Block& b, int64_t panel, bool adds) const {
        const int64_t first = b.row * g_.x.stride[0];
        MEGJIT_BEST(pack_plane)(g_.x, run.x, b.image, g_.groups.lanes_of(panel),
                                {first, first + g_.x.grid(0, b.rows)}, g_.columns, run.packed);
        TapStrip s{.x_row_step = g_.x.stride[0] * g_.columns * kPanelLanes,
                   .x_column_step = g_.x.stride[1] * kPanelLanes,
                   .runs = g_.run_steps.data(),
                   .lanes = g_.groups.firsts_of(panel),
                   .is_depthwise = g_.groups.is_depthwise(),
                   .outputs = g_.groups.others,
                   .output_step = g_.output_sums(),
                   .adds = adds};
        const float* const y = y_of(run, b, panel, s);
        for (int64_t row = 0; row < b.rows; row += g_.strip_rows)
            for (int64_t column = 0; column < g_.places[1]; column += g_.strip_columns) {
                s.rows = std::min(g_.strip_rows, b.rows - row);
                s.columns = std::min(g_.strip_columns, g_.places[1] - column);
                s.x = run.packed + row * s.x_row_step + column * s.x_column_step;
                s.y = y + row * s.y_row_step + column * s.y_column_step;
                MEGJIT_BEST(sum_strip)(s, g_.window.run_taps, g_.window.runs(),
                                       run.sums + panel * g_.panel_sums());
                s.adds = true;
            }
    }

    // Packs the block's y, or finds it, and tells the steps.
    const float* y_of(const Run& run, const Block& b, int64_t panel, TapStrip& s) const {
        const ChannelRange channels = g_.groups.others_of(panel);
        const bool is_in_place = g_.reads_y_in_place(panel);
        s.y_column_step = is_in_place ? g_.y.channels : channels.floats();
        s.y_row_step = g_.places[1] * s.y_column_step;
        if (is_in_place) return g_.y.pixel(run.y, b.image, b.row, 0, channels.first);
        float* const y = run.packed + g_.packed_x();
        MEGJIT_BEST(pack_plane)(g_.y, run.y, b.image, channels, {b.row, b.row + b.rows},
                                g_.places[1], y);
        return y;
    }

    void join(const Run& run) const {
        constexpr int64_t kGrain = 1 << 15;
        parallel_for(g_.groups.panels(), 1 + kGrain / (g_.parts * g_.panel_sums()), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) join_panel(run, i);
        });
    }

    // w is [groups][outputs][inputs][taps].
    void join_panel(const Run& run, int64_t i) const {
        const ChannelRange in = g_.groups.lanes_of(i);
        const int64_t taps = g_.window.count(), group = g_.groups.lanes * taps;
        for (int64_t output = 0; output < g_.groups.others; ++output)
            for (int64_t channel = in.first, end = 0; channel < in.first + in.count;
                 channel = end) {
                // The lanes of one group, or all of them: they follow each other in w.
                end = in.first + in.count;
                if (g_.groups.others > 1)
                    end = std::min(end, (channel / g_.groups.lanes + 1) * g_.groups.lanes);
                MEGJIT_BEST(join_turned)(
                    {g_.parts, g_.sums()},
                    run.sums + i * g_.panel_sums() + output * g_.output_sums() + channel - in.first,
                    kPanelLanes, taps, 1, 1, end - channel,
                    run.w + (channel / g_.groups.lanes * g_.groups.others + output) * group +
                        channel % g_.groups.lanes * taps,
                    taps);
            }
    }

    GroupedFilter g_;
    int64_t shares_ = 1, packed_floats_ = 0;  // floats of a share
};

}  // namespace

bool fits_grouped_filter_gradient(const ConvProblem& p) {
    if (p.groups == 1 || p.x.dtype != runtime::DType::f32 || p.window.dims > 2) return false;
    const int64_t inputs = p.x.shape[1] / p.groups, outputs = p.y.shape[1] / p.groups;
    return LaneGroups{p.x.shape[1], inputs, outputs}.fit_vectors();
}

bool takes_grouped_filter_gradient(const ConvProblem& p) {
    if (!fits_grouped_filter_gradient(p)) return false;
    const int64_t inputs = p.x.shape[1] / p.groups, outputs = p.y.shape[1] / p.groups;
    const WindowTaps window(p.window);
    const bool is_plain = window.kernel[1] <= 3 && !window.is_dilated();
    if (inputs == 1) return !is_plain;
    const int64_t most = is_plain && runtime::has_avx512() ? 8 : 32;
    return window.count() >= 9 && inputs <= most && (inputs == outputs || !is_plain);
}

Prepared prepare_grouped_filter_gradient(const ConvProblem& p) {
    return std::make_shared<const GroupedFilterExecutable>(p);
}

}  // namespace megjit::cpu
