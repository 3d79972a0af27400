#include "backends/cpu/convert.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/instructions.h"
#include "runtime/host/half.h"
#include "runtime/host/parallel.h"

#define MEGJIT_KERNELS "backends/cpu/convert.inl"
#include "backends/cpu/each_isa.h"

namespace megjit::cpu {

using runtime::DType;
using runtime::Layout;
using runtime::OpCall;
using runtime::Type;

namespace {

constexpr int64_t kCastGrain = 1 << 15;

// [batch, rows, columns] -> [batch, columns, rows], in tiles that stay in the first cache.
template <class T>
void transpose_each(const T* from, T* to, int64_t batch, int64_t rows, int64_t columns) {
    constexpr int64_t kTile = 32,
                      kColumns = 1024;  // extents of a tile, and of a task: images have few rows
    const int64_t bands = (rows + kTile - 1) / kTile, parts = (columns + kColumns - 1) / kColumns;
    runtime::parallel_for(
        batch * bands * parts,
        std::max<int64_t>(1, kCastGrain / std::max<int64_t>(1, std::min(kTile, rows) *
                                                                   std::min(kColumns, columns))),
        1, [=](int64_t lo, int64_t hi) {
        for (int64_t task = lo; task < hi; ++task) {
            const T* source = from + task / parts / bands * rows * columns;
            T* target = to + task / parts / bands * rows * columns;
            const int64_t first = task / parts % bands * kTile,
                          last = std::min(rows, first + kTile);
            const int64_t begin = task % parts * kColumns,
                          end = std::min(columns, begin + kColumns);
            for (int64_t column = begin; column < end; column += kTile)
                for (int64_t c = column; c < std::min(end, column + kTile); ++c)
                    for (int64_t r = first; r < last; ++r)
                        target[c * rows + r] = source[r * columns + c];
        }
    });
}

// The conversions of one operand: storage type -> float32 -> other layout, each step in a buffer of
// its own.
struct Route {
    Type outside = {}, inside = {};
    size_t buffer = 0, second = 0;  // places in the workspace
    bool converts() const { return !(outside == inside); }
    bool both() const { return outside.dtype != inside.dtype && outside.layout != inside.layout; }
};

void convert(const Type& from, const Type& to, const void* source, void* target, void* between) {
    if (from.dtype == to.dtype) return convert_layout(from, to.layout, source, target);
    if (from.layout == to.layout)
        return convert_dtype(from.dtype, to.dtype, source, target, from.numel());
    convert_dtype(from.dtype, to.dtype, source, between, from.numel());
    convert_layout({to.dtype, from.shape, from.layout}, to.layout, between, target);
}

class ConvertedExecutable final : public runtime::Executable {
public:
    ConvertedExecutable(Prepared inner, std::vector<Route> inputs, std::vector<Route> outputs)
        : inner_(std::move(inner)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
        workspace_ = aligned(inner_->workspace_bytes());
        for (std::vector<Route>* routes : {&inputs_, &outputs_})
            for (Route& route : *routes) {
                if (!route.converts()) continue;
                route.buffer = workspace_;
                workspace_ += aligned(route.inside.bytes());
                if (!route.both()) continue;
                route.second = workspace_;
                workspace_ += aligned(route.inside.numel() * sizeof(float));
            }
    }
    size_t workspace_bytes() const override { return workspace_; }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        constexpr size_t kMost = 8;
        void *in[kMost], *out[kMost];
        char* const work = static_cast<char*>(workspace);
        for (size_t i = 0; i < inputs_.size(); ++i) {
            const Route& route = inputs_[i];
            in[i] = route.converts() ? work + route.buffer : inputs[i];
            if (route.converts())
                convert(route.outside, route.inside, inputs[i], in[i], work + route.second);
        }
        for (size_t i = 0; i < outputs_.size(); ++i)
            out[i] = outputs_[i].converts() ? work + outputs_[i].buffer : outputs[i];
        inner_->enqueue(stream, in, out, workspace);
        for (size_t i = 0; i < outputs_.size(); ++i) {
            const Route& route = outputs_[i];
            if (route.converts())
                convert(route.inside, route.outside, out[i], outputs[i], work + route.second);
        }
    }

private:
    Prepared inner_;
    std::vector<Route> inputs_, outputs_;
    size_t workspace_ = 0;
};

}  // namespace

void convert_dtype(DType from, DType to, const void* source, void* target, int64_t n) {
    runtime::parallel_for(n, kCastGrain, 64, [=](int64_t lo, int64_t hi) {
        if (to == DType::f32) {
            const uint16_t* s = static_cast<const uint16_t*>(source);
            float* t = static_cast<float*>(target);
            if (from == DType::bf16) return MEGJIT_BEST(bfloat_to_floats)(s + lo, t + lo, hi - lo);
            MEGJIT_BEST(half_to_floats)(s + lo, t + lo, hi - lo);
        } else {
            const float* s = static_cast<const float*>(source);
            uint16_t* t = static_cast<uint16_t*>(target);
            if (to == DType::bf16) return MEGJIT_BEST(floats_to_bfloat)(s + lo, t + lo, hi - lo);
            MEGJIT_BEST(floats_to_half)(s + lo, t + lo, hi - lo);
        }
    });
}

void convert_layout(const Type& from, Layout to, const void* source, void* target) {
    const int64_t n = from.rank() ? from.shape[0] : 1, c = from.rank() > 1 ? from.shape[1] : 1;
    const int64_t spatial = n > 0 && c > 0 ? from.numel() / (n * c) : 0;
    if (from.layout == to || from.rank() < 3) {
        if (from.bytes()) std::memcpy(target, source, from.bytes());
        return;
    }
    const int64_t rows = to == Layout::channels_last ? c : spatial,
                  columns = to == Layout::channels_last ? spatial : c;
    const auto run = [&]<class T>(T) {
        transpose_each(static_cast<const T*>(source), static_cast<T*>(target), n, rows, columns);
    };
    switch (runtime::size_of(from.dtype)) {
        case 1: return run(uint8_t{});
        case 2: return run(uint16_t{});
        case 4: return run(uint32_t{});
        default: return run(uint64_t{});
    }
}

namespace {

template <class Inside>
Prepared converted(const OpCall& call, std::span<const Type> outputs, Prepare prepare,
                   Inside inside) {
    std::vector<Route> in, out;
    std::vector<Type> in_types, out_types;
    bool any = false;
    for (const Type& type : call.inputs) {
        in.push_back({type, inside(type)});
        in_types.push_back(in.back().inside);
        any |= in.back().converts();
    }
    for (const Type& type : outputs) {
        out.push_back({type, inside(type)});
        out_types.push_back(out.back().inside);
        any |= out.back().converts();
    }
    if (!any) return nullptr;
    const OpCall plain{call.op, call.attrs, in_types};
    return std::make_shared<const ConvertedExecutable>(prepare(plain, out_types), std::move(in),
                                                       std::move(out));
}

Type widened(Type type) {
    if (type.dtype == DType::f16 || type.dtype == DType::bf16) type.dtype = DType::f32;
    return type;
}

}  // namespace

Prepared in_float32(const OpCall& call, std::span<const Type> outputs, Prepare prepare) {
    return converted(call, outputs, prepare, widened);
}

Prepared in_float32_like(const Type& main, const OpCall& call, std::span<const Type> outputs,
                         Prepare prepare) {
    return converted(call, outputs, prepare, [&main](Type type) {
        type = widened(type);
        if (type.rank() == main.rank() && type.rank() >= 3) type.layout = main.layout;
        return type;
    });
}

}  // namespace megjit::cpu
