#include "codegen/window_kernel.h"

#include <algorithm>

#include "codegen/op_kernel.h"
#include "codegen/strides.h"

namespace megjit::codegen {
namespace {

using namespace runtime;

// Axes of a kernel's space with the strides of its operands, inputs first.
class Space {
public:
    Space(KernelSpec& spec, std::vector<DType> inputs, std::vector<DType> outputs) : spec_(spec) {
        for (const DType dtype : inputs) spec.inputs.push_back({.dtype = dtype});
        for (const DType dtype : outputs) spec.outputs.push_back({.dtype = dtype});
    }
    void add(int64_t extent, std::initializer_list<int64_t> strides) {
        spec_.extents.push_back(extent);
        auto stride = strides.begin();
        for (auto* list : {&spec_.inputs, &spec_.outputs})
            for (KernelSpec::Access& access : *list) access.strides.push_back(*stride++);
    }

private:
    KernelSpec& spec_;
};

// One spatial axis: the number of places and of the kernel's elements, and their distances in x.
struct Slide {
    int64_t places, step, kernel, gap;
};

std::vector<Slide> slides_of(const Type& x, const Window& window) {
    const std::vector<int64_t> strides = dense_strides(x);
    std::vector<Slide> slides;
    for (int axis = 0; axis < window.dims; ++axis) {
        const int64_t stride = strides[static_cast<size_t>(axis) + 2];
        slides.push_back({window.places(axis, x.shape[axis + 2]), stride * window.stride[axis],
                          window.kernel[axis], stride * window.dilation[axis]});
    }
    return slides;
}

int64_t places_of(const std::vector<Slide>& slides) {
    int64_t places = 1;
    for (const Slide& slide : slides) places *= slide.places;
    return places;
}

}  // namespace

BoundKernel windows_kernel(const Type& x, const Window& window) {
    const std::vector<Slide> slides = slides_of(x, window);
    const int64_t image = x.shape.numel() / std::max<int64_t>(x.shape[0] * x.shape[1], 1);
    KernelSpec spec;
    Space space(spec, {x.dtype}, {x.dtype});
    int64_t seen = x.shape[0] * x.shape[1];
    std::vector<std::pair<int64_t, int64_t>> axes{{seen, image}};
    for (const Slide& slide : slides) axes.emplace_back(slide.kernel, slide.gap);
    for (const Slide& slide : slides) axes.emplace_back(slide.places, slide.step);
    int64_t to = 1;
    for (const auto& [extent, stride] : axes) to *= extent;
    for (const auto& [extent, stride] : axes) {
        to /= std::max<int64_t>(extent, 1);
        space.add(extent, {stride, to});
    }
    spec.results = {spec.program.input(0, compute_type(x.dtype))};
    return bind(std::move(spec));
}

BoundKernel conv_kernel(const ConvProblem& problem) {
    const Type &x = problem.x, &w = problem.w, &y = problem.y;
    const int64_t in = w.shape[1], out = w.shape[0] / problem.groups,
                  taps = w.numel() / w.shape[0] / in;
    std::vector<Slide> slides = slides_of(x, problem.window);
    const int64_t places = places_of(slides), image = x.numel() / (x.shape[0] * x.shape[1]);
    const auto is_whole = [](const Slide& slide) {
        return slide.kernel == 1 && slide.step == slide.gap;
    };
    if (std::ranges::all_of(slides, is_whole) && places == image) slides = {{places, 1, 1, 1}};

    KernelSpec spec;
    Space space(spec, {x.dtype, w.dtype}, {y.dtype});
    space.add(x.shape[0], {x.shape[1] * image, 0, w.shape[0] * places});
    space.add(problem.groups, {in * image, out * in * taps, out * places});
    int64_t step = places;
    for (const Slide& slide : slides) {
        step /= slide.places;
        if (&slide == &slides.back()) space.add(out, {0, in * taps, places});  // columns go last
        space.add(slide.places, {slide.step, 0, step});
    }
    space.add(in, {image, taps, 0});
    int64_t tap = taps;
    for (const Slide& slide : slides) {
        tap /= slide.kernel;
        space.add(slide.kernel, {slide.gap, tap, 0});
    }
    spec.reduced = static_cast<int>(slides.size()) + 1;
    constexpr int64_t kPackedRows = 16, kPackedElements = 128 << 10;
    spec.packs = out >= kPackedRows && in * taps * slides.back().places > kPackedElements;
    const Expr a(&spec.program, spec.program.input(0, ScalarType::f32)),
        b(&spec.program, spec.program.input(1, ScalarType::f32));
    spec.results = {add_reduction(spec, Reduce::dot, (a * b).id(), y.dtype)};
    return bind(std::move(spec));
}

BoundKernel pool_kernel(const Type& x, const Window& window, Reduce kind, const Type& y) {
    const std::vector<Slide> slides = slides_of(x, window);
    const int64_t maps = x.shape[0] * x.shape[1], places = places_of(slides);
    KernelSpec spec;
    Space space(spec, {x.dtype}, {y.dtype});
    space.add(maps, {x.numel() / std::max<int64_t>(maps, 1), places});
    int64_t step = places;
    for (const Slide& slide : slides) {
        step /= slide.places;
        space.add(slide.places, {slide.step, step});
    }
    for (const Slide& slide : slides) space.add(slide.kernel, {slide.gap, 0});
    spec.reduced = window.dims;
    spec.results = {
        add_reduction(spec, kind, spec.program.input(0, compute_type(x.dtype)), y.dtype)};
    return bind(std::move(spec));
}

BoundKernel lookup_kernel(const Type& result, Lookup lookup) {
    KernelSpec spec;
    spec.extents.assign(result.shape.begin(), result.shape.end());
    spec.inputs = {{.dtype = result.dtype,
                    .strides = std::move(lookup.strides),
                    .by = 1,
                    .gather_stride = lookup.step},
                   {.dtype = DType::i32, .strides = std::move(lookup.place_strides)}};
    spec.outputs = {{.dtype = result.dtype, .strides = dense_strides(result)}};
    spec.results = {spec.program.input(0, compute_type(result.dtype))};
    return bind(std::move(spec));
}

}  // namespace megjit::codegen
