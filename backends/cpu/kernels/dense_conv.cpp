#include "backends/cpu/kernels/dense_conv.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/cpu/kernels/conv_panels.h"
#include "backends/cpu/kernels/conv_phases.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

// What a result reads, from the block's first grid point on, and which pixel of the block it is.
struct ConvPlace {
    int64_t from = 0, to = 0;
};

// Results of a block, a panel of channels, and the terms of a chunk.
struct ConvTiles {
    const float *x = nullptr, *w = nullptr;
    float* to = nullptr;
    int64_t to_step = 0, panel = 0;
    const ConvPlace* places = nullptr;
    int64_t count = 0;
    const TermRun* runs = nullptr;
    int64_t run_count = 0;
    bool adds = false;  // to the sums of chunks before
    bool is_depthwise = false;  // factors are a number for each lane
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/dense_conv.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::parallel_for;
using runtime::Type;
using Axes = std::array<int64_t, 3>;
using Role = runtime::ConvRole;

int64_t product_of(const Axes& axes) { return axes[0] * axes[1] * axes[2]; }

// x or the result, as it lies in memory.
struct Side {
    explicit Side(const Type& type)
        : channels(type.shape[1]),
          pixels(type.numel() / type.shape[0] / channels),
          is_planar(type.layout == runtime::Layout::row_major) {}
    int64_t at(int64_t image, int64_t pixel, int64_t channel) const {
        return is_planar ? (image * channels + channel) * pixels + pixel
                         : (image * pixels + pixel) * channels + channel;
    }
    PixelSteps steps(int64_t step) const {
        return is_planar ? PixelSteps{step, pixels} : PixelSteps{step * channels, 1};
    }
    int64_t channels = 1, pixels = 1;
    bool is_planar = false;
};

// A range of images, or of results of one image: q of the phases along each axis.
struct Block {
    int64_t image = 0, images = 1;
    Axes first = {}, count = {};
};

struct DenseConv {
    // A block of x stays in the second-level cache; its pixels are worth reading a chunk of
    // weights.
    static constexpr int64_t kBlockFloats = 1 << 17, kBlockPixels = 448;

    DenseConv(const ConvProblem& p, Role role)
        : is_data(role == Role::data),
          is_depthwise(p.groups > 1 && p.w.shape[1] == 1 && p.groups == p.w.shape[0]),
          groups(is_depthwise ? 1 : p.groups),
          images(p.x.shape[0]),
          from(is_data ? p.y : p.x),
          to(is_data ? p.x : p.y) {
        for (int i = 0; i < p.window.dims; ++i)
            axes[static_cast<size_t>(3 - p.window.dims + i)] = ConvAxis(p, role, i);
        cut_panels();
        is_read_in_place = !from.is_planar &&
                           (!is_depthwise || outputs % MEGJIT_BEST(kLanes) == 0) &&
                           std::ranges::all_of(axes, [](auto& a) { return a.has_no_padding(); });
        for (ConvAxis& axis : axes)
            if (is_read_in_place) axis.stride *= std::exchange(axis.step, 1);
        cut_blocks();
        set_steps();
        terms = ConvPhases(axes, steps, MEGJIT_BEST(kChunkFloats) / panel);
        set_places();
    }

    int64_t taps() const { return std::ssize(terms.taps); }
    int64_t weights() const { return groups * panels * taps() * inputs * panel; }
    int64_t packed_x() const {
        return is_read_in_place ? 0 : aligned_floats(block_images * image_step);
    }
    int64_t block_pixels() const { return block_images * image_pixels({.count = block}); }
    int64_t products() const { return images * to.pixels * to.channels * inputs * taps(); }
    int64_t blocks() const { return parts_of(images, block_images) * cuts(0) * cuts(1) * cuts(2); }
    Block block_at(int64_t index) const {
        Block b;
        for (size_t i = 3; i-- > 0; index /= cuts(i)) {
            b.first[i] = index % cuts(i) * block[i];
            b.count[i] = std::min(block[i], axes[i].most_results() - b.first[i]);
        }
        b.image = index * block_images;
        b.images = std::min(block_images, images - b.image);
        return b;
    }
    // Pixels of the block in each of its images, and the first one.
    int64_t image_pixels(const Block& b) const {
        int64_t pixels = 1;
        for (size_t i = 0; i < 3; ++i)
            pixels *= std::min(axes[i].results - b.first[i] * axes[i].phases(),
                               b.count[i] * axes[i].phases());
        return pixels;
    }
    int64_t first_pixel(const Block& b) const {
        int64_t pixel = 0;
        for (size_t i = 0; i < 3; ++i)
            pixel = pixel * axes[i].results + b.first[i] * axes[i].phases();
        return pixel;
    }
    // The channels that a panel reads.
    ChannelRange read_by(int64_t index) const {
        if (!is_depthwise) return {index / panels * inputs, inputs};
        return {index * panel, std::min(panel, outputs - index * panel)};
    }

