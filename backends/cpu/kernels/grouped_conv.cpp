#include "backends/cpu/kernels/grouped_conv.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/conv_panels.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

// Rows of places of a panel; steps are in floats.
struct LaneConv {
    int64_t rows = 1, columns = 1;
    int64_t x_row_step = 0, to_row_step = 0, to_step = 0;
    const int64_t* runs = nullptr;  // from the first tap to that of each run
    int64_t run_count = 1, inputs = 1;
    LaneChannels lanes = {};  // the first channel in the group of each lane
    int64_t lane_count = kPanelLanes;
    bool is_depthwise = false;
    const float* w = nullptr;  // [inputs][taps][kPanelLanes]
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/grouped_conv.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::parallel_for;
using Role = runtime::ConvRole;

// Rows of an image that are computed at once.
struct Block {
    int64_t image = 0, row = 0, rows = 0;
};

struct GroupedConv {
    // A packed panel of a block stays in the second-level cache.
    static constexpr int64_t kBlockBytes = 1 << 17;
    static constexpr int64_t kMostRunTaps = 7;  // of which kernels are compiled

    GroupedConv(const ConvProblem& p, Role role)
        : is_turned(role == Role::data),
          x(is_turned ? p.y : p.x),
          y(is_turned ? p.x : p.y),
          images(p.x.shape[0]),
          groups{y.channels, y.channels / p.groups, x.channels / p.groups},
          window(p.window) {
        x.set_window(p.window);
        for (int axis = 0; axis < 2 && is_turned; ++axis)
            x.padding[axis] = x.reach[axis] - x.padding[axis];
        window.cut_runs(kMostRunTaps);
        columns = x.grid(1, y.extent[1]);
        for (int64_t run = 0; run < window.runs(); ++run)
            run_steps.push_back(window.run_at(run, columns) * kPanelLanes);
        const int64_t bytes = 4 * x.grid(0, y.extent[0]) * columns * kPanelLanes;
        block_rows = parts_of(y.extent[0], parts_of(bytes, kBlockBytes));
        blocks = images * parts_of(y.extent[0], block_rows);
    }

    // Floats of a panel: its weights, its part of x, and of the result.
    int64_t weights() const { return groups.others * window.count() * kPanelLanes; }
    int64_t packed_x() const { return x.grid(0, block_rows) * columns * kPanelLanes; }
    int64_t packed_y() const { return block_rows * y.extent[1] * kPanelLanes; }
    int64_t products() const { return images * y.image() * groups.others * window.count(); }
    Block block(int64_t index) const {
        const int64_t row_blocks = parts_of(y.extent[0], block_rows),
                      row = index % row_blocks * block_rows;
        return {index / row_blocks, row, std::min(block_rows, y.extent[0] - row)};
    }
    // Are the panel's results stored where they belong?
    bool writes_in_place(int64_t panel) const {
        return !y.is_planar && groups.lanes_of(panel).count % MEGJIT_BEST(kLanes) == 0;
    }

    bool is_turned = false;  // y is the gradient of the data
    ConvOperand x, y;  // what is read, and the result
    int64_t images = 0;
    LaneGroups groups;
    WindowTaps window;
    int64_t columns = 1;  // of x's grid
    std::vector<int64_t> run_steps = {};
    int64_t block_rows = 1, blocks = 1;
};

class GroupedConvExecutable final : public runtime::Executable {
public:
    GroupedConvExecutable(const ConvProblem& p, Role role) : c_(p, role) {
        shares_ = std::min(units(), threads_for(c_.products()));
        share_floats_ = c_.weights() + c_.packed_x() + c_.packed_y();
    }
    size_t workspace_bytes() const override {
        return static_cast<size_t>(shares_ * share_floats_) * sizeof(float);
    }
    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        const Run run{static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                      static_cast<float*>(out[0])};
        parallel_for(shares_, 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t share = lo; share < hi; ++share)
                compute_share(run, share, static_cast<float*>(workspace) + share * share_floats_);
        });
    }

