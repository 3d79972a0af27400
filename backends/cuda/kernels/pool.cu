// backends/cuda/kernels/pool.cu -- max and average pooling and their gradients, in float, for both
// layouts: CHANNELS_LAST is 0 or 1. Sums are added in the order of the CPU's kernels. Gradients of
// max pooling first find the place of each window's first largest element; then each element of x
// collects from the windows that contain it.

struct Pooling {
    i64 channels;
    i32 in[3], out[3];  // depth, height, width
    i32 kernel[3], stride[3], padding[3];
    i32 adaptive;
    float counted;  // elements of a window with its padding; 0: only those inside count
};

struct Range {
    i32 begin, end;
    __device__ __forceinline__ i32 size() const { return end - begin; }
};
// Returns the elements of window `o` along an axis.
__device__ __forceinline__ Range window(const Pooling& p, int axis, i32 o) {
    const i32 in = p.in[axis], out = p.out[axis];
    if (p.adaptive) return {(i32)((i64)o * in / out), (i32)(((i64)(o + 1) * in + out - 1) / out)};
    const i32 begin = o * p.stride[axis] - p.padding[axis], end = begin + p.kernel[axis];
    return {begin > 0 ? begin : 0, end < in ? end : in};
}
// Returns the windows that contain element `i`.
__device__ __forceinline__ Range windows(const Pooling& p, int axis, i32 i) {
    const i32 in = p.in[axis], out = p.out[axis];
    if (p.adaptive) return {(i32)((i64)i * out / in), (i32)(((i64)(i + 1) * out + in - 1) / in)};
    const i32 at = i + p.padding[axis], before = at - p.kernel[axis] + p.stride[axis];
    const i32 first = before < 0 ? 0 : before / p.stride[axis], last = at / p.stride[axis] + 1;
    return {first, last < out ? last : out};
}
__device__ __forceinline__ float weight(const Pooling& p, i32 elements) {
    return 1.0f / (p.counted > 0 ? p.counted : (float)elements);
}

// An element of a tensor [n, c, extents], and the position of its plane in tensors of other
// extents.
struct At {
    i64 outer, channel;  // in row-major tensors all planes are outer ones
    i32 at[3];
    __device__ __forceinline__ At(const Pooling& p, const i32* extents, INDEX i) {
        channel = 0;
        if (CHANNELS_LAST) {
            const INDEX pixel = i / (INDEX)p.channels;
            channel = (i64)(i - pixel * (INDEX)p.channels);
            i = pixel;
        }
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const INDEX above = i / (u32)extents[axis];
            at[axis] = (i32)(i - above * (u32)extents[axis]);
            i = above;
        }
        outer = (i64)i;
    }
    __device__ __forceinline__ i64 plane(const Pooling& p, const i32* extents) const {
        const i64 size = (i64)extents[0] * extents[1] * extents[2];
        return CHANNELS_LAST ? outer * size * p.channels + channel : outer * size;
    }
};
__device__ __forceinline__ i32 place(const i32* extents, i32 d, i32 h, i32 w) {
    return (d * extents[1] + h) * extents[2] + w;
}
__device__ __forceinline__ i64 step(const Pooling& p) { return CHANNELS_LAST ? p.channels : 1; }

// Holds the first largest element of a window, or its first NaN, in the plane of x.
struct Best {
    float value;
    i32 place;
};
__device__ __forceinline__ Best best_of(const Pooling& p, const At& o, const T* plane) {
    const Range ds = window(p, 0, o.at[0]), hs = window(p, 1, o.at[1]), ws = window(p, 2, o.at[2]);
    const i64 step_ = step(p);
    Best best = {0, -1};
    for (i32 d = ds.begin; d < ds.end; ++d)
        for (i32 h = hs.begin; h < hs.end; ++h)
            for (i32 w = ws.begin; w < ws.end; ++w) {
                const i32 here = place(p.in, d, h, w);
                const float value = widen(plane[here * step_]);
                if (best.place < 0 || value > best.value || (value != value && best.value == best.value))
                    best = {value, here};
            }
    return best;
}

