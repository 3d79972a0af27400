// CUDA C++, compiled by NVRTC: what real kernels are made of.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

class Nvrtc : public CardTest {
protected:
    void SetUp() override {
        if (!has_nvrtc())
            GTEST_SKIP() << "libnvrtc is not installed: pip install nvidia-cuda-nvrtc";
        CardTest::SetUp();
    }
    Handle build(const std::string& source, const std::vector<std::string>& options = {}) {
        return load(compile("extern \"C\" {\n" + source + "\n}", options), "k");
    }
    template <class T = float>
    static std::vector<T> random(size_t n, T low = -2, T high = 2) {
        std::mt19937 bits(static_cast<unsigned>(n));
        std::vector<T> v(n);
        for (T& x : v)
            x = low + (high - low) * static_cast<T>(bits()) / static_cast<T>(4294967296.0);
        return v;
    }
};

TEST_F(Nvrtc, MatmulInTiles) {
    constexpr int m = 45, n = 70, p = 33;
    const Handle k =
        build(R"(__global__ void k(float* c, const float* a, const float* b, int m, int n, int p) {
        __shared__ float x[16][16], y[16][17];
        const int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, q = blockIdx.x * 16 + tx;
        float sum = 0;
        for (int t = 0; t < p; t += 16) {
            x[ty][tx] = r < m && t + tx < p ? a[r * p + t + tx] : 0;
            y[ty][tx] = q < n && t + ty < p ? b[(t + ty) * n + q] : 0;
            __syncthreads();
            for (int i = 0; i < 16; ++i) sum += x[ty][i] * y[i][tx];
            __syncthreads();
        }
        if (r < m && q < n) c[r * n + q] = sum;
    })");
    const auto a = random(m * p), b = random(p * n);
    const Address c = allocate(m * n * 4);
    launch(k, {(n + 15) / 16, (m + 15) / 16}, {16, 16}, c, upload(a), upload(b), m, n, p);
    const auto got = download<float>(c, m * n);
    for (int i = 0; i < m * n; ++i) {
        float sum = 0;
        for (int t = 0; t < p; ++t) sum = std::fma(a[i / n * p + t], b[t * n + i % n], sum);
        ASSERT_EQ(got[i], sum) << i;
    }
}

TEST_F(Nvrtc, SoftmaxWithShuffles) {
    constexpr int rows = 5, n = 77;
    const Handle k = build(R"(__global__ void k(float* y, const float* x, int n) {
        __shared__ float parts[4];
        const float* row = x + blockIdx.x * n;
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        float top = -1e30f, sum = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, row[i]);
        for (int o = 16; o; o /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
        if (lane == 0) parts[warp] = top;
        __syncthreads();
        top = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(row[i] - top);
        for (int o = 16; o; o /= 2) sum += __shfl_down_sync(~0u, sum, o);
        if (lane == 0) parts[warp] = sum;
        __syncthreads();
        sum = parts[0] + parts[1] + parts[2] + parts[3];
        for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = expf(row[i] - top) / sum;
    })");
    const auto x = random(rows * n);
    const Address y = allocate(rows * n * 4);
    launch(k, {rows}, {128}, y, upload(x), n);
    const auto got = download<float>(y, rows * n);
    for (int r = 0; r < rows; ++r) {
        double sum = 0;
        for (int i = 0; i < n; ++i) sum += std::exp(double{x[r * n + i]});
        for (int i = 0; i < n; ++i)
            ASSERT_NEAR(got[r * n + i], std::exp(double{x[r * n + i]}) / sum, 1e-6);
    }
}

TEST_F(Nvrtc, HistogramWithAtomics) {
    const Handle k = build(R"(__global__ void k(unsigned* bins, const unsigned char* x, int n) {
        __shared__ unsigned own[256];
        for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
        __syncthreads();
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1u);
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], own[i]);
    })");
    std::vector<uint8_t> x(10000);
    std::vector<uint32_t> wanted(256);
    for (size_t i = 0; i < x.size(); ++i) ++wanted[x[i] = static_cast<uint8_t>(i * i % 251)];
    const Address bins = upload(std::vector<uint32_t>(256, 0));
    launch(k, {7}, {96}, bins, upload(x), 10000);
    EXPECT_EQ(download<uint32_t>(bins, 256), wanted);
}

