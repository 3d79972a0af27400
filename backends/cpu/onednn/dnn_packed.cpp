#include "backends/cpu/onednn/dnn_packed.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "backends/cpu/kernels/winograd.h"
#include "runtime/host/mutex.h"

namespace megjit::cpu {
namespace dnn {
namespace {

using dnnl::memory;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;

struct Packing {
    memory::desc packed = {};  // zero: the weights are transformed as in winograd.h
    memory::desc dense = {};
    bool operator==(const Packing& other) const {
        return packed == other.packed && dense == other.dense;
    }
};

struct Packings {
    runtime::Mutex mutex{"the packings"};
    std::map<Layout, Packing> all;
};
Packings& packings() {
    static Packings instance;
    return instance;
}

Packing packing_of(Layout layout) {
    Packings& known = packings();
    std::lock_guard lock(known.mutex);
    return known.all.at(layout);
}

// Describes completely how floats lie in blocks; "" where they do not.
std::string description_of(const memory::desc& desc) {
    if (desc.get_format_kind() != memory::format_kind::blocked ||
        desc.get_data_type() != memory::data_type::f32)
        return {};
    std::string text;
    for (const memory::dims& numbers :
         {desc.get_dims(), desc.get_padded_dims(), desc.get_padded_offsets(), desc.get_strides(),
          desc.get_inner_blks(), desc.get_inner_idxs()}) {
        text += '[';
        for (const memory::dim number : numbers) text += runtime::cat(number, ",");
        text += ']';
    }
    return runtime::cat(text, desc.get_submemory_offset());
}

std::string name_of(const Packing& packing) {
    const std::string dense = description_of(packing.dense);
    const std::string packed =
        packing.packed.is_zero() ? "winograd 2x2" : description_of(packing.packed);
    return packed.empty() || dense.empty() ? std::string() : runtime::cat(packed, " of ", dense);
}

Layout layout_of(const Packing& wanted, size_t bytes) {
    Packings& known = packings();
    std::lock_guard lock(known.mutex);
    for (const auto& [layout, packing] : known.all)
        if (packing == wanted) return layout;
    const Layout layout = runtime::add_packed_layout(bytes, name_of(wanted));
    if (runtime::is_packed(layout)) known.all.emplace(layout, wanted);
    return layout;
}

}  // namespace

Layout packed_layout(const memory::desc& packed, const memory::desc& dense) {
    return packed == dense ? Layout::row_major : layout_of({packed, dense}, packed.get_size());
}

Layout winograd_layout(const Type& weights, const memory::desc& dense) {
    return layout_of({{}, dense}, winograd_bytes(weights));
}

bool is_winograd(Layout layout) {
    return runtime::is_packed(layout) && packing_of(layout).packed.is_zero();
}

bool is_packed_for(const memory::desc& dense, const Type& weights) {
    return !runtime::is_packed(weights.layout) || packing_of(weights.layout).dense == dense;
}

memory::desc desc_of_weights(const Type& weights, const memory::desc& dense) {
    return runtime::is_packed(weights.layout) ? packing_of(weights.layout).packed : dense;
}

Prepared prepare_relayout(const OpCall& call, std::span<const Type> outputs) {
    const Type &from = call.inputs[0], &to = outputs[0];
    if (!runtime::is_packed(from.layout) && !runtime::is_packed(to.layout))
        return executable([from, to = to.layout](void* const* in, void* const* out, void*) {
            convert_layout(from, to, in[0], out[0]);
        });
    if (from.layout == Layout::channels_last || to.layout == Layout::channels_last)
        throw runtime::InternalError(
            runtime::cat("relayout from ", to_string(from), " to ", to_string(to)));
    const bool packs = runtime::is_packed(to.layout);
    if (is_winograd(packs ? to.layout : from.layout))
        return executable([from, to, run = packs ? pack_winograd : unpack_winograd](
                              void* const* in, void* const* out, void*) {
            run(from, static_cast<const float*>(in[0]), static_cast<float*>(out[0]));
        });
    const Packing packing = packing_of(packs ? to.layout : from.layout);
    const memory::desc source = packs ? packing.dense : packing.packed,
                       target = packs ? packing.packed : packing.dense;
    if (from.layout == to.layout || from.bytes() < source.get_size() ||
        to.bytes() < target.get_size())
        throw runtime::InternalError(
            runtime::cat("relayout from ", to_string(from), " to ", to_string(to)));
    return make(call, [source, target] {
        return dnnl::reorder::primitive_desc(engine(), source, engine(), target, attributes());
    }, {{DNNL_ARG_FROM, false, 0, source}, {DNNL_ARG_TO, true, 0, target}});
}

Prepared unpacking(const OpCall& call, std::span<const Type> outputs, Prepare prepare) {
    const size_t at = call.op.weights().value();
    std::vector<Type> inputs(call.inputs.begin(), call.inputs.end());
    inputs[at].layout = Layout::row_major;
    Prepared inner = prepare({call.op, call.attrs, inputs}, outputs);
    Prepared unpack =
        prepare_relayout({call.op, call.attrs, call.inputs.subspan(at, 1)}, {&inputs[at], 1});
    const size_t weights = aligned(inputs[at].bytes()),
                 scratch = std::max(inner->workspace_bytes(), unpack->workspace_bytes());
    return executable(
        [=, count = inputs.size()](void* const* in, void* const* out, void* workspace) {
        char* const work = static_cast<char*>(workspace);
        void* dense = work;
        unpack->enqueue(runtime::inline_stream(), in + at, &dense, work + weights);
        std::vector<void*> operands(in, in + count);
        operands[at] = dense;
        inner->enqueue(runtime::inline_stream(), operands.data(), out, work + weights);
    }, weights + scratch);
}

}  // namespace dnn

void register_relayout_kernels() { register_kernel("relayout", dnn::prepare_relayout); }

}  // namespace megjit::cpu
