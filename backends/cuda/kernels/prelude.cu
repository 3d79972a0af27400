// backends/cuda/kernels/prelude.cu -- what the kernels of this folder share. NVRTC compiles it
// without any header and with --fmad=false: so results have the bits of the same code on a CPU. The
// host puts definitions before it: INDEX is the type that counts what a launch covers.

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef short i16;
typedef int i32;
typedef unsigned u32;
typedef long long i64;
typedef unsigned long long u64;

// --- sums of four products of 8-bit numbers, which lie in a word as in memory ---

__device__ __forceinline__ u32 dot4(u32 a, u32 b, u32 sum, i8, i8) {
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
}
__device__ __forceinline__ u32 dot4(u32 a, u32 b, u32 sum, u8, i8) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
}
__device__ __forceinline__ u32 dot4(u32 a, u32 b, u32 sum, u8, u8) {
    asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
}

// --- elements as they are stored, and as they are computed with: float or i32 ---

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ i32 widen(i32 v) { return v; }
__device__ __forceinline__ i32 widen(i16 v) { return v; }
__device__ __forceinline__ i32 widen(u16 v) { return v; }
__device__ __forceinline__ i32 widen(i8 v) { return v; }
__device__ __forceinline__ i32 widen(u8 v) { return v; }
__device__ __forceinline__ float widen(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
__device__ __forceinline__ float widen(f16 v) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
    return f;
}

__device__ __forceinline__ void narrow(float v, float* to) { *to = v; }
__device__ __forceinline__ void narrow(float v, f16* to) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(v));
}
__device__ __forceinline__ void narrow(float v, bf16* to) {
    const u32 bits = __float_as_uint(v);
    to->bits = (u16)((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u
                                                        : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
template <class Integer>
__device__ __forceinline__ void narrow(i32 v, Integer* to) {
    *to = (Integer)v;
}

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7F800000u); }
__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7FC00000u); }

// --- threads ---

__device__ __forceinline__ INDEX first_thread() { return (INDEX)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ INDEX all_threads() { return (INDEX)gridDim.x * blockDim.x; }

// --- wrong values ---

// The same as on the host. Of several wrong values the first one is reported, whichever thread
// finds it: the greatest `value` is kept, whose bits are the operand, the place and the wrong
// number, from the highest down.
struct Fault {
    i32 kind, axis;
    u64 value;
    i32* has_failed;
};
__device__ __forceinline__ void tell(Fault* fault, u32 operand, u64 place, i32 value) {
    const u64 last = (1u << 28) - 1, back = last - (place < last ? place : last);
    atomicMax(&fault->value, (u64)(7 - operand) << 60 | back << 32 | (u32)value);
    fault->kind = 1;
    *fault->has_failed = 1;
}
