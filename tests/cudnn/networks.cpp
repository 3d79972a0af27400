#include "tests/cudnn/networks.h"

#include <set>

#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

using runtime::Attr;
using runtime::Attrs;
using runtime::DType;
using runtime::Layout;
using runtime::Shape;
using runtime::Type;
using Extents = std::vector<int64_t>;

struct ConvSpec {
    int64_t in = 0, out = 0, size = 0, kernel = 3, stride = 1, groups = 1;
    int64_t padding = -1;  // below 0: half the kernel
    Extents more = {};  // further spatial extents
    int64_t dilation = 1;
};

// Collects the cases of one network.
class Network {
public:
    Network(std::string name, int64_t batch, DType dtype, Layout layout)
        : name_(std::move(name)), batch_(batch), dtype_(dtype), layout_(layout) {}

    Type image(int64_t channels, Extents size) const {
        Shape shape{batch_, channels};
        for (int64_t extent : size) shape.push_back(extent);
        return {dtype_, shape, shape.rank() > 2 ? layout_ : Layout::row_major};
    }

    // The convolution and its gradients; returns the extent of its result.
    int64_t conv(const ConvSpec& s) {
        Extents size = s.more.empty() ? Extents{s.size} : s.more;
        size.insert(size.begin(), s.size);
        const int64_t padding = s.padding < 0 ? s.dilation * (s.kernel - 1) / 2 : s.padding;
        Extents kernel(size.size(), s.kernel), out;
        for (int64_t extent : size)
            out.push_back((extent + 2 * padding - s.dilation * (s.kernel - 1) - 1) / s.stride + 1);
        Shape filter{s.out, s.in / s.groups};
        for (int64_t extent : kernel) filter.push_back(extent);
        const Type x = image(s.in, size), w{dtype_, filter}, y = image(s.out, out);
        const Extents strides{s.stride}, paddings{padding}, dilations{s.dilation};
        add("conv", {strides, paddings, dilations, s.groups}, {x, w});
        const auto with = [&](const Attr& last) -> Attrs {
            return {strides, paddings, dilations, s.groups, last};
        };
        add("conv_backward_data", with(size), {y, w});
        add("conv_backward_filter", with(kernel), {x, y});
        if (dtype_ == DType::f32) {
            Shape channels{s.out};
            for (size_t i = 0; i < size.size(); ++i) channels.push_back(1);
            const Type bias{dtype_, channels};
            add("conv_epilogue", with(std::string("bias relu")), {x, w, bias});
            if (s.in == s.out)
                add("conv_epilogue", with(std::string("bias add relu")), {x, w, bias, y});
        }
        return out[0];
    }
    // A convolution of 1x1 with the statistics of its result, and the gradient of its data with
    // relu's gradient of a sum, which is added up for two norms; and one of 3x3.
    void conv_with_more(int64_t in, int64_t out, int64_t size) {
        const Type x = image(in, {size, size}), y = image(out, {size, size}),
                   w{dtype_, {out, in, 1, 1}};
        const Extents ones{1}, none{0}, sizes{size, size};
        add("conv_stats", {ones, none, ones, int64_t{1}}, {x, w});
        add("conv_backward_data_epilogue",
            {ones, none, ones, int64_t{1}, sizes, std::string("add mask")}, {y, w, x, x});
        const Type means{DType::f32, {1, in, 1, 1}};
        add("conv_backward_data_sums",
            {ones, none, ones, int64_t{1}, sizes, std::string("add mask")},
            {y, w, x, x, x, means, x, means});
        const Type taps{dtype_, {out, in, 3, 3}, layout_};
        add("conv_backward_data_sums",
            {ones, Extents{1}, ones, int64_t{1}, sizes, std::string("mask")},
            {y, taps, x, x, means});
    }
    void batch_norm(int64_t channels, Extents size) {
        const Type x = image(channels, size), c{DType::f32, {channels}};
        add("batch_norm", {1e-5}, {x, c, c});
        add("batch_norm_grad", {1e-5}, {x, c, c, c, x});
    }
    void pool(bool is_max, int64_t channels, int64_t size, int64_t kernel, int64_t stride,
              int64_t padding, bool counts_padding = false) {
        const int64_t out = (size + 2 * padding - kernel) / stride + 1;
        const Type x = image(channels, {size, size}), y = image(channels, {out, out});
        const Extents kernels{kernel}, strides{stride}, paddings{padding}, sizes{size};
        const int64_t counts = counts_padding;
        if (is_max) {
            add("max_pool", {kernels, strides, paddings}, {x});
            add("max_pool_grad", {kernels, strides, paddings}, {x, y});
        } else {
            add("avg_pool", {kernels, strides, paddings, counts}, {x});
            add("avg_pool_grad", {kernels, strides, paddings, counts, sizes}, {y});
        }
    }
    void layer_norm(Shape shape, int64_t axes, DType weights = DType::f32) {
        Shape outer, inner;
        for (int axis = 0; axis < shape.rank(); ++axis)
            (axis < shape.rank() - axes ? outer : inner).push_back(shape[axis]);
        const Type x{dtype_, shape}, w{weights, inner}, stat{DType::f32, outer};
        add("layer_norm", {axes, 1e-5, int64_t{1}}, {x, w, w});
        add("layer_norm_grad", {axes, int64_t{1}}, {x, stat, stat, x, w});
    }
    void attention(int64_t batch, int64_t heads, int64_t length, int64_t width, bool causal,
                   int64_t keys = 0) {
        const Type q{dtype_, {batch, heads, length, width}},
            k{dtype_, {batch, heads, keys ? keys : length, width}},
            lse{DType::f32, {batch, heads, length}};
        const Attrs attrs{0.125, int64_t{causal}, int64_t{0}, 0.0, int64_t{0}, int64_t{0}};
        add("attention", attrs, {q, k, k});
        add("attention_grad", attrs, {q, k, k, q, lse, q});
    }
    // y = a b and its gradients.
    void matmul(Shape a, Shape b) {
        Shape y = a;
        y[y.rank() - 1] = b[b.rank() - 1];
        add("matmul", {int64_t{0}, int64_t{0}}, {{dtype_, a}, {dtype_, b}});
        add("matmul", {int64_t{0}, int64_t{1}}, {{dtype_, y}, {dtype_, b}});
        add("matmul", {int64_t{1}, int64_t{0}}, {{dtype_, a}, {dtype_, y}});
    }
    void dense(int64_t rows, int64_t in, int64_t out) {
        matmul({rows, in}, {in, out});
        if (dtype_ == DType::f32)
            add("matmul_epilogue", {int64_t{0}, int64_t{0}, std::string("bias relu")},
                {{dtype_, {rows, in}}, {dtype_, {in, out}}, {dtype_, {out}}});
    }
    void add(std::string op, Attrs attrs, std::vector<Type> inputs) {
        cases.push_back({name_, std::move(op), std::move(attrs), std::move(inputs)});
    }

