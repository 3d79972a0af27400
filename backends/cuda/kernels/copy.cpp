// backends/cuda/kernels/copy.cpp -- ops that only move elements. All but padding are copies between
// strided regions; those of float32 and the like that transpose or broadcast are generated.
#include <algorithm>

#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/kernels/texts.h"
#include "codegen/strides.h"

namespace megjit::cuda {
namespace {

using codegen::dense_strides;
using codegen::memory_order;
using Part = runtime::Executable::Part;

// Copies where no view of the tensor serves.
Prepared prepare_copy(CudaDevice&, const OpCall& call, std::span<const Type>) {
    return copy_of(call.inputs[0]);
}

// Copies elements that `strides` find in the operand.
Prepared copy_by(Gpu& gpu, const Type& x, const std::vector<int64_t>& strides, const Type& y) {
    const std::vector<int64_t> to = dense_strides(y);
    Region region;
    for (int i : memory_order(y.layout, y.rank()))
        region.push(y.shape[i], strides[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
    return executable([copy = RegionCopy(gpu, region, size_of(x))](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        copy(stream, in[0], out[0]);
    });
}

Prepared prepare_broadcast_to(CudaDevice& device, const OpCall& call,
                              std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (x.dtype != DType::c64) return nullptr;  // other types are generated
    return copy_by(device.gpu(), x,
                   codegen::broadcast_strides(x.shape, dense_strides(x), outputs[0].shape),
                   outputs[0]);
}

Prepared prepare_transpose(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (x.dtype != DType::c64) return nullptr;  // other types are generated
    const std::vector<int64_t> from = dense_strides(x);
    std::vector<int64_t> strides;
    for (const int64_t axis : call.integers("perm"))
        strides.push_back(from[static_cast<size_t>(axis)]);
    return copy_by(device.gpu(), x, strides, outputs[0]);
}

Prepared prepare_relayout(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return copy_by(device.gpu(), call.inputs[0], dense_strides(call.inputs[0]), outputs[0]);
}

// The region of a slice: the strides of the whole tensor times the steps, and the first element.
struct Window {
    std::vector<int64_t> strides;
    int64_t begin = 0;  // in bytes
};
Window window_of(const OpCall& call, const Type& whole) {
    Window w{dense_strides(whole)};
    for (size_t i = 0; i < w.strides.size(); ++i) {
        w.begin += call.integers("begin")[i] * w.strides[i] * size_of(whole);
        w.strides[i] *= call.integers("step")[i];
    }
    return w;
}

// Kernels move up to 16 bytes at a time: tensors inside of others must be aligned.
bool may_lie_at(size_t offset) { return offset % 256 == 0; }

Prepared prepare_slice(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type &x = call.inputs[0], &y = outputs[0];
    if (y.numel() == 0) return nothing_to_do();
    const Window w = window_of(call, x);
    const std::vector<int64_t> to = dense_strides(y);
    Region region;
    for (int i : memory_order(y.layout, y.rank()))
        region.push(y.shape[i], w.strides[static_cast<size_t>(i)], to[static_cast<size_t>(i)]);
    const RegionCopy copy(device.gpu(), region, size_of(x));
    std::vector<Part> parts;
    if (const auto offset = static_cast<size_t>(w.begin); copy.is_block() && may_lie_at(offset))
        parts.push_back({.offset = offset});
    return executable([copy, begin = w.begin](CudaStream& stream, void* const* in, void* const* out,
                                              void*) { copy(stream, at(in[0], begin), out[0]); },
                      0, false, std::move(parts));
}

Prepared prepare_slice_set(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    const Type &x = call.inputs[0], &value = call.inputs[1];
    const Window w = window_of(call, x);
    const std::vector<int64_t> from = dense_strides(value);
    Region region;
    for (int i = 0; i < x.rank(); ++i)
        region.push(value.shape[i], from[static_cast<size_t>(i)],
                    w.strides[static_cast<size_t>(i)]);
    return executable(
        [copy = RegionCopy(device.gpu(), region, size_of(x)), begin = w.begin, bytes = x.bytes()](
            CudaStream& stream, void* const* in, void* const* out, void*) {
        if (in[0] != out[0]) stream.copy(out[0], in[0], bytes);
        copy(stream, in[1], at(out[0], begin));
    },
        0, true);
}

Prepared prepare_concat(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    const int axis = runtime::normalize_axis(call.integer("axis"), y.rank(), call.op.name);
    // The order in memory: axes outside of `axis`, `axis` itself, and the axes inside.
    const std::vector<int> order = memory_order(y.layout, y.rank());
    Shape in_memory;
    for (int i : order) in_memory.push_back(y.shape[i]);
    const Split whole =
        split_at(in_memory, static_cast<int>(std::ranges::find(order, axis) - order.begin()));
    struct Piece {
        RegionCopy copy;
        int64_t begin;
    };
    std::vector<Piece> pieces;
    std::vector<Part> parts;
    bool all_aligned = whole.outer == 1;
    int64_t begin = 0, end = 0;  // in bytes; `end` is the length of a row of all operands
    for (const Type& x : call.inputs) {
        const int64_t length = x.shape[axis] * whole.inner;
        Region region;
        region.push(whole.outer, length, whole.length * whole.inner);
        region.push(length, 1, 1);
        pieces.push_back({RegionCopy(device.gpu(), region, size_of(y)), begin});
        parts.push_back({.of_output = true, .offset = static_cast<size_t>(end)});
        all_aligned = all_aligned && may_lie_at(static_cast<size_t>(end));
        begin += length * size_of(y);
        end += static_cast<int64_t>(x.bytes());
    }
    if (!all_aligned) parts.clear();
    return executable(
        [pieces = std::move(pieces)](CudaStream& stream, void* const* in, void* const* out, void*) {
        for (size_t k = 0; k < pieces.size(); ++k)
            pieces[k].copy(stream, in[k], at(out[0], pieces[k].begin));
    }, 0, false, std::move(parts));
}

// --- constants ----------------------------------------------------------------------------------

Words repeated(uint64_t element, int64_t bytes) {
    for (; bytes < 8; bytes *= 2)
        element = (element & (~uint64_t{0} >> (64 - 8 * bytes))) | element << (8 * bytes);
    return {element, element};
}

Prepared prepare_full(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& y = outputs[0];
    const auto bytes = static_cast<int64_t>(y.bytes());
    if (bytes == 0) return nothing_to_do();
    const uint64_t element = element_bits(y.dtype, call.real("value"));
    if (element == 0)
        return executable([=](CudaStream& stream, void* const*, void* const* out, void*) {
            stream.clear(reinterpret_cast<Address>(out[0]), static_cast<size_t>(bytes));
        });
    const int64_t unit = widest_unit({bytes});
    const SourceKernel fill(device.gpu(), with_prelude(texts::copy), "fill",
                            {{"INDEX", index_type(bytes / unit)}, {"UNIT", unit_type(unit)}});
    return executable([=, words = repeated(element, size_of(y))](CudaStream& stream, void* const*,
                                                                 void* const* out, void*) {
        with_unit(words, unit, [&](auto value) {
            with_index(bytes / unit, [&](auto count) {
                fill.launch(stream, blocks_for(bytes / unit), value, count, out[0]);
            });
        });
    });
}

// --- complex parts ------------------------------------------------------------------------------

constexpr int64_t kPart = sizeof(float);

Prepared prepare_complex(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    Region region;
    region.push(call.inputs[0].numel(), 1, 2);
    return executable([copy = RegionCopy(device.gpu(), region, kPart)](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        copy(stream, in[0], out[0]);
        copy(stream, in[1], at(out[0], kPart));
    });
}

Prepared prepare_part(CudaDevice& device, const OpCall& call, std::span<const Type>) {
    Region region;
    region.push(call.inputs[0].numel(), 2, 1);
    return executable([copy = RegionCopy(device.gpu(), region, kPart),
                       begin = call.op.name == "imag" ? kPart : 0](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        copy(stream, at(in[0], begin), out[0]);
    });
}

// --- padding ------------------------------------------------------------------------------------

struct Padding {  // laid out as in the kernels; axes in memory's order
    int64_t narrow[runtime::kMaxRank] = {}, wide[runtime::kMaxRank] = {},
            before[runtime::kMaxRank] = {};
    Padding(const OpCall& call, const Type& narrow_type, const Type& wide_type) {
        int i = 0;
        for (int axis : memory_order(wide_type.layout, wide_type.rank())) {
            narrow[i] = narrow_type.shape[axis];
            wide[i] = wide_type.shape[axis];
            before[i++] = call.integers("before")[static_cast<size_t>(axis)];
        }
    }
};

std::string mode_of(const OpCall& call) {
    const std::string& mode = call.text("mode");
    return mode == "constant" ? "0" : mode == "edge" ? "1" : "2";
}

Prepared prepare_pad(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type &x = call.inputs[0], &y = outputs[0];
    if (y.numel() == 0) return nothing_to_do();
    if (y.rank() == 0) return copy_of(y);
    const SourceKernel kernel(device.gpu(), with_prelude(texts::copy), "pad",
                              {{"INDEX", index_type(y.numel())},
                               {"UNIT", unit_type(size_of(y))},
                               {"T", "float"},
                               {"MODE", mode_of(call)},
                               {"PAD_RANK", cat(y.rank())}});
    return executable([=, padding = Padding(call, x, y), count = y.numel(),
                       value = Words{element_bits(y.dtype, call.real("value"))}, unit = size_of(y)](
                          CudaStream& stream, void* const* in, void* const* out, void*) {
        with_index(count, [&](auto index) {
            with_unit(value, unit, [&](auto element) {
                kernel.launch(stream, blocks_for(count), padding, index, element, in[0], out[0]);
            });
        });
    });
}

Prepared prepare_pad_grad(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type &dy = call.inputs[0], &dx = outputs[0];
    if (dx.numel() == 0) return nothing_to_do();
    if (dx.rank() == 0) return copy_of(dx);
    if (call.text("mode") == "constant")
        runtime::user_error(
            {.what = "pad_grad: mode constant has no kernel", .fix = "its gradient is a slice"});
    const SourceKernel kernel(device.gpu(), with_prelude(texts::copy), "pad_grad",
                              {{"INDEX", index_type(dy.numel())},
                               {"UNIT", "u8"},
                               {"T", storage_type(dx.dtype)},
                               {"MODE", mode_of(call)},
                               {"PAD_RANK", cat(dx.rank())}});
    return executable(
        [=, padding = Padding(call, dx, dy), count = dx.numel(), wide = dy.numel() > INT32_MAX](
            CudaStream& stream, void* const* in, void* const* out, void*) {
        if (wide)
            kernel.launch(stream, blocks_for(count), padding, static_cast<uint64_t>(count), in[0],
                          out[0]);
        else
            kernel.launch(stream, blocks_for(count), padding, static_cast<uint32_t>(count), in[0],
                          out[0]);
    });
}

}  // namespace

void register_copy_kernels() {
    register_kernel("reshape", prepare_copy);
    register_kernel("broadcast_to", prepare_broadcast_to);
    register_kernel("transpose", prepare_transpose);
    register_kernel("relayout", prepare_relayout);
    register_kernel("slice", prepare_slice);
    register_kernel("slice_set", prepare_slice_set);
    register_kernel("concat", prepare_concat);
    register_kernel("full", prepare_full);
    register_kernel("complex", prepare_complex);
    register_kernel("real", prepare_part);
    register_kernel("imag", prepare_part);
    register_kernel("pad", prepare_pad);
    register_kernel("pad_grad", prepare_pad_grad);
}

}  // namespace megjit::cuda