private:
    struct Run {
        const float *x, *w;
        float* y;
    };

    // Each is a block of a panel.
    int64_t units() const { return c_.blocks * c_.groups.panels(); }

    void compute_share(const Run& run, int64_t share, float* packed) const {
        const Range units = share_of(this->units(), share, shares_);
        for (int64_t begin = units.begin, end = 0; begin < units.end; begin = end) {
            const int64_t panel = begin / c_.blocks, first = panel * c_.blocks;
            end = std::min(units.end, first + c_.blocks);
            pack_weights(run.w, panel, packed);
            for (int64_t i = begin - first; i < end - first; ++i)
                compute_panel(run, c_.block(i), panel, packed);
        }
    }

    // w is [groups][outputs][inputs][taps]; lanes are outputs, or inputs if the data is the result.
    void pack_weights(const float* w, int64_t panel, float* packed) const {
        const ChannelRange lanes = c_.groups.lanes_of(panel);
        const int64_t taps = c_.window.count(), width = c_.groups.lanes;
        if (lanes.count < kPanelLanes) std::fill_n(packed, c_.weights(), 0.0f);
        const int64_t lane_step = c_.is_turned ? taps : c_.groups.others * taps,
                      input_step = c_.is_turned ? width * taps : taps,
                      most = c_.groups.is_depthwise() ? kPanelLanes : width;
        for (int64_t input = 0; input < c_.groups.others; ++input)
            for (int64_t lane = 0; lane < lanes.count;) {
                const int64_t channel = lanes.first + lane, group = channel / width,
                              count = std::min(most - channel % most, lanes.count - lane);
                MEGJIT_BEST(pack_weights)(w + group * width * c_.groups.others * taps +
                                              channel % width * lane_step + input * input_step,
                                          lane_step, taps, count, c_.is_turned,
                                          packed + input * taps * kPanelLanes + lane);
                lane += count;
            }
    }

    void compute_panel(const Run& run, const Block& b, int64_t panel, float* packed) const {
        const ChannelRange lanes = c_.groups.lanes_of(panel);
        float *const x = packed + c_.weights(), *const plane = x + c_.packed_x();
        const int64_t first = b.row * c_.x.stride[0];
        MEGJIT_BEST(pack_plane)(c_.x, run.x, b.image, c_.groups.others_of(panel),
                                {first, first + c_.x.grid(0, b.rows)}, c_.columns, x);
        const bool is_in_place = c_.writes_in_place(panel);
        float* const y = run.y + (c_.y.pixel(run.y, b.image, b.row, 0, lanes.first) - run.y);
        LaneConv s{.rows = b.rows,
                   .columns = c_.y.extent[1],
                   .x_row_step = c_.x.stride[0] * c_.columns * kPanelLanes,
                   .to_step = is_in_place ? c_.y.channels : kPanelLanes,
                   .runs = c_.run_steps.data(),
                   .run_count = c_.window.runs(),
                   .inputs = c_.groups.others,
                   .lanes = c_.groups.firsts_of(panel),
                   .lane_count = lanes.count,
                   .is_depthwise = c_.groups.is_depthwise(),
                   .w = packed};
        s.to_row_step = s.columns * s.to_step;
        MEGJIT_BEST(conv_plane)(s, c_.window.run_taps, x, is_in_place ? y : plane);
        if (!is_in_place)
            MEGJIT_BEST(unpack_plane)(plane, b.rows * s.columns, lanes.count, c_.y.steps(), y);
    }

    GroupedConv c_;
    int64_t shares_ = 1, share_floats_ = 0;
};

bool fits_grouped_conv(const ConvProblem& p, Role role) {
    if (p.groups == 1 || p.x.dtype != runtime::DType::f32 || p.window.dims > 2 ||
        p.w.layout != runtime::Layout::row_major)
        return false;
    const int64_t inputs = p.x.shape[1] / p.groups, outputs = p.y.shape[1] / p.groups;
    if (inputs != outputs || kPanelLanes % inputs) return false;
    const bool is_data = role == Role::data;
    for (int i = 0; i < p.window.dims; ++i) {
        const int64_t reach = (p.window.kernel[i] - 1) * p.window.dilation[i];
        if (p.window.stride[i] != 1 || (is_data && p.window.padding[i] > reach)) return false;
    }
    return true;
}

}  // namespace

bool takes_grouped_conv(const ConvProblem& p, Role role) {
    if (!fits_grouped_conv(p, role)) return false;
    const bool is_data = role == Role::data;
    const WindowTaps window(p.window);
    const int64_t taps = window.count(), inputs = p.x.shape[1] / p.groups;
    if (inputs > 1) return taps >= 9 && inputs <= 8;
    if (is_data && window.is_dilated()) return true;
    return std::min(window.kernel[0], window.kernel[1]) >= 5 && (is_data || taps <= 100);
}

Prepared prepare_grouped_conv(const ConvProblem& p, Role role) {
    return std::make_shared<const GroupedConvExecutable>(p, role);
}

}  // namespace megjit::cpu
