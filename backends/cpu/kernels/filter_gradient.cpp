#include "backends/cpu/kernels/filter_gradient.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/conv_panels.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu { namespace {

// Places whose products are added in registers. The rows operand lies at image, row and column; the
// lanes operand's places follow each other.
struct Strip {
    int64_t images = 1, rows = 1, columns = 1;
    int64_t image_step = 0, row_step = 0, column_step = 0, lanes_step = 0;
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/filter_gradient.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

using runtime::ConvProblem;
using runtime::Layout;
using runtime::parallel_for;
using runtime::Type;

// An operand whose channels are packed by panels.
struct Operand : ConvOperand {
    using ConvOperand::ConvOperand;

    int64_t panel = 0, panels = 0;  // channels that are packed together
    bool is_read_in_place = false;

    void set_panel(int64_t size) { panel = size, panels = parts_of(channels, size); }
    int64_t panel_channels(int64_t i) const { return std::min(panel, channels - i * panel); }
    bool can_be_read_in_place() const {
        return !is_planar && step[0] == 1 && step[1] == 1 && padding[0] == 0 && padding[1] == 0;
    }
};

// Images, or rows of an image, that are packed at once.
struct Block {
    int64_t image = 0, images = 0, row = 0, rows = 0;
};

// The gradient as sums of outer products. Elements of one operand are the rows' factors, vectors of
// the other one the lanes' factors. x gives the rows, and each tap is further rows of it. If there
// is one tap, the operand with more channels gives the rows, because lanes are read again for each
// panel of rows.
struct FilterGradient {
    // Products of a strip are added in registers: longer ones leave the first-level cache, shorter
    // ones are stored too often.
    static constexpr int64_t kStripPlaces = 128;
    // A block stays in the second-level cache, unless the sums are larger.
    static constexpr int64_t kBlockBytes = 1 << 20;
    // Sums of all parts stay in the second-level caches, too.
    static constexpr int64_t kMostParts = 16, kPartsBytes = 5 << 19;
    // Rows of a panel, with and without taps: 16 channels of three taps are eight tiles of six.
    static constexpr int64_t kTapRows = 48, kPointRows = 64;

    explicit FilterGradient(const ConvProblem& p)
        : rows(p.x),
          lanes(p.y),
          images(p.x.shape[0]),
          places{lanes.extent[0], lanes.extent[1]},
          window(p.window) {
        rows.set_window(p.window);
        is_turned = taps() > 1 || rows.channels >= lanes.channels;
        if (!is_turned) std::swap(rows, lanes);
        set_panels();
        cut();
    }

    int64_t taps() const { return window.count(); }
    // Floats of the sums of a panel of rows and a panel of lanes.
    int64_t panel_sums() const { return taps() * rows.panel * lanes.panel; }
    int64_t sums() const { return rows.panels * lanes.panels * panel_sums(); }
    // Floats of one packed panel of a block.
    int64_t packed_panel(const Operand& o, int64_t images, int64_t rows) const {
        return images * o.grid(0, rows) * o.grid(1, places[1]) * o.panel;
    }
    int64_t products() const {
        return images * places[0] * places[1] * taps() * rows.channels * lanes.channels;
    }

    Block block(int64_t index) const {
        const int64_t row_blocks = parts_of(places[0], block_rows);
        const int64_t image = index / row_blocks * block_images,
                      row = index % row_blocks * block_rows;
        return {image, std::min(block_images, images - image), row,
                std::min(block_rows, places[0] - row)};
    }

    Operand rows, lanes;
    int64_t images = 0, places[2] = {1, 1};
    WindowTaps window;  // a run of taps is one run of rows
    bool is_turned = true;  // x gives the rows, so w [oc, ic] is the sums transposed
    int64_t strip_images = 1, strip_rows = 1, strip_columns = 1;
    int64_t block_images = 1, block_rows = 1, blocks = 1, parts = 1;

private:
    void set_panels() {
        const int64_t run = window.run_taps;
        rows.set_panel(
            even_part(rows.channels, run == 1 ? kPointRows : std::max<int64_t>(1, kTapRows / run)));
        const int64_t vector = MEGJIT_BEST(kLanes), whole = MEGJIT_BEST(kLanePanel);
        lanes.set_panel(std::min(whole, parts_of(lanes.channels, vector) * vector));
        const bool is_narrow = lanes.channels <= MEGJIT_BEST(kInPlace);
        lanes.is_read_in_place =
            is_narrow && lanes.can_be_read_in_place() && lanes.channels % 16 == 0;
        rows.is_read_in_place = is_narrow && rows.can_be_read_in_place() && taps() == 1;
    }

