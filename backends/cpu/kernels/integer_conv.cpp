#include "backends/cpu/kernels/integer_conv.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/convert.h"
#include "backends/cpu/instructions.h"
#include "runtime/host/parallel.h"
#include "runtime/ops/conv.h"

namespace megjit::cpu { namespace {

using runtime::DType;
using runtime::Layout;
using runtime::OpCall;
using runtime::parallel_for;
using runtime::Type;

// An output pixel: its image, and where its window begins.
struct Place {
    int64_t image = 0, start[3] = {};
};

// There are always three spatial axes; those that the op lacks have extent 1.
struct IntegerConv {
    static constexpr int64_t kTileRows = 24, kTileDepth = 1024,
                             kTileChannels = 128;  // patches take 48 KB of the stack, sums 12

    int64_t images = 0, groups = 1, ic = 0, oc = 0;  // channels in one group
    int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
    int64_t stride[3] = {1, 1, 1}, padding[3] = {}, dilation[3] = {1, 1, 1};
    bool rectifies = false, one_scale = false;

    int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    int64_t depth() const { return taps() * ic; }
    int64_t pairs() const { return (depth() + 1) / 2; }
    int64_t places() const { return images * out[0] * out[1] * out[2]; }
    bool is_depthwise() const { return ic == 1 && oc == 1; }

    Place place(int64_t index) const {
        Place place;
        for (int axis = 2; axis >= 0; --axis) {
            place.start[axis] = index % out[axis] * stride[axis] - padding[axis];
            index /= out[axis];
        }
        place.image = index;
        return place;
    }
    // The input pixel under one tap; -1 outside of the image.
    int64_t pixel_of(const Place& place, int64_t tap) const {
        const int64_t offset[3] = {tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1],
                                   tap % kernel[2]};
        int64_t at = place.image;
        for (int axis = 0; axis < 3; ++axis) {
            const int64_t i = place.start[axis] + offset[axis] * dilation[axis];
            if (i < 0 || i >= in[axis]) return -1;
            at = at * in[axis] + i;
        }
        return at;
    }
};

struct IntegerRun {
    const void* x = nullptr;
    const int16_t* weights = nullptr;
    const float *scale = nullptr, *bias = nullptr;
    void* y = nullptr;
};

}}  // namespace megjit::cpu

#define MEGJIT_KERNELS "backends/cpu/kernels/integer_conv.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {
namespace {

int64_t panel_channels() { return MEGJIT_BEST(kPanel); }

IntegerConv integer_conv_of(const OpCall& call, std::span<const Type> outputs) {
    const runtime::ConvProblem p = runtime::conv_problem(call, outputs);
    const runtime::Window& window = p.window;
    IntegerConv s{.images = p.x.shape[0],
                  .groups = p.groups,
                  .ic = p.w.shape[1],
                  .rectifies = !p.steps.empty(),
                  .one_scale = call.inputs[2].numel() == 1};
    s.oc = p.w.shape[0] / s.groups;
    for (int i = 0; i < window.dims; ++i) {
        const int axis = 3 - window.dims + i;
        s.in[axis] = p.x.shape[2 + i], s.out[axis] = p.y.shape[2 + i];
        s.kernel[axis] = window.kernel[i], s.stride[axis] = window.stride[i];
        s.padding[axis] = window.padding[i], s.dilation[axis] = window.dilation[i];
    }
    return s;
}

template <class Fn>
void with_8_bits(DType dtype, const Fn& fn) {
    dtype == DType::i8 ? fn(int8_t{}) : fn(uint8_t{});
}

class IntegerExecutable final : public runtime::Executable {
public:
    IntegerExecutable(const IntegerConv& problem, const Type& x, const Type& y)
        : s_(problem), x_(x), y_(y) {
        if (lies_otherwise(x_)) x_bytes_ = (x_.bytes() + 63) / 64 * 64;
        if (lies_otherwise(y_)) y_bytes_ = y_.bytes();
    }
    size_t workspace_bytes() const override { return x_bytes_ + y_bytes_; }

