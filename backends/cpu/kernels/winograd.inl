// backends/cpu/kernels/winograd.inl -- the three parts of F(2x2, 3x3) for a run of tiles: see
// winograd.h. Included by each_isa.h. Channels go along the lanes.

#include "backends/cpu/kernels/small_product.inl"

// Computes B^T d B: rows, then columns, of [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1].
MEGJIT_INLINE void input_rows(const Floats d[4], Floats to[4]) {
    to[0] = d[0] - d[2], to[1] = d[1] + d[2], to[2] = d[2] - d[1], to[3] = d[1] - d[3];
}

// Transforms tiles [lo, hi) of x into v [16][tiles][channels], whose first row is tile `origin`.
void transform_input(const WinogradShape& s, const float* x, float* v, int64_t origin,
                     int64_t tiles, int64_t lo, int64_t hi) {
    for (int64_t tile = lo; tile < hi; ++tile) {
        const int64_t column = tile % s.tile_columns, row = tile / s.tile_columns % s.tile_rows,
                      image = tile / (s.tile_columns * s.tile_rows);
        const int64_t top = 2 * row - s.padding[0], left = 2 * column - s.padding[1];
        const float* from = x + image * s.height * s.width * s.in_channels;
        float* to = v + (tile - origin) * s.in_channels;
        const bool inside = top >= 0 && left >= 0 && top + 4 <= s.height && left + 4 <= s.width;
        for (int64_t c = 0; c < s.in_channels; c += kLanes) {
            Floats d[4][4], half[4][4];
            for (int64_t i = 0; i < 4; ++i)
                for (int64_t j = 0; j < 4; ++j) {
                    const int64_t y = top + i, z = left + j;
                    const bool is_there =
                        inside || (y >= 0 && z >= 0 && y < s.height && z < s.width);
                    d[j][i] =
                        is_there ? load(from + (y * s.width + z) * s.in_channels + c) : Floats{};
                }
            for (int j = 0; j < 4; ++j)
                input_rows(d[j], half[j]);  // half[j][i]: column j, transformed row i
            for (int i = 0; i < 4; ++i) {
                const Floats line[4] = {half[0][i], half[1][i], half[2][i], half[3][i]};
                Floats out[4];
                input_rows(line, out);
                for (int j = 0; j < 4; ++j)
                    store(to + (4 * i + j) * tiles * s.in_channels + c, out[j]);
            }
        }
    }
}

// m [rows][kPanel] = v [rows][channels] u [channels][kPanel]
void multiply_panel(const float* v, const float* u, float* m, int64_t rows, int64_t channels) {
    constexpr int64_t kPanel = WinogradShape::kPanel;
    multiply({v, channels, 1}, u, kPanel, m, kPanel, rows, kPanel, channels, false);
}

// Computes A^T m A with A^T = [1 1 1 0; 0 1 -1 -1] of m [16][tiles][kPanel], then the epilogue, and
// writes one panel of channels of y.
void transform_output(const WinogradShape& s, const WinogradEpilogue& e, const float* m, float* y,
                      int64_t panel, int64_t lo, int64_t tiles) {
    const int64_t first = panel * WinogradShape::kPanel;
    for (int64_t t = 0; t < tiles; ++t) {
        const int64_t tile = lo + t, column = tile % s.tile_columns,
                      row = tile / s.tile_columns % s.tile_rows,
                      image = tile / (s.tile_columns * s.tile_rows);
        for (int64_t c = 0; c < WinogradShape::kPanel; c += kLanes) {
            Floats half[2][4];
            for (int64_t j = 0; j < 4; ++j) {
                Floats d[4];
                for (int64_t i = 0; i < 4; ++i)
                    d[i] = load(m + ((4 * i + j) * tiles + t) * WinogradShape::kPanel + c);
                half[0][j] = d[0] + d[1] + d[2], half[1][j] = d[1] - d[2] - d[3];
            }
            const Floats bias = e.bias ? load(e.bias + first + c) : Floats{};
            for (int64_t i = 0; i < 2 && 2 * row + i < s.out_height; ++i)
                for (int64_t j = 0; j < 2 && 2 * column + j < s.out_width; ++j) {
                    const Floats* const h = half[i];
                    const int64_t at =
                        ((image * s.out_height + 2 * row + i) * s.out_width + 2 * column + j) *
                            s.out_channels +
                        first + c;
                    Floats value = (j == 0 ? h[0] + h[1] + h[2] : h[1] - h[2] - h[3]) + bias;
                    if (e.addend) value += load(e.addend + at);
                    if (e.rectifies) value = larger(value, Floats{});
                    store(y + at, value);
                }
        }
    }
}