    void cut() {
        strip_columns = even_part(places[1], kStripPlaces);
        if (strip_columns == places[1])
            strip_rows = std::clamp<int64_t>(kStripPlaces / places[1], 1, places[0]);
        if (strip_rows == places[0])
            strip_images = std::clamp<int64_t>(kStripPlaces / (places[0] * places[1]), 1, images);
        const auto bytes = [&](int64_t count) {
            return 4 * (rows.grid(0, count) * rows.grid(1, places[1]) * rows.channels +
                        lanes.grid(0, count) * lanes.grid(1, places[1]) * lanes.channels);
        };
        const int64_t image = bytes(places[0]);
        const int64_t sum_bytes = 4 * taps() * rows.channels * lanes.channels;
        const int64_t most = std::max(kBlockBytes, sum_bytes / 2);
        block_rows = places[0];
        if (image <= most) block_images = even_part(images, most / image);
        else
            block_rows =
                parts_of(parts_of(places[0], parts_of(image, most)), strip_rows) * strip_rows;
        blocks = parts_of(images, block_images) * parts_of(places[0], block_rows);
        parts = std::clamp<int64_t>(kPartsBytes / sum_bytes, 1, std::min(blocks, kMostParts));
    }
};

// How threads share the work: each computes some parts of some panels, and packs what it needs, so
// that none waits for another one.
struct Shares {
    int64_t parts = 1, rows = 1, lanes = 1;
    int64_t count() const { return parts * rows * lanes; }
};

// Parts are shared first, because they pack nothing twice. Of the ways to share panels the one with
// the smallest largest share is taken, then the one that packs least.
Shares shares_of(const FilterGradient& g, int64_t threads) {
    Shares best;
    for (int64_t parts = 1; parts <= threads; ++parts)
        if (threads % parts == 0 && (g.parts % parts == 0 || g.parts >= 4 * parts))
            best.parts = parts;
    const int64_t rest = threads / best.parts;
    const auto cost = [&](int64_t rows, int64_t lanes) {
        const int64_t i = parts_of(g.rows.panels, rows), j = parts_of(g.lanes.panels, lanes);
        return std::pair(i * j, i * g.packed_panel(g.rows, 1, g.places[0]) +
                                    j * g.packed_panel(g.lanes, 1, g.places[0]));
    };
    best.rows = rest;
    for (int64_t rows = 1; rows < rest; ++rows)
        if (rest % rows == 0 && cost(rows, rest / rows) < cost(best.rows, best.lanes))
            best.rows = rows, best.lanes = rest / rows;
    return best;
}

class FilterExecutable final : public runtime::Executable {
public:
    explicit FilterExecutable(const ConvProblem& p) : g_(p) {
        shares_ = shares_of(g_, threads_for(g_.products()));
        const auto packed = [&](const Operand& o, int64_t shares) {
            const int64_t panel = g_.packed_panel(o, g_.block_images, g_.block_rows);
            return o.is_read_in_place ? 0 : aligned_floats(parts_of(o.panels, shares) * panel);
        };
        packed_rows_ = packed(g_.rows, shares_.rows);
        packed_floats_ = packed_rows_ + packed(g_.lanes, shares_.lanes);
    }
    size_t workspace_bytes() const override {
        const int64_t sums =
            keeps_sums() ? g_.parts * g_.sums() : shares_.count() * g_.panel_sums();
        return static_cast<size_t>(shares_.count() * packed_floats_ + sums) * sizeof(float);
    }
    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        const int x = g_.is_turned ? 0 : 1;
        Run run{static_cast<const float*>(in[x]), static_cast<const float*>(in[1 - x]),
                static_cast<float*>(out[0]), static_cast<float*>(workspace)};
        run.sums = run.packed + shares_.count() * packed_floats_;
        parallel_for(shares_.count(), 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t share = lo; share < hi; ++share) sum_share(run, share);
        });
        if (g_.parts > 1) join(run);
    }