    void enqueue(runtime::Stream&, void* const* in, void* const* out,
                 void* workspace) const override {
        IntegerRun run{in[0], static_cast<const int16_t*>(in[1]), static_cast<const float*>(in[2]),
                       static_cast<const float*>(in[3]), out[0]};
        if (x_bytes_) {
            convert_layout(x_, Layout::channels_last, in[0], workspace);
            run.x = workspace;
        }
        if (y_bytes_) run.y = static_cast<char*>(workspace) + x_bytes_;
        with_8_bits(x_.dtype, [&]<class T>(T) {
            if (y_.dtype == DType::f32) return compute<T, float>(run);
            with_8_bits(y_.dtype, [&]<class R>(R) { compute<T, R>(run); });
        });
        if (y_bytes_)
            convert_layout({y_.dtype, y_.shape, Layout::channels_last}, Layout::row_major, run.y,
                           out[0]);
    }

private:
    bool lies_otherwise(const Type& type) const {
        return type.layout == Layout::row_major && type.numel() != type.shape[0] * type.shape[1];
    }

    template <class T, class R>
    void compute(const IntegerRun& run) const {
        constexpr int64_t kRows = IntegerConv::kTileRows,
                          kGrain = 1 << 18;  // this many products are worth a second thread
        const int64_t tiles = (s_.places() + kRows - 1) / kRows, panel = panel_channels();
        const auto rows_of = [&](int64_t tile) {
            return std::min(kRows, s_.places() - tile * kRows);
        };
        if (s_.is_depthwise()) {
            return parallel_for(tiles, 1 + kGrain / (kRows * s_.groups * s_.taps() * 4), 1,
                                [&](int64_t lo, int64_t hi) {
                for (int64_t tile = lo; tile < hi; ++tile)
                    MEGJIT_BEST(compute_depthwise<T, R>)(s_, run, tile * kRows, rows_of(tile));
            });
        }
        const int64_t panels = (s_.oc + panel - 1) / panel,
                      together = IntegerConv::kTileChannels / panel,
                      parts = (panels + together - 1) / together;
        parallel_for(
            tiles * s_.groups * parts,
            1 + kGrain / (kRows * s_.depth() * std::min(s_.oc, IntegerConv::kTileChannels)), 1,
            [&](int64_t lo, int64_t hi) {
            for (int64_t task = lo; task < hi; ++task) {
                const int64_t part = task % parts, group = task / parts % s_.groups,
                              tile = task / parts / s_.groups;
                MEGJIT_BEST(compute_tile<T, R>)(s_, run, group, tile * kRows, rows_of(tile),
                                                part * together,
                                                std::min(panels, (part + 1) * together));
            }
        });
    }

    IntegerConv s_;
    Type x_, y_;
    size_t x_bytes_ = 0, y_bytes_ = 0;
};

// Packs weights as [groups][panels][pairs][panel][2], or as [taps][groups] for groups of one
// channel.
void pack(const IntegerConv& s, int64_t panel, const int8_t* from, int16_t* to) {
    const int64_t taps = s.taps(), panels = (s.oc + panel - 1) / panel;
    if (s.is_depthwise()) {
        for (int64_t g = 0; g < s.groups; ++g)
            for (int64_t tap = 0; tap < taps; ++tap) to[tap * s.groups + g] = from[g * taps + tap];
        return;
    }
    std::fill_n(to, s.groups * panels * s.pairs() * panel * 2, int16_t{0});
    parallel_for(s.groups * s.oc, 16, 1, [&](int64_t lo, int64_t hi) {
        for (int64_t o = lo; o < hi; ++o) {
            const int64_t channel = o % s.oc;
            int16_t* const column =
                to +
                ((o / s.oc * panels + channel / panel) * s.pairs() * panel + channel % panel) * 2;
            for (int64_t tap = 0; tap < taps; ++tap)
                for (int64_t c = 0; c < s.ic; ++c) {
                    const int64_t k = tap * s.ic + c;
                    column[k / 2 * panel * 2 + k % 2] = from[(o * s.ic + c) * taps + tap];
                }
        }
    });
}

}  // namespace

Prepared prepare_integer_conv(const OpCall& call, std::span<const Type> outputs) {
    return std::make_shared<const IntegerExecutable>(integer_conv_of(call, outputs), call.inputs[0],
                                                     outputs[0]);
}

IntegerPack prepare_integer_pack(const OpCall& call, std::span<const Type> outputs) {
    const IntegerConv s = integer_conv_of(call, outputs);
    const int64_t panel = panel_channels(), panels = (s.oc + panel - 1) / panel;
    const int64_t numel =
        s.is_depthwise() ? s.groups * s.taps() : s.groups * panels * s.pairs() * panel * 2;
    return {executable([s, panel](void* const* in, void* const* out, void*) {
        pack(s, panel, static_cast<const int8_t*>(in[0]), static_cast<int16_t*>(out[0]));
    }),
            static_cast<size_t>(numel) * sizeof(int16_t)};
}

}  // namespace megjit::cpu
