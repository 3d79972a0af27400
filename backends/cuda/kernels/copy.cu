// backends/cuda/kernels/copy.cu -- ops that only move elements. UNIT: what a thread moves at a
// time, up to 16 bytes; all counts and strides are in units.

// Consecutive axes are merged where memory allows, outermost first; strides may be negative or 0.
struct Region {
    i64 extent[8], from[8], to[8];
};

#ifdef RANK
extern "C" __global__ void copy_rows(Region r, INDEX count, const UNIT* from, UNIT* to) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        INDEX rest = i;
        i64 source = 0, target = 0;
#pragma unroll
        for (int axis = RANK - 1; axis > 0; --axis) {
            const INDEX extent = (INDEX)r.extent[axis], above = rest / extent;
            const i64 at = (i64)(rest - above * extent);
            source += at * r.from[axis];
            target += at * r.to[axis];
            rest = above;
        }
        source += (i64)rest * r.from[0];
        target += (i64)rest * r.to[0];
        to[target] = from[source];
    }
}

// `from` is contiguous along axis RANK - 2 and `to` along RANK - 1: blocks of 32 x 8 threads
// transpose tiles of 32 x 32.
extern "C" __global__ void copy_tiles(Region r, u32 tiles_p, u32 tiles_q, INDEX tiles, const UNIT* from,
                                      UNIT* to) {
    __shared__ UNIT tile[32][33];
    const i64 ps = r.extent[RANK - 2], qs = r.extent[RANK - 1];
    for (INDEX t = blockIdx.x; t < tiles; t += gridDim.x) {
        INDEX rest = t / tiles_q;
        const i64 q0 = (i64)(t - rest * tiles_q) * 32;
        const INDEX outer = rest / tiles_p;
        const i64 p0 = (i64)(rest - outer * tiles_p) * 32;
        rest = outer;
        i64 source = p0 + q0 * r.from[RANK - 1], target = p0 * r.to[RANK - 2] + q0;
#pragma unroll
        for (int axis = RANK - 3; axis >= 0; --axis) {
            const INDEX extent = (INDEX)r.extent[axis], above = rest / extent;
            const i64 at = (i64)(rest - above * extent);
            source += at * r.from[axis];
            target += at * r.to[axis];
            rest = above;
        }
        for (u32 q = threadIdx.y; q < 32; q += 8)
            if (q0 + q < qs && p0 + threadIdx.x < ps)
                tile[q][threadIdx.x] = from[source + (i64)q * r.from[RANK - 1] + threadIdx.x];
        __syncthreads();
        for (u32 p = threadIdx.y; p < 32; p += 8)
            if (p0 + p < ps && q0 + threadIdx.x < qs)
                to[target + (i64)p * r.to[RANK - 2] + threadIdx.x] = tile[threadIdx.x][p];
        __syncthreads();
    }
}
#endif

extern "C" __global__ void fill(UNIT value, INDEX count, UNIT* to) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) to[i] = value;
}

// --- padding: mode 0 takes a constant from outside, 1 the border, 2 mirrors without it ---

#ifdef PAD_RANK
struct Padding {
    i64 narrow[8], wide[8], before[8];
};

// The place from which place `at` of the padded side comes; -1 for the constant.
__device__ __forceinline__ i64 source_of(i64 at, i64 extent, i64 before) {
    const i64 from = at - before;
    if (from >= 0 && from < extent) return from;
    if (MODE == 0) return -1;
    if (MODE == 1) return from < 0 ? 0 : extent - 1;
    return from < 0 ? -from : 2 * extent - 2 - from;
}

extern "C" __global__ void pad(Padding p, INDEX count, UNIT value, const UNIT* x, UNIT* y) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        INDEX rest = i;
        i64 from = 0, stride = 1;
        bool inside = true;
#pragma unroll
        for (int axis = PAD_RANK - 1; axis >= 0; --axis) {
            const INDEX extent = (INDEX)p.wide[axis], above = rest / extent;
            const i64 place = source_of((i64)(rest - above * extent), p.narrow[axis], p.before[axis]);
            inside = inside && place >= 0;
            from += place * stride;
            stride *= p.narrow[axis];
            rest = above;
        }
        y[i] = inside ? x[from] : value;
    }
}

// The places of the padded side that come from place `at`, ascending: `count` of them.
struct Images {
    i64 first, count, apart, last;  // first, first + apart, ...; the last one is separate
    __device__ __forceinline__ i64 at(i64 k) const { return k + 1 < count ? first + k * apart : last; }
};
__device__ __forceinline__ Images images_of(i64 at, i64 extent, i64 wide, i64 before) {
    const i64 own = at + before;
    if (MODE == 1) {
        const i64 first = at == 0 ? 0 : own, last = at == extent - 1 ? wide - 1 : own;
        return {first, last - first + 1, 1, last};
    }
    const i64 mirrored = before - at, beyond = before + 2 * extent - 2 - at;
    const bool low = at > 0 && mirrored >= 0, high = at < extent - 1 && beyond < wide;
    return {low ? mirrored : own, 1 + low + high, own - mirrored, high ? beyond : own};
}

// Sums are float, in the order of the CPU: first over the last axis, then over the axis before it.
extern "C" __global__ void pad_grad(Padding p, INDEX count, const T* dy, T* dx) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        Images images[PAD_RANK];
        INDEX rest = i;
        i64 combinations = 1;
#pragma unroll
        for (int axis = PAD_RANK - 1; axis >= 0; --axis) {
            const INDEX extent = (INDEX)p.narrow[axis], above = rest / extent;
            images[axis] = images_of((i64)(rest - above * extent), p.narrow[axis], p.wide[axis], p.before[axis]);
            combinations *= images[axis].count;
            rest = above;
        }
        float sum = 0;
        for (i64 c = 0; c < combinations; ++c) {
            i64 from = 0, stride = 1, which = c;
#pragma unroll
            for (int axis = PAD_RANK - 1; axis >= 0; --axis) {
                from += images[axis].at(which % images[axis].count) * stride;
                which /= images[axis].count;
                stride *= p.wide[axis];
            }
            sum += widen(dy[from]);
        }
        narrow(sum, dx + i);
    }
}
#endif