extern "C" __global__ void max_pool(Pooling p, INDEX count, const T* x, T* y) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const At o(p, p.out, i);
        narrow(best_of(p, o, x + o.plane(p, p.in)).value, y + i);
    }
}

extern "C" __global__ void find_places(Pooling p, INDEX count, const T* x, i32* places) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const At o(p, p.out, i);
        places[i] = best_of(p, o, x + o.plane(p, p.in)).place;
    }
}

extern "C" __global__ void max_pool_pick(Pooling p, INDEX count, const T* x, const T* v, T* y) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const At o(p, p.out, i);
        const i64 plane = o.plane(p, p.in);
        y[i] = v[plane + best_of(p, o, x + plane).place * step(p)];
    }
}

extern "C" __global__ void max_pool_grad(Pooling p, INDEX count, const i32* places, const T* dy, T* dx) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const At e(p, p.in, i);
        const i64 plane = e.plane(p, p.out), step_ = step(p);
        const i32 own = place(p.in, e.at[0], e.at[1], e.at[2]);
        const Range ds = windows(p, 0, e.at[0]), hs = windows(p, 1, e.at[1]), ws = windows(p, 2, e.at[2]);
        float sum = 0;
        for (i32 d = ds.begin; d < ds.end; ++d)
            for (i32 h = hs.begin; h < hs.end; ++h)
                for (i32 w = ws.begin; w < ws.end; ++w) {
                    const i64 at = plane + place(p.out, d, h, w) * step_;
                    if (places[at] == own) sum += widen(dy[at]);
                }
        narrow(sum, dx + i);
    }
}

extern "C" __global__ void avg_pool(Pooling p, INDEX count, const T* x, T* y) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const At o(p, p.out, i);
        const T* const plane = x + o.plane(p, p.in);
        const Range ds = window(p, 0, o.at[0]), hs = window(p, 1, o.at[1]), ws = window(p, 2, o.at[2]);
        const i64 step_ = step(p);
        float sum = 0;
        if (CHANNELS_LAST) {
            for (i32 d = ds.begin; d < ds.end; ++d)
                for (i32 h = hs.begin; h < hs.end; ++h) {
                    float line = 0;
                    for (i32 w = ws.begin; w < ws.end; ++w) line += widen(plane[place(p.in, d, h, w) * step_]);
                    sum += line;
                }
        } else {
            for (i32 w = ws.begin; w < ws.end; ++w) {
                float column = 0;
                for (i32 d = ds.begin; d < ds.end; ++d)
                    for (i32 h = hs.begin; h < hs.end; ++h) column += widen(plane[place(p.in, d, h, w)]);
                sum += column;
            }
        }
        narrow(sum * weight(p, ds.size() * hs.size() * ws.size()), y + i);
    }
}

extern "C" __global__ void avg_pool_grad(Pooling p, INDEX count, const T* dy, T* dx) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const At e(p, p.in, i);
        const T* const plane = dy + e.plane(p, p.out);
        const Range ds = windows(p, 0, e.at[0]), hs = windows(p, 1, e.at[1]), ws = windows(p, 2, e.at[2]);
        const i64 step_ = step(p);
        float sum = 0;
        for (i32 d = ds.begin; d < ds.end; ++d)
            for (i32 h = hs.begin; h < hs.end; ++h) {
                const i32 lines = window(p, 0, d).size() * window(p, 1, h).size();
                float line = 0;
                for (i32 w = ws.begin; w < ws.end; ++w) {
                    const float share = widen(plane[place(p.out, d, h, w) * step_]) *
                                        weight(p, lines * window(p, 2, w).size());
                    if (CHANNELS_LAST) sum += share;
                    else line += share;
                }
                if (!CHANNELS_LAST) sum += line;
            }
        narrow(sum, dx + i);
    }
}