private:
    // One block's sums are joined before those of the next panels are begun.
    bool keeps_sums() const { return g_.blocks > 1; }

    struct Run {
        const float *rows, *lanes;
        float *w, *packed, *sums = nullptr;
    };
    // The panels of a share.
    struct Panels {
        Range rows, lanes;
    };

    void sum_share(Run run, int64_t share) const {
        run.packed += share * packed_floats_;
        const int64_t row_share = share % shares_.rows,
                      lane_share = share / shares_.rows % shares_.lanes,
                      part_share = share / shares_.rows / shares_.lanes;
        const Panels panels{share_of(g_.rows.panels, row_share, shares_.rows),
                            share_of(g_.lanes.panels, lane_share, shares_.lanes)};
        const Range parts = share_of(g_.parts, part_share, shares_.parts);
        float* const sums = run.sums;
        if (!keeps_sums()) run.sums += share * g_.panel_sums();
        for (int64_t part = parts.begin; part < parts.end; ++part) {
            if (keeps_sums()) run.sums = sums + part * g_.sums();
            const Range blocks = share_of(g_.blocks, part, g_.parts);
            for (int64_t i = blocks.begin; i < blocks.end; ++i) {
                const Block b = g_.block(i);
                pack(g_.rows, run.rows, b, panels.rows, run.packed);
                pack(g_.lanes, run.lanes, b, panels.lanes, run.packed + packed_rows_);
                sum_block(run, b, panels, i == blocks.begin, g_.parts == 1 && i + 1 == blocks.end);
            }
        }
    }

    void pack(const Operand& o, const float* data, const Block& b, Range panels,
              float* packed) const {
        if (o.is_read_in_place) return;
        for (int64_t i = 0; i < b.images * o.grid(0, b.rows); ++i)
            pack_row(o, data, b, i, panels, packed);
    }

    // Packs the index-th row of the grid of the block's images.
    void pack_row(const Operand& o, const float* data, const Block& b, int64_t index, Range panels,
                  float* packed) const {
        const int64_t grid_rows = o.grid(0, b.rows), columns = o.grid(1, g_.places[1]);
        const GridRow at = o.grid_row(b.row * o.stride[0] + index % grid_rows, columns);
        for (int64_t i = panels.begin; i < panels.end; ++i) {
            float* const to = packed + (i - panels.begin) * g_.packed_panel(o, b.images, b.rows) +
                              index * columns * o.panel;
            std::fill_n(to, at.before * o.panel, 0.0f);
            if (at.count > 0)
                MEGJIT_BEST(pack_pixels)(
                    o.steps(),
                    o.pixel(data, b.image + index / grid_rows, at.row, at.column, i * o.panel),
                    at.count, o.panel_channels(i), o.panel, to + at.before * o.panel);
            std::fill_n(to + (at.before + at.count) * o.panel,
                        (columns - at.before - at.count) * o.panel, 0.0f);
        }
    }

    void sum_block(const Run& run, const Block& b, const Panels& panels, bool is_first,
                   bool joins) const {
        for (int64_t j = panels.lanes.begin; j < panels.lanes.end; ++j)
            for (int64_t i = panels.rows.begin; i < panels.rows.end; ++i) {
                float* const sums =
                    run.sums + (keeps_sums() ? (j * g_.rows.panels + i) * g_.panel_sums() : 0);
                const int64_t runs = g_.window.runs();
                for (int64_t r = 0; r < runs; ++r)
                    sum_run(run, b, panels, i, j, r, sums + r * g_.panel_sums() / runs, is_first);
                if (joins) join_panel(run, i, j, sums);
            }
    }

    // The operand's i-th panel of that block, which is packed behind those from `first` on.
    const float* panel_at(const Operand& o, const float* data, const float* packed, const Block& b,
                          int64_t i, int64_t first) const {
        return o.is_read_in_place ? o.pixel(data, b.image, b.row, 0, i * o.panel)
                                  : packed + (i - first) * g_.packed_panel(o, b.images, b.rows);
    }

    void sum_run(const Run& run, const Block& b, const Panels& panels, int64_t i, int64_t j,
                 int64_t r, float* sums, bool is_first) const {
        const Operand &o = g_.rows, &l = g_.lanes;
        const int64_t columns = o.grid(1, g_.places[1]),
                      grid_rows = o.is_read_in_place ? o.extent[0] : o.grid(0, b.rows),
                      pixel = o.is_read_in_place ? o.channels : o.panel;
        Strip s{.image_step = grid_rows * columns * pixel,
                .row_step = o.stride[0] * columns * pixel,
                .column_step = o.stride[1] * pixel,
                .lanes_step = l.is_read_in_place ? l.channels : l.panel};
        const float* const rows = panel_at(o, run.rows, run.packed, b, i, panels.rows.begin) +
                                  g_.window.run_at(r, columns) * pixel;
        const float* const lanes =
            panel_at(l, run.lanes, run.packed + packed_rows_, b, j, panels.lanes.begin);
        const int64_t count = g_.taps() == 1 ? o.panel_channels(i) : g_.window.run_taps * o.panel;
        bool adds = !is_first;
        for (int64_t image = 0; image < b.images; image += g_.strip_images)
            for (int64_t row = 0; row < b.rows; row += g_.strip_rows)
                for (int64_t column = 0; column < g_.places[1]; column += g_.strip_columns) {
                    s.images = std::min(g_.strip_images, b.images - image);
                    s.rows = std::min(g_.strip_rows, b.rows - row);
                    s.columns = std::min(g_.strip_columns, g_.places[1] - column);
                    MEGJIT_BEST(sum_strip)(
                        count, l.panel_channels(j), joined(s),
                        rows + image * s.image_step + row * s.row_step + column * s.column_step,
                        lanes + ((image * b.rows + row) * g_.places[1] + column) * s.lanes_step,
                        sums, l.panel, adds);
                    adds = true;
                }
    }
    // Rows, and images, that follow each other without a gap are one longer row.
    static Strip joined(Strip s) {
        if (s.row_step != s.columns * s.column_step) return s;
        s.columns *= std::exchange(s.rows, 1);
        if (s.image_step == s.columns * s.column_step) s.columns *= std::exchange(s.images, 1);
        return s;
    }

    void join(const Run& run) const {
        constexpr int64_t kGrain = 1 << 15;
        parallel_for(g_.rows.panels * g_.lanes.panels, 1 + kGrain / (g_.parts * g_.panel_sums()), 1,
                     [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i)
                join_panel(run, i % g_.rows.panels, i / g_.rows.panels,
                           run.sums + i * g_.panel_sums());
        });
    }
    void join_panel(const Run& run, int64_t i, int64_t j, const float* sums) const {
        const Operand &o = g_.rows, &l = g_.lanes;
        const PartialSums parts{g_.parts, g_.sums()};
        const int64_t row = i * o.panel, lane = j * l.panel, taps = g_.taps();
        if (g_.is_turned)
            MEGJIT_BEST(join_turned)(parts, sums, l.panel, taps, o.panel, o.panel_channels(i),
                                     l.panel_channels(j), run.w + (lane * o.channels + row) * taps,
                                     o.channels * taps);
        else
            MEGJIT_BEST(join_straight)(parts, sums, l.panel, o.panel_channels(i),
                                       l.panel_channels(j), run.w + row * l.channels + lane,
                                       l.channels);
    }

    FilterGradient g_;
    Shares shares_;
    int64_t packed_rows_ = 0, packed_floats_ = 0;  // floats of a share
};

}  // namespace

bool takes_filter_gradient(const ConvProblem& p) {
    return p.groups == 1 && p.x.dtype == runtime::DType::f32 &&
           (p.window.dims <= 2 || runtime::is_pointwise(p));
}

Prepared prepare_filter_gradient(const ConvProblem& p) {
    return std::make_shared<const FilterExecutable>(p);
}

}  // namespace megjit::cpu
