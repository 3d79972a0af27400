// backends/cuda/kernels/index.cu -- reading and writing at places that int32 tensors name. Before a
// write all places are looked at, so that one thread alone writes each element: that of the last
// place that names it, or that of the first one, which combines the values of all in their order.

// x as [pre, places, rest, run]; a place selects a cell of the indexed axes. Strides count runs of
// x.
struct Access {
    i64 extent[8], stride[8];  // extent and stride of the axis that each index selects from
    i64 places_extent[8], from[8][8];  // the places' shape, and each index's strides over it
    i64 rest_extent[8], rest_stride[8];
    i64 places, rests, run, pre_stride;
    const i32* index[8];
};

// A wrong place is reported to the host, to the kernel that would write there, or to neither.
struct Judge {
    Fault* fault;
    u32* bad;
    __device__ __forceinline__ i64 checked(i32 index, i64 extent, u32 operand, i64 place) const {
        if (index >= -extent && index < extent) return index < 0 ? index + extent : index;
        if (fault) tell(fault, operand, (u64)place, index);
        if (bad) *bad = 1;
        return -1;
    }
};

struct Place {
    i64 row, cell;  // the place's first element in x, and its number among all cells of the indexed
                    // axes; -1 outside of x
};
__device__ __forceinline__ Place place_of(const Access& a, INDEX k, Judge judge) {
    i64 at[INDICES] = {};
    INDEX rest = k;
#pragma unroll
    for (int axis = PLACES_RANK - 1; axis >= 0; --axis) {
        const INDEX extent = (INDEX)a.places_extent[axis], above = rest / extent;
#pragma unroll
        for (int i = 0; i < INDICES; ++i) at[i] += (i64)(rest - above * extent) * a.from[i][axis];
        rest = above;
    }
#if ALONG  // the index has the shape of what is read; `from` finds its line in x
    const i64 index = judge.checked(a.index[0][k], a.extent[0], 0, (i64)k), row = at[0] + index * a.stride[0];
    return {row, index < 0 ? -1 : row};
#else
    Place place = {0, 0};
    bool inside = true;
#pragma unroll
    for (int i = 0; i < INDICES; ++i) {
        const i64 index = judge.checked(a.index[i][at[i]], a.extent[i], i, at[i]);
        place.row += index * a.stride[i];
        place.cell = place.cell * a.extent[i] + index;
        inside = inside && index >= 0;
    }
    if (!inside) place.cell = -1;
    return place;
#endif
}

// The indices of one element of the value, [pre, places, rest, run].
struct Element {
    INDEX place, pre, rest, unit;
    __device__ __forceinline__ Element(const Access& a, INDEX i) {
        const INDEX row = i / (INDEX)a.run, outer = row / (INDEX)a.rests;
        unit = i - row * (INDEX)a.run;
        rest = row - outer * (INDEX)a.rests;
        pre = outer / (INDEX)a.places;
        place = outer - pre * (INDEX)a.places;
    }
    // The element's position in x when its place begins at `row`.
    __device__ __forceinline__ i64 in_x(const Access& a, i64 row) const {
        row += (i64)pre * a.pre_stride;
        INDEX r = rest;
#pragma unroll
        for (int axis = REST_RANK - 1; axis >= 0; --axis) {
            const INDEX extent = (INDEX)a.rest_extent[axis], above = r / extent;
            row += (i64)(r - above * extent) * a.rest_stride[axis];
            r = above;
        }
        return row * a.run + (i64)unit;
    }
    __device__ __forceinline__ i64 in_value(const Access& a, INDEX at_place) const {
        return (((i64)pre * a.places + (i64)at_place) * a.rests + (i64)rest) * a.run + (i64)unit;
    }
};

extern "C" __global__ void get(Access a, INDEX count, const UNIT* x, UNIT* y, Fault* fault) {
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const Element element(a, i);
        const Place place = place_of(a, element.place, {fault, nullptr});
        if (place.cell >= 0) y[i] = x[element.in_x(a, place.row)];
    }
}

// Sets `last` to the last place that names each cell, plus 1. `bad`: nothing may be written.
extern "C" __global__ void find_last(Access a, INDEX places, u32* last, u32* bad, Fault* fault) {
    for (INDEX k = first_thread(); k < places; k += all_threads()) {
        const i64 cell = place_of(a, k, {fault, bad}).cell;
        if (cell >= 0) atomicMax(last + cell, (u32)k + 1);
    }
}

extern "C" __global__ void set(Access a, INDEX count, const u32* last, const u32* bad, const UNIT* value,
                               UNIT* y) {
    if (*bad) return;
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const Element element(a, i);
        const Place place = place_of(a, element.place, {});
        if (last[place.cell] == (u32)element.place + 1) y[element.in_x(a, place.row)] = value[i];
    }
}

// Writes each place's cell and number as a word: when sorted, the places of a cell follow each
// other in their order.
extern "C" __global__ void find_words(Access a, INDEX places, u64* words, u32* bad, Fault* fault) {
    for (INDEX k = first_thread(); k < places; k += all_threads())
        words[k] = (u64)place_of(a, k, {fault, bad}).cell << 32 | (u64)k;
}

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ i32 plus(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
__device__ __forceinline__ float times(float a, float b) { return a * b; }
__device__ __forceinline__ i32 times(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
template <class V> __device__ __forceinline__ V larger(V a, V b) { return b > a || b != b ? b : a; }  // NaN wins
template <class V> __device__ __forceinline__ V smaller(V a, V b) { return b < a || b != b ? b : a; }

extern "C" __global__ void combine(Access a, INDEX count, const u64* words, const u32* bad, const T* value, T* y) {
    if (*bad) return;
    for (INDEX i = first_thread(); i < count; i += all_threads()) {
        const Element element(a, i);  // its place is one of the sorted words
        INDEX k = element.place;
        const u64 cell = words[k] >> 32;
        if (k > 0 && words[k - 1] >> 32 == cell) continue;  // the thread at its first word combines all
        T* const to = y + element.in_x(a, place_of(a, (INDEX)(u32)words[k], {}).row);
        auto all = widen(*to);
        for (; k < (INDEX)a.places && words[k] >> 32 == cell; ++k)
            all = COMBINE(all, widen(value[element.in_value(a, (INDEX)(u32)words[k])]));
        narrow(all, to);
    }
}
