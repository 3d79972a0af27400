// backends/cuda/kernels/sort.cpp -- sort, topk and cumsum along one axis.
#include <algorithm>
#include <bit>

#include "backends/cuda/kernels/texts.h"
#include "backends/cuda/kernels/word_sort.h"

namespace megjit::cuda {
namespace {

constexpr int64_t kSortTile = 2048;  // words, the same number as in sort.cu
constexpr uint32_t kThreads = 256;  // threads of a block in sort.cu and scan.cu

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

LaunchSize blocks(int64_t count) {
    LaunchSize size = blocks_for(count, 1);
    size.block[0] = kThreads;
    return size;
}

}  // namespace

WordSort::WordSort(Gpu& gpu, int64_t lines, int64_t n)
    : lines_(lines),
      n_(n),
      tiles_(gpu, with_prelude(texts::sort), "sort_tiles", {{"INDEX", index_type(lines * n)}}),
      merge_(gpu, with_prelude(texts::sort), "merge", {{"INDEX", index_type(lines * n)}}) {}

void* WordSort::operator()(CudaStream& stream, void* memory) const {
    void *from = memory, *to = at(memory, static_cast<int64_t>(part_bytes()));
    with_index(lines_ * n_, [&]<class Index>(Index) {
        const auto number = [](int64_t value) { return static_cast<Index>(value); };
        const auto part = static_cast<int64_t>(
            std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(n_, 2, kSortTile))));
        const int64_t parts = up(n_, part), tiles = up(lines_ * parts, kSortTile / part);
        tiles_.launch(stream, blocks(tiles), static_cast<uint32_t>(part), number(parts),
                      number(lines_), number(n_), number(tiles), from);
        const int64_t merged = lines_ * up(n_, kSortTile);
        for (int64_t length = kSortTile; length < n_; length *= 2, std::swap(from, to))
            merge_.launch(stream, blocks(merged), length, number(lines_), number(n_),
                          number(merged), from, to);
    });
    return from;
}

namespace {

Prepared prepare_sort(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type &x = call.inputs[0], &y = outputs[0];
    if (y.numel() == 0) return nothing_to_do();
    const Split s = x.rank() == 0
                        ? Split()
                        : split_at(x.shape, runtime::normalize_axis(call.integer("axis"), x.rank(),
                                                                    call.op.name));
    const int64_t n = x.numel(), k = y.numel() / (s.outer * s.inner);
    const std::string text = with_prelude(texts::sort), type = storage_type(x.dtype);
    const SourceKernel make_words(device.gpu(), text, "make_words",
                                  {{"INDEX", index_type(n)}, {"T", type}}),
        take(device.gpu(), text, "take", {{"INDEX", index_type(n)}, {"T", type}});
    const WordSort sort(device.gpu(), s.outer * s.inner, s.length);
    const uint32_t flip = call.flag("descending") ? ~0u : 0;
    return executable([=](CudaStream& stream, void* const* in, void* const* out, void* work) {
        with_index(n, [&]<class Index>(Index count) {
            make_words.launch(stream, blocks_for(n), s.length, s.inner, count, flip, in[0], work);
            const void* const words = sort(stream, work);
            const int64_t taken = s.outer * k * s.inner;
            take.launch(stream, blocks_for(taken), s.length, k, s.inner, static_cast<Index>(taken),
                        words, in[0], out[0], out[1]);
        });
    }, sort.bytes());
}

// --- cumsum -------------------------------------------------------------------------------------

struct Scan {  // laid out as in the kernels
    int64_t n = 0, inner = 0, parts = 0, length = 0;
    int32_t exclusive = 0, reverse = 0;
};

// Returns enough parts for all multiprocessors, none shorter than `least`.
int64_t parts_of(int64_t lines, int64_t n, int64_t enough, int64_t least) {
    constexpr int64_t kMost = 64;
    return std::clamp<int64_t>(std::min(enough / lines, n / least), 1, kMost);
}

Prepared prepare_cumsum(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& given = call.inputs[0];
    if (given.numel() == 0) return nothing_to_do();
    const int axis = runtime::normalize_axis(call.integer("axis"), given.rank(), call.op.name);
    const bool is_complex = given.dtype == DType::c64;
    const Type x = is_complex ? as_floats(given) : given,
               y = is_complex ? as_floats(outputs[0]) : outputs[0];
    const Split s = split_at(x.shape, axis);
    const bool rows = s.inner == 1;
    const int64_t lines = s.outer * s.inner, parts = rows ? parts_of(lines, s.length, 512, 8192)
                                                          : parts_of(lines, s.length, 1 << 17, 256);
    const Scan scan{.n = s.length,
                    .inner = s.inner,
                    .parts = parts,
                    .length = up(s.length, parts),
                    .exclusive = call.flag("exclusive"),
                    .reverse = call.flag("reverse")};
    const auto kernel = [&](const char* entry) {
        return SourceKernel(device.gpu(), with_prelude(texts::scan), entry,
                            {{"INDEX", "unsigned long long"},
                             {"FLOATING", is_floating(x.dtype) ? "1" : "0"},
                             {"T", storage_type(x.dtype)},
                             {"OUT", storage_type(y.dtype)}});
    };
    return executable(
        [=, sum = kernel(rows ? "sum_rows" : "sum_columns"),
         run = kernel(rows ? "scan_rows" : "scan_columns")](CudaStream& stream, void* const* in,
                                                            void* const* out, void* work) {
        const LaunchSize size = rows ? blocks(lines * parts) : blocks_for(lines * parts);
        if (parts > 1) sum.launch(stream, size, scan, lines, in[0], work);
        run.launch(stream, size, scan, lines, in[0], work, out[0]);
    },
        static_cast<size_t>(lines * parts) * sizeof(double));
}

}  // namespace

void register_sort_kernels() {
    register_kernel("sort", prepare_sort);
    register_kernel("topk", prepare_sort);
    register_kernel("cumsum", prepare_cumsum);
}

}  // namespace megjit::cuda