    bool is_data = false;
    // The channels of a depthwise convolution are one group, of which each result reads its own.
    bool is_depthwise = false;
    int64_t groups = 1, images = 1;
    Side from, to;
    int64_t inputs = 1, outputs = 1;  // channels that a result reads; results of a group
    int64_t width = 1;  // numbers of a packed grid point
    std::array<ConvAxis, 3> axes;
    bool is_read_in_place = false, is_written_in_place = false;
    int64_t panel = 1, panels = 1;  // channels that are computed together; panels of a group
    int64_t block_images = 1;
    Axes block = {1, 1, 1};
    GridSteps steps = {};
    int64_t image_step = 0;
    ConvPhases terms = {};
    std::vector<std::vector<ConvPlace>> places = {};  // of each phase

private:
    void cut_panels() {
        const int64_t lanes = MEGJIT_BEST(kLanes),
                      vectors = parts_of(outputs = to.channels / groups, lanes);
        panels = parts_of(vectors, MEGJIT_BEST(kMostVectors));
        panel = parts_of(vectors, panels) * lanes;
        is_written_in_place = !to.is_planar && outputs % lanes == 0;
        inputs = is_depthwise ? 1 : from.channels / groups;
        width = is_depthwise ? panel : inputs;
    }

    int64_t cuts(size_t axis) const { return parts_of(axes[axis].most_results(), block[axis]); }
    int64_t grid(const Axes& count) const {
        return axes[0].grid(count[0]) * axes[1].grid(count[1]) * axes[2].grid(count[2]);
    }
    // A block has fewer pixels where threads would have too few of them to share.
    void cut_blocks() {
        constexpr int64_t kUnits = 8, kFewest = 96;  // of a thread
        for (size_t i = 0; i < 3; ++i) block[i] = axes[i].most_results();
        const int64_t all = images * product_of(block) * groups * panels,
                      most = std::clamp(all / (kUnits * runtime::thread_count()), kFewest,
                                        kBlockPixels);
        const auto fits = [&] {
            return product_of(block) <= most && grid(block) * width <= kBlockFloats;
        };
        // What lies behind an axis of several phases is not cut: a block's results follow each
        // other.
        for (size_t i = 0; i < 3 && (i == 0 || axes[i - 1].phases() == 1); ++i)
            for (int64_t parts = 2; !fits() && block[i] > 1; ++parts)
                block[i] = parts_of(axes[i].most_results(), parts);
        if (cuts(0) * cuts(1) * cuts(2) > 1) return;
        block_images = std::min(most / product_of(block), kBlockFloats / (grid(block) * width));
        block_images = even_part(images, std::max<int64_t>(1, block_images));
    }

    void set_steps() {
        Axes extents;
        for (size_t i = 0; i < 3; ++i)
            extents[i] = is_read_in_place ? axes[i].pixels : axes[i].grid(block[i]);
        const int64_t point = is_read_in_place ? from.channels : width;
        steps = {{extents[1] * extents[2] * point, extents[2] * point, point},
                 inputs,
                 is_depthwise ? panel : 1};
        image_step = product_of(extents) * point;
    }

    // The results of a block in the order of memory.
    void set_places() {
        for (const ConvPhase& phase : terms.phases) {
            std::vector<ConvPlace>& all = places.emplace_back();
            Axes count;
            for (size_t i = 0; i < 3; ++i)
                count[i] = std::min(axes[i].results_of(phase.at[i]), block[i]);
            const auto result = [&](size_t axis, int64_t q) {
                return phase.at[axis] + q * axes[axis].phases();
            };
            for (int64_t image = 0; image < block_images; ++image)
                for (int64_t a = 0; a < count[0]; ++a)
                    for (int64_t b = 0; b < count[1]; ++b)
                        for (int64_t c = 0; c < count[2]; ++c)
                            all.push_back(
                                {image * image_step + a * axes[0].stride * steps.point[0] +
                                     b * axes[1].stride * steps.point[1] +
                                     c * axes[2].stride * steps.point[2],
                                 ((image * axes[0].results + result(0, a)) * axes[1].results +
                                  result(1, b)) *
                                         axes[2].results +
                                     result(2, c)});
        }
    }
};

class DenseConvExecutable final : public runtime::Executable {
public:
    DenseConvExecutable(const ConvProblem& p, Role role) : c_(p, role) {
        shares_ = std::min(units(), threads_for(c_.products()));
        sums_ = c_.is_written_in_place ? 0 : c_.block_pixels() * c_.panel;
        share_floats_ = c_.packed_x() + aligned_floats(sums_);
    }
    size_t workspace_bytes() const override {
        return static_cast<size_t>(aligned_floats(c_.weights()) + shares_ * share_floats_) *
               sizeof(float);
    }
    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        auto* const weights = static_cast<float*>(workspace);
        const Run run{static_cast<const float*>(in[0]), weights, static_cast<float*>(out[0])};
        pack_weights(static_cast<const float*>(in[1]), weights);
        float* const packed = weights + aligned_floats(c_.weights());
        parallel_for(shares_, 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t share = lo; share < hi; ++share)
                compute_share(run, share, packed + share * share_floats_);
        });
    }