    std::vector<OpCase> cases;

private:
    std::string name_;
    int64_t batch_;
    DType dtype_;
    Layout layout_;
};

void resnet(Network& net, bool bottleneck, const Extents& depths) {
    int64_t size = net.conv({.in = 3, .out = 64, .size = 224, .kernel = 7, .stride = 2});
    size /= 2;
    int64_t in = 64;
    for (size_t stage = 0; stage < depths.size(); ++stage) {
        const int64_t width = int64_t{64} << stage, out = bottleneck ? 4 * width : width;
        for (int64_t block = 0; block < depths[stage]; ++block) {
            const int64_t stride = block == 0 && stage > 0 ? 2 : 1;
            if (block == 0 && (stride > 1 || in != out))
                net.conv({.in = in, .out = out, .size = size, .kernel = 1, .stride = stride});
            if (bottleneck) {
                net.conv({.in = in, .out = width, .size = size, .kernel = 1});
                size = net.conv({.in = width, .out = width, .size = size, .stride = stride});
                net.conv({.in = width, .out = out, .size = size, .kernel = 1});
            } else {
                size = net.conv({.in = in, .out = out, .size = size, .stride = stride});
                net.conv({.in = out, .out = out, .size = size});
            }
            in = out;
        }
    }
    net.dense(32, in, 1000);
}