TEST_F(Nvrtc, FunctionsOfTheMathLibrary) {
    const char* const source = R"(__global__ void k(REAL* y, const REAL* x, int n) {
        const int i = threadIdx.x + blockIdx.x * blockDim.x;
        if (i >= n) return;
        const REAL v = x[i];
        REAL* o = y + i * 12;
        o[0] = sin(v * 1000); o[1] = cos(v); o[2] = tan(v); o[3] = exp(v); o[4] = log(fabs(v)); o[5] = pow(fabs(v), REAL(1.7));
        o[6] = erf(v); o[7] = tanh(v); o[8] = lgamma(fabs(v) + 1); o[9] = cbrt(v); o[10] = fmod(v * 100, REAL(0.37)); o[11] = atan2(v, REAL(0.5));
    })";
    const auto check = [&]<class T>(const char* name, double relative) {
        const auto x = random<T>(300, -5, 5);
        const Address y = allocate(x.size() * 12 * sizeof(T));
        launch(build(source, {std::string("-DREAL=") + name}), {3}, {128}, y, upload(x), 300);
        const auto got = download<T>(y, x.size() * 12);
        for (size_t i = 0; i < x.size(); ++i) {
            const double v = x[i], a = std::fabs(v);
            const double wanted[] = {std::sin(double{x[i] * T(1000)}),
                                     std::cos(v),
                                     std::tan(v),
                                     std::exp(v),
                                     std::log(a),
                                     std::pow(a, double{T(1.7)}),
                                     std::erf(v),
                                     std::tanh(v),
                                     std::lgamma(double{T(a) + 1}),
                                     std::cbrt(v),
                                     std::fmod(double{x[i] * T(100)}, double{T(0.37)}),
                                     std::atan2(v, 0.5)};
            for (int f = 0; f < 12; ++f)
                ASSERT_NEAR(got[i * 12 + f], wanted[f],
                            relative * std::max(std::fabs(wanted[f]), 0.1))
                    << name << " function " << f << " of " << v;
        }
    };
    check.template operator()<float>("float", 2e-6);
    check.template operator()<double>("double", 1e-14);
}

TEST_F(Nvrtc, FunctionsThatAreCalledAndSwitches) {
    const Handle k = build(R"(
    __device__ __noinline__ int weigh(int x, int* count) { if (x % 3 == 0) return -x; ++*count; return x * 2; }
    __device__ __noinline__ int twice(int x, int* count) { int y = weigh(x, count); return x & 1 ? weigh(y, count) : y; }
    __global__ void k(int* out) {
        int count = 0, x = threadIdx.x, r = 0;
        switch (x % 7) { case 0: r = 5; break; case 1: r = twice(x, &count); break; case 2: r = x << 3; break; case 3: r = twice(x + 1, &count);
            break; case 4: r = 77; break; case 5: r = weigh(x, &count); break; default: r = -1; }
        out[x] = r * 10 + count;
    })");
    const Address out = allocate(64 * 4);
    launch(k, {1}, {64}, out);
    const auto got = download<int32_t>(out, 64);
    int count = 0;
    const auto weigh = [&](int x) { return x % 3 == 0 ? -x : (++count, x * 2); };
    const auto twice = [&](int x) {
        const int y = weigh(x);
        return x & 1 ? weigh(y) : y;
    };
    for (int x = 0; x < 64; ++x) {
        count = 0;
        int r = -1;
        switch (x % 7) {
            case 0: r = 5; break;
            case 1: r = twice(x); break;
            case 2: r = x << 3; break;
            case 3: r = twice(x + 1); break;
            case 4: r = 77; break;
            case 5: r = weigh(x); break;
        }
        ASSERT_EQ(got[x], r * 10 + count) << x;
    }
}

TEST_F(Nvrtc, LoopsOfDifferentLengthsMeetAgain) {
    const Handle k = build(R"(__global__ void k(int* out, const int* n) {
        int sum = 0;
        for (int i = 0; i < n[threadIdx.x]; ++i) { if (i % 5 == 2) continue; if (sum > 1000) break; sum += i; }
        __syncwarp();
        out[threadIdx.x] = sum + __popc(__activemask()) * 10000 + __reduce_add_sync(~0u, 1) * 1000000;
    })");
    std::vector<int32_t> n(32), wanted;
    for (int t = 0; t < 32; ++t) {
        n[t] = t * t % 97;
        int sum = 0;
        for (int i = 0; i < n[t]; ++i) {
            if (i % 5 == 2) continue;
            if (sum > 1000) break;
            sum += i;
        }
        wanted.push_back(sum + 32 * 10000 + 32 * 1000000);
    }
    const Address out = allocate(128);
    launch(k, {1}, {32}, out, upload(n));
    EXPECT_EQ(download<int32_t>(out, 32), wanted);
}

TEST_F(Nvrtc, LocksOfLanesOfOneWarpAreGivenOn) {
    const Handle k = build(R"(__global__ void k(int* out) {
        for (bool done = false; !done;)
            if (atomicCAS(out, 0, 1) == 0) { out[1] += 1; __threadfence(); atomicExch(out, 0); done = true; }
    })");
    const Address out = upload(std::vector<int32_t>{0, 0});
    launch(k, {3}, {64}, out);
    EXPECT_EQ(download<int32_t>(out, 2)[1], 192);
}

TEST_F(Nvrtc, PrintfAndAssert) {
    const Handle k = build(
        R"(__global__ void k(int limit) { if (threadIdx.x < 2) printf("%d of %s: %.2f %lld\n", threadIdx.x, "two", threadIdx.x * 0.5, 1ll << 40); assert(threadIdx.x < limit); })");
    testing::internal::CaptureStdout();
    EXPECT_EQ(result_of(k, {1}, {32}, 40), 0);
    EXPECT_EQ(testing::internal::GetCapturedStdout(),
              "0 of two: 0.00 1099511627776\n1 of two: 0.50 1099511627776\n");
    testing::internal::CaptureStdout();
    EXPECT_EQ(result_of(k, {1}, {32}, 5), kAssert);
    testing::internal::GetCapturedStdout();
    EXPECT_NE(last_fault().find("assertion `threadIdx.x < limit` failed"), std::string::npos)
        << last_fault();
    EXPECT_NE(last_fault().find("thread (5, 0, 0)"), std::string::npos) << last_fault();
}