private:
    struct Run {
        const float *x, *w;
        float* y;
    };

    // Each is a panel of a group of a block.
    int64_t units() const { return c_.blocks() * c_.groups * c_.panels; }

    // Weights are [panels][taps in the order of terms][channels][panel].
    void pack_weights(const float* w, float* to) const {
        constexpr int64_t kChannels = 16;  // are packed at once
        const int64_t channels = c_.inputs, parts = parts_of(channels, kChannels), taps = c_.taps(),
                      numbers = kChannels * taps * c_.panel;
        parallel_for(c_.groups * c_.panels * parts, std::max<int64_t>(1, (1 << 16) / numbers), 1,
                     [&](int64_t lo, int64_t hi) {
            std::vector<float> block(static_cast<size_t>(taps > 1 ? numbers : 0));
            for (int64_t i = lo; i < hi; ++i) {
                const int64_t first = i % parts * kChannels,
                              count = std::min(kChannels, channels - first);
                float* const panel = to + (i / parts * taps * channels + first) * c_.panel;
                pack_channels(w, i / parts, first, count, taps > 1 ? block.data() : panel);
                if (taps > 1) sort_taps(block.data(), count, panel);
            }
        });
    }
    // Copies [count][taps][panel] to the order of terms.
    void sort_taps(const float* from, int64_t count, float* to) const {
        const int64_t taps = c_.taps();
        for (const int64_t tap : c_.terms.taps) {
            for (int64_t c = 0; c < count; ++c)
                std::memcpy(to + c * c_.panel, from + (c * taps + tap) * c_.panel,
                            static_cast<size_t>(c_.panel) * sizeof(float));
            to += c_.inputs * c_.panel;
        }
    }
    // Packs channels of a panel as [channels][taps][panel].
    void pack_channels(const float* w, int64_t index, int64_t first, int64_t count,
                       float* to) const {
        const int64_t taps = c_.taps(), inputs = c_.inputs, outputs = c_.outputs;
        const int64_t group = index / c_.panels, lane = index % c_.panels * c_.panel,
                      lanes = std::min(c_.panel, outputs - lane);
        w += group * inputs * outputs * taps;
        if (!c_.is_data)
            return MEGJIT_BEST(pack_lanes)(w + (lane * inputs + first) * taps, inputs * taps,
                                           count * taps, lanes, c_.panel, to);
        for (int64_t c = 0; c < count; ++c)
            MEGJIT_BEST(pack_lanes)(w + ((first + c) * outputs + lane) * taps, taps, taps, lanes,
                                    c_.panel, to + c * taps * c_.panel);
    }

    void compute_share(const Run& run, int64_t share, float* packed) const {
        const Range units = share_of(this->units(), share, shares_);
        const int64_t all_panels = c_.groups * c_.panels;
        float* const sums = packed + c_.packed_x();
        int64_t packed_block = -1;
        for (int64_t unit = units.begin; unit < units.end; ++unit) {
            const Block b = c_.block_at(unit / all_panels);
            const int64_t panel = unit % all_panels,
                          block = c_.is_depthwise ? unit : unit / c_.panels;
            const ChannelRange reads = c_.read_by(panel);
            if (block != packed_block && !c_.is_read_in_place) pack_x(run.x, b, reads, packed);
            packed_block = block;
            compute_panel(run, b, panel,
                          c_.is_read_in_place ? in_place(run.x, b, reads.first) : packed, sums);
        }
    }

    // The block's first grid point.
    const float* in_place(const float* x, const Block& b, int64_t channel) const {
        int64_t at = b.image * c_.image_step + channel;
        for (size_t i = 0; i < 3; ++i)
            at += (b.first[i] * c_.axes[i].stride - c_.axes[i].before) * c_.steps.point[i];
        return x + at;
    }

    void pack_x(const float* x, const Block& b, const ChannelRange& channels, float* packed) const {
        for (int64_t image = 0; image < b.images; ++image)
            for (int64_t a = 0; a < c_.axes[0].grid(b.count[0]); ++a)
                for (int64_t row = 0; row < c_.axes[1].grid(b.count[1]); ++row)
                    pack_row(x, b, image, channels,
                             {pixel(0, b.first[0], a), pixel(1, b.first[1], row)},
                             packed + image * c_.image_step + a * c_.steps.point[0] +
                                 row * c_.steps.point[1]);
    }
    // The pixel of a grid point behind those of so many results; -1 outside.
    int64_t pixel(size_t axis, int64_t results, int64_t point) const {
        const ConvAxis& a = c_.axes[axis];
        const int64_t at = (results * a.stride + point) * a.step - a.before;
        return at < a.pixels ? at : -1;
    }
    void pack_row(const float* x, const Block& b, int64_t image, const ChannelRange& channels,
                  const int64_t (&at)[2], float* to) const {
        const ConvAxis& a = c_.axes[2];
        const int64_t columns = a.grid(b.count[2]), width = c_.width;
        int64_t before = columns, count = 0;
        if (at[0] >= 0 && at[1] >= 0) {
            const int64_t outside = a.before - b.first[2] * a.stride * a.step;
            before = std::clamp<int64_t>(parts_of(outside, a.step), 0, columns);
            const int64_t column = before * a.step - outside;
            count = std::clamp<int64_t>(parts_of(a.pixels - column, a.step), 0, columns - before);
            const int64_t pixel = (at[0] * c_.axes[1].pixels + at[1]) * a.pixels + column;
            if (count > 0)
                MEGJIT_BEST(pack_pixels)(c_.from.steps(a.step),
                                         x + c_.from.at(b.image + image, pixel, channels.first),
                                         count, channels.count, width, to + before * width);
        }
        std::fill_n(to, before * width, 0.0f);
        std::fill_n(to + (before + count) * width, (columns - before - count) * width, 0.0f);
    }

    void compute_panel(const Run& run, const Block& b, int64_t index, const float* x,
                       float* sums) const {
        const int64_t lane = index % c_.panels * c_.panel,
                      lanes = std::min(c_.panel, c_.outputs - lane);
        const int64_t channel = index / c_.panels * c_.outputs + lane, vector = MEGJIT_BEST(kLanes);
        const int64_t first = c_.first_pixel(b);
        ConvTiles t{.x = x,
                    .to = c_.is_written_in_place ? run.y + c_.to.at(b.image, first, channel) : sums,
                    .to_step = c_.is_written_in_place ? c_.to.channels : c_.panel,
                    .panel = c_.panel,
                    .is_depthwise = c_.is_depthwise};
        for (size_t phase = 0; phase < c_.terms.phases.size(); ++phase)
            compute_phase(c_.terms.phases[phase], c_.places[phase], b,
                          run.w + index * c_.taps() * c_.inputs * c_.panel, parts_of(lanes, vector),
                          t);
        if (c_.is_written_in_place) return;
        const int64_t pixels = c_.image_pixels(b);
        for (int64_t image = 0; image < b.images; ++image)
            MEGJIT_BEST(unpack_pixels)(sums + image * pixels * c_.panel, c_.panel, pixels, lanes,
                                       c_.to.steps(1),
                                       run.y + c_.to.at(b.image + image, first, channel));
    }

    void compute_phase(const ConvPhase& phase, const std::vector<ConvPlace>& places, const Block& b,
                       const float* w, int64_t vectors, ConvTiles t) const {
        t.places = places.data();
        t.count = b.images;
        for (size_t i = 0; i < 3; ++i)
            t.count *=
                std::clamp<int64_t>(c_.axes[i].results_of(phase.at[i]) - b.first[i], 0, b.count[i]);
        if (phase.chunks.empty()) MEGJIT_BEST(sum_panel)(t, vectors);  // zeros
        for (const TermChunk& chunk : phase.chunks) {
            t.w = w + chunk.first_term * c_.panel;
            t.runs = phase.runs.data() + chunk.first_run;
            t.run_count = chunk.end_run - chunk.first_run;
            MEGJIT_BEST(sum_panel)(t, vectors);
            t.adds = true;
        }
    }

    DenseConv c_;
    int64_t shares_ = 1, sums_ = 0, share_floats_ = 0;
};

}  // namespace

Prepared prepare_dense_conv(const ConvProblem& p, Role role) {
    return std::make_shared<const DenseConvExecutable>(p, role);
}

}  // namespace megjit::cpu