void densenet(Network& net) {
    int64_t size = net.conv({.in = 3, .out = 64, .size = 224, .kernel = 7, .stride = 2});
    size /= 2;
    int64_t channels = 64;
    const Extents layers{6, 12, 24, 16};
    for (size_t block = 0; block < layers.size(); ++block) {
        for (int64_t layer = 0; layer < layers[block]; ++layer, channels += 32) {
            if (layer % 6 != 0) continue;  // the others differ by their number of channels alone
            net.conv({.in = channels, .out = 128, .size = size, .kernel = 1});
            net.conv({.in = 128, .out = 32, .size = size});
        }
        if (block + 1 == layers.size()) break;
        net.conv({.in = channels, .out = channels / 2, .size = size, .kernel = 1});
        channels /= 2;
        size /= 2;
    }
    net.dense(32, channels, 1000);
}

void mobilenet(Network& net) {
    int64_t size = net.conv({.in = 3, .out = 32, .size = 224, .stride = 2}), in = 32;
    const int64_t blocks[][2] = {{64, 1},  {128, 2}, {128, 1},  {256, 2}, {256, 1},
                                 {512, 2}, {512, 1}, {1024, 2}, {1024, 1}};
    for (const auto& [out, stride] : blocks) {
        size = net.conv({.in = in, .out = in, .size = size, .stride = stride, .groups = in});
        net.conv({.in = in, .out = out, .size = size, .kernel = 1});
        in = out;
    }
    net.dense(32, in, 1000);
}

void unet(Network& net) {
    int64_t size = 128, in = 3;
    for (int64_t width = 64; width <= 512; width *= 2, size /= 2) {
        net.conv({.in = in, .out = width, .size = size});
        net.conv({.in = width, .out = width, .size = size});
        in = width;
    }
    net.conv({.in = 512, .out = 1024, .size = size});
    for (int64_t width = 512; width >= 64; width /= 2, size *= 2) {
        // The transposed convolution of 2x2 in steps of 2, from 2 * width to width channels.
        net.conv({.in = width,
                  .out = 2 * width,
                  .size = 2 * size,
                  .kernel = 2,
                  .stride = 2,
                  .padding = 0});
        net.conv({.in = 2 * width, .out = width, .size = 2 * size});
    }
    net.conv({.in = 64, .out = 2, .size = 128, .kernel = 1});
}

void gpt(Network& net) {
    const int64_t batch = 8, length = 1024, width = 768, heads = 12;
    net.matmul({batch * length, width}, {width, 3 * width});
    net.matmul({batch, heads, length, width / heads}, {batch, heads, width / heads, length});
    net.matmul({batch, heads, length, length}, {batch, heads, length, width / heads});
    net.attention(batch, heads, length, width / heads, true);
    net.matmul({batch * length, width}, {width, width});
    net.dense(batch * length, width, 4 * width);
    net.matmul({batch * length, 4 * width}, {4 * width, width});
    net.matmul({batch * length, width}, {width, 50257});
}

void lstm(Network& net) {
    net.matmul({64, 512}, {512, 2048});
    net.matmul({64, 1, 512}, {64, 512, 35});
}

// What the networks do not have: other ranks, dilation, groups, keys of another number.
void others(Network& net) {
    net.conv({.in = 64, .out = 64, .size = 64, .dilation = 2});
    net.conv({.in = 128, .out = 128, .size = 28, .groups = 32});
    net.conv({.in = 32, .out = 64, .size = 16, .more = {28, 28}});
    net.attention(4, 8, 197, 64, false);
    net.attention(4, 8, 128, 128, false, 320);
}