TEST_F(Nvrtc, VariablesOfTheModule) {
    const std::string ptx = compile(
        R"(__constant__ float table[4] = {1, 2, 3, 4}; __device__ int counter = 5; __device__ int* where = &counter;
    extern "C" __global__ void k(float* out) { out[threadIdx.x] = table[threadIdx.x]; if (threadIdx.x == 0) *where += 1; }
    extern "C" __global__ void more(float* out) { extern __shared__ double dynamic[]; dynamic[threadIdx.x] = counter; __syncthreads(); out[threadIdx.x] = dynamic[3 - threadIdx.x]; })");
    Handle module = nullptr, k = nullptr, more = nullptr;
    CHECK_DRIVER("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str()));
    CHECK_DRIVER("cuModuleGetFunction", &k, module, "k");
    CHECK_DRIVER("cuModuleGetFunction", &more, module, "more");
    Address table = 0;
    size_t bytes = 0;
    CHECK_DRIVER("cuModuleGetGlobal_v2", &table, &bytes, module, "table");
    EXPECT_EQ(bytes, 16u);
    const Address out = allocate(16);
    launch(k, {1}, {4}, out);
    EXPECT_EQ(download<float>(out, 4), (std::vector<float>{1, 2, 3, 4}));
    CHECK_DRIVER("cuMemsetD32Async", table, 0x40e00000u, size_t{4}, stream_);
    launch(k, {1}, {4}, out);
    EXPECT_EQ(download<float>(out, 4), (std::vector<float>{7, 7, 7, 7}));
    EXPECT_EQ(try_launch(more, {1}, {4}, 32, out), 0);
    EXPECT_EQ(download<float>(out, 4), (std::vector<float>{7, 7, 7, 7}));
    CHECK_DRIVER("cuModuleUnload", module);
}

#ifdef MEGJIT_CCCL
class Cub : public Nvrtc {
protected:
    Handle build_cub(const std::string& source) {
        return load(compile(source, {std::string("-I") + MEGJIT_CCCL, "-I" MEGJIT_CCCL "/..",
                                     "-default-device"}),
                    "k");
    }
};

TEST_F(Cub, SortsABlockByRadix) {
    const Handle k = build_cub(R"(#include <cub/block/block_radix_sort.cuh>
    extern "C" __global__ void k(int* keys, int* values) {
        using Sort = cub::BlockRadixSort<int, 128, 4, int>;
        __shared__ typename Sort::TempStorage storage;
        int x[4], v[4];
        for (int i = 0; i < 4; ++i) { x[i] = keys[threadIdx.x * 4 + i]; v[i] = threadIdx.x * 4 + i; }
        Sort(storage).Sort(x, v);
        for (int i = 0; i < 4; ++i) { keys[threadIdx.x * 4 + i] = x[i]; values[threadIdx.x * 4 + i] = v[i]; }
    })");
    std::vector<int32_t> keys(512), order(512);
    for (int i = 0; i < 512; ++i) keys[i] = i * 7919 % 101 - 50;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
    const Address x = upload(keys), v = allocate(512 * 4);
    launch(k, {1}, {128}, x, v);
    EXPECT_EQ(download<int32_t>(v, 512), order);
    auto sorted = keys;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(download<int32_t>(x, 512), sorted);
}

TEST_F(Cub, ScansAndReducesABlock) {
    const Handle k = build_cub(R"(#include <cub/block/block_scan.cuh>
    #include <cub/block/block_reduce.cuh>
    extern "C" __global__ void k(const int* x, int* sums, float* total) {
        using Scan = cub::BlockScan<int, 256>;
        using Reduce = cub::BlockReduce<float, 256>;
        __shared__ union { typename Scan::TempStorage scan; typename Reduce::TempStorage reduce; } storage;
        int sum;
        Scan(storage.scan).InclusiveSum(x[threadIdx.x], sum);
        sums[threadIdx.x] = sum;
        __syncthreads();
        const float all = Reduce(storage.reduce).Sum(x[threadIdx.x] * 0.5f);
        if (threadIdx.x == 0) *total = all;
    })");
    std::vector<int32_t> x(256), sums(256);
    for (int i = 0; i < 256; ++i) x[i] = i * 37 % 29 - 9;
    std::partial_sum(x.begin(), x.end(), sums.begin());
    const Address s = allocate(1024), total = allocate(4);
    launch(k, {1}, {256}, upload(x), s, total);
    EXPECT_EQ(download<int32_t>(s, 256), sums);
    EXPECT_EQ(download<float>(total, 1)[0], sums.back() * 0.5f);
}
#endif

}}  // namespace megjit::card_tests
