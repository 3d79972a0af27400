// backends/cpu/kernels/arg_reduce.cpp -- argmax and argmin: the first place of the extreme element,
// or of the first NaN.
#include "backends/cpu/kernels/reduce_rows.h"

namespace megjit::cpu {
namespace {

// Returns the first place of the extreme element of a row: the extreme of a part is found at full
// speed, and a part is searched only if it improves the result.
template <class Op, class C>
int32_t arg_row(const Source<C>& x, int64_t at, int64_t n, C* room) {
    constexpr int64_t kPart = 256;
    C best = reduce_row<Op, C>(x, at, std::min(n, kPart), room);
    int64_t part = 0;
    for (int64_t i = kPart; i < n && best == best; i += kPart) {
        const C found = reduce_row<Op, C>(x, at + i, std::min(kPart, n - i), room);
        if (Op::join(best, found) == best) continue;
        best = found;
        part = i;
    }
    const int64_t count = std::min(kPart, n - part);
    const C* p = x.block(at + part, count, room);
    for (int64_t i = 0; i < count; ++i)
        if (p[i] == best || p[i] != p[i]) return static_cast<int32_t>(part + i);
    return 0;
}

template <class Op, class C>
void arg_columns(const Source<C>& x, int64_t at, int64_t rows, int64_t stride, int64_t n,
                 int32_t* place, C* room) {
    C best[kStrip];
    const C* first = x.block(at, n, room);
    for (int64_t i = 0; i < n; ++i) {
        best[i] = first[i];
        place[i] = 0;
    }
    for (int64_t r = 1; r < rows; ++r)
        MEGJIT_BEST(join_places<Op, C>)(x.block(at + r * stride, n, room), n,
                                        static_cast<int32_t>(r), best, place);
}

template <class Op, class C>
void arg_all(const Split& s, const Source<C>& x, int32_t* y, int32_t* firsts) {
    if (s.inner > 1) {
        const int64_t strips = (s.inner + kStrip - 1) / kStrip;
        const int64_t grain =
            std::max<int64_t>(1, kGroupElements / (s.length * std::min(s.inner, kStrip)));
        return parallel_for(s.outer * strips, grain, 1, [&](int64_t lo, int64_t hi) {
            C room[kStrip];
            for (int64_t i = lo; i < hi; ++i) {
                const int64_t begin = i % strips * kStrip, n = std::min(kStrip, s.inner - begin);
                arg_columns<Op, C>(x, i / strips * s.length * s.inner + begin, s.length, s.inner, n,
                                   y + i / strips * s.inner + begin, room);
            }
        });
    }
    // Long rows are divided; the row's result is the best of the parts' results.
    const int64_t parts = s.outer < 64 ? std::clamp<int64_t>(s.length / kGroupElements, 1, 64) : 1,
                  part = (s.length + parts - 1) / parts;
    parallel_for(s.outer * parts, std::max<int64_t>(1, kGroupElements / part), 1,
                 [&](int64_t lo, int64_t hi) {
        C room[kBlock];
        for (int64_t i = lo; i < hi; ++i) {
            const int64_t begin = std::min(s.length, i % parts * part),
                          n = std::min(part, s.length - begin);
            firsts[i] = n > 0 ? static_cast<int32_t>(begin) +
                                    arg_row<Op, C>(x, i / parts * s.length + begin, n, room)
                              : -1;
        }
    });
    for (int64_t k = 0; k < s.outer; ++k) {
        int32_t best = firsts[k * parts];
        for (int64_t g = 1; g < parts; ++g) {
            const int32_t other = firsts[k * parts + g];
            if (other < 0) continue;
            C room[2];
            const C a = *x.block(k * s.length + best, 1, room),
                    b = *x.block(k * s.length + other, 1, room + 1);
            if (a == a && !(Op::join(a, b) == a)) best = other;
        }
        y[k] = best;
    }
}

template <class Op, class C>
Prepared arg_executable(const Split& s, Source<C> x) {
    const size_t workspace = static_cast<size_t>(s.outer) * 64 * sizeof(int32_t);
    return executable(
        [=](void* const* in, void* const* out, void* work) {
        Source<C> from = x;
        from.data = in[0];
        arg_all<Op, C>(s, from, static_cast<int32_t*>(out[0]), static_cast<int32_t*>(work));
    }, s.inner > 1     ? 0
        : s.outer < 64 ? workspace
                       : workspace / 64);
}

template <class Op>
Prepared prepare_arg(const OpCall& call, std::span<const Type> outputs) {
    const Type& x = call.inputs[0];
    if (outputs[0].numel() == 0) return executable([](void* const*, void* const*, void*) {});
    const int axis = runtime::normalize_axis(call.integer("axis"), x.rank(), call.op.name);
    const Split s = split_at(x.shape, axis);
    return with_real(x.dtype, [&]<class T>(std::type_identity<T>) {
        return arg_executable<Op>(s, source_of<T>());
    });
}

}  // namespace

void register_arg_reduce_kernels() {
    register_kernel("argmax", prepare_arg<Max>);
    register_kernel("argmin", prepare_arg<Min>);
}

}  // namespace megjit::cpu