std::vector<OpCase> without_repetition(std::vector<OpCase> cases) {
    std::set<std::string> seen;
    std::erase_if(cases, [&](const OpCase& c) { return !seen.insert(c.text()).second; });
    return cases;
}

}  // namespace

std::string OpCase::text() const {
    std::string text = op;
    for (const Type& type : inputs) text += runtime::cat(" ", to_string(type));
    for (const Attr& attr : attrs) text += runtime::cat(" ", runtime::to_string(attr));
    return text;
}

std::vector<OpCase> network_cases(DType dtype, Layout layout) {
    runtime::register_all_ops();
    std::vector<OpCase> all;
    const auto take = [&](std::string name, const auto& build) {
        Network net(std::move(name), 32, dtype, layout);
        build(net);
        all.insert(all.end(), net.cases.begin(), net.cases.end());
    };
    take("resnet18", [](Network& net) { resnet(net, false, {2, 2, 2, 2}); });
    take("resnet50", [](Network& net) { resnet(net, true, {3, 4, 6, 3}); });
    take("densenet121", densenet);
    take("mobilenet", mobilenet);
    take("unet", unet);
    take("gpt", gpt);
    take("lstm", lstm);
    take("others", others);
    return without_repetition(all);
}

std::vector<OpCase> norm_and_pool_cases(DType dtype, Layout layout) {
    runtime::register_all_ops();
    Network net("norms and pools", 32, dtype, layout);
    net.batch_norm(64, {56, 56});
    net.batch_norm(64, {});
    net.batch_norm(32, {16, 28, 28});
    net.pool(true, 64, 112, 3, 2, 1);
    net.pool(false, 512, 7, 7, 1, 0);
    net.pool(false, 64, 56, 2, 2, 0);
    net.pool(false, 64, 56, 3, 2, 1, true);
    net.layer_norm({8, 1024, 768}, 1);
    net.layer_norm({32, 64, 7, 7}, 3);
    return without_repetition(net.cases);
}

std::vector<OpCase> sample_cases(DType dtype, Layout layout) {
    runtime::register_all_ops();
    Network net("sample", 32, dtype, layout);
    net.conv({.in = 64, .out = 64, .size = 56});
    if (layout == Layout::channels_last) net.conv_with_more(64, 256, 56);
    net.batch_norm(64, {56, 56});
    net.pool(true, 64, 112, 3, 2, 1);
    net.pool(false, 512, 7, 7, 1, 0);
    net.layer_norm({8, 1024, 768}, 1);
    net.dense(32, 512, 1000);
    net.attention(8, 12, 1024, 64, true);
    return without_repetition(net.cases);
}

CardDescription a100() {
    return {.name = "NVIDIA A100-SXM4-80GB",
            .arch = 80,
            .driver_version = 13000,
            .multiprocessors = 108,
            .shared_per_block_at_most = 166912,
            .memory_bytes = 85094825984,
            .cache_bytes = 41943040,
            .memory_bus_bits = 5120,
            .clock_khz = 1410000,
            .memory_clock_khz = 1593000};
}

CardDescription h100() {
    return {.name = "NVIDIA H100 80GB HBM3",
            .arch = 90,
            .driver_version = 13000,
            .multiprocessors = 132,
            .shared_per_block_at_most = 232448,
            .memory_bytes = 85045739520,
            .cache_bytes = 52428800,
            .memory_bus_bits = 5120,
            .clock_khz = 1980000,
            .memory_clock_khz = 2619000};
}

CardDescription b200() {
    return {.name = "NVIDIA B200",
            .arch = 100,
            .driver_version = 13000,
            .multiprocessors = 148,
            .shared_per_block_at_most = 232448,
            .memory_bytes = 191500000000,
            .cache_bytes = 132644864,
            .memory_bus_bits = 8192,
            .clock_khz = 1965000,
            .memory_clock_khz = 3996000};
}

}  // namespace megjit::cuda
