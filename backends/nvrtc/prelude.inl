R"cuda(
// --- neighbors that move together ---
template <int N, class T>
struct alignas(N * sizeof(T)) Pack {
    T at[N];
};
template <int N, class T>
__device__ __forceinline__ Pack<N, T> load_pack(const T* from) {
    return *reinterpret_cast<const Pack<N, T>*>(from);
}
template <int N, class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<N, T>& pack) {
    *reinterpret_cast<Pack<N, T>*>(to) = pack;
}

// --- parameters of launches that share a grid ---
template <int N>
struct Words {
    long long at[N];
};

// --- float16 ---
__device__ __forceinline__ float from_f16(unsigned short h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
__device__ __forceinline__ unsigned short to_f16(float f) {
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

// --- integers that wrap ---
__device__ __forceinline__ int add_i32(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ __forceinline__ int sub_i32(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
__device__ __forceinline__ int mul_i32(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ __forceinline__ int floor_div(int a, int b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
)cuda"
