// backends/cpu/kernels/linalg.inl -- products and rotations of rows of doubles. See each_isa.h.

[[maybe_unused]] double dot(const double* a, const double* b, int64_t n) {
    constexpr int kLanes = 16;
    double lane[kLanes] = {};
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (int j = 0; j < kLanes; ++j) lane[j] += a[i + j] * b[i + j];
    double sum = 0;
    for (; i < n; ++i) sum += a[i] * b[i];
    for (const double v : lane) sum += v;
    return sum;
}
[[maybe_unused]] void rotate(double* a, double* b, int64_t n, double c, double s) {
    for (int64_t i = 0; i < n; ++i) {
        const double x = a[i], y = b[i];
        a[i] = c * x - s * y;
        b[i] = s * x + c * y;
    }
}
[[maybe_unused]] void add_scaled(double* to, double factor, const double* row, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] += factor * row[i];
}
