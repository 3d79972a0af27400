// backends/cpu/kernels/recurrent_cells.h -- what a recurrent layer computes between two products,
// one loop over a step's rows: the gates' functions and states, and their gradients. Formulas and
// names are those of runtime/ops/recurrent.cpp; functions have the bits of the element-wise ops.
// Compiled once per level of levels.h, in a file of its own.
#pragma once

#include <cstdint>

#include "backends/cpu/levels.h"

namespace megjit::cpu {

// All pointers lead to the first of `rows` rows. Activations may lie on gates, dgates on
// activations.
struct LstmStep {
    int64_t rows, hidden;
    const float *gates, *product;  // [rows, 4 * hidden]
    const float* c_before;  // [rows, hidden], as y and c
    float *y, *c;
    float* activations;  // [rows, 4 * hidden], or null
};
struct LstmGradStep {
    int64_t rows, hidden;
    const float* activations;  // [rows, 4 * hidden]
    const float *c_before, *c, *dy;  // [rows, hidden], as dc, product and carried
    const float* dc;  // null: zeros
    const float* product;  // dh from the step after this one; null: there is none
    float* carried;  // in: dc from the step after this one; out: dc for the step before
    float* dgates;  // [rows, 4 * hidden]
};
struct GruStep {
    int64_t rows, hidden;
    const float *gates, *product;  // [rows, 3 * hidden]
    const float* bias;  // [3 * hidden]
    const float* before;  // [rows, hidden], as y and scaled
    float *y, *scaled;
    float* activations;  // [rows, 3 * hidden]
};
// gru_reset_first between its products, and behind them. reset: r * before, [rows, hidden], as z.
struct GruResetStep {
    int64_t rows, hidden;
    const float *gates, *product;  // [rows, 3 * hidden], [rows, 2 * hidden]
    const float* bias;  // [2 * hidden]
    const float* before;
    float *reset, *z;
};
struct GruNewStep {
    int64_t rows, hidden;
    const float *gates, *product;  // [rows, 3 * hidden], [rows, hidden]
    const float* bias;  // [hidden]
    const float *before, *z;
    float* y;
};
struct GruGradStep {
    int64_t rows, hidden;
    const float* activations;  // [rows, 3 * hidden]
    const float *before, *scaled, *dy;  // [rows, hidden], as product and carried
    const float* product;  // dh from the step after this one; null: there is none
    float* carried;  // in: the rest of dh from that step; out: for the step before
    float *dgates, *dproduct;  // [rows, 3 * hidden]
};
// A step computes n elements; y may lie on gates, dgates on y.
struct RnnStep {
    int64_t n;
    bool relu;
    const float *gates, *product;
    float* y;
};
struct RnnGradStep {
    int64_t n;
    bool relu;
    const float *y, *dy, *product;
    float* dgates;
};

// The product y = x w' of a few rows, with the rows of w as they lie in memory. Each result is a
// sum of 16 lanes, which are added up by repeated halving, at every level.
struct FewRows {
    int64_t rows, inner, columns;
    const float* x;  // [rows, inner]
    const float* w;  // [columns, inner]
    float* y;  // [rows, columns]
    int64_t first, end;  // the columns that are wanted
};

// FewRows of whole numbers: a result is a sum in int32, times the column's scale and `step`, plus
// the column's shift.
struct FewByteRows {
    int64_t rows = 0, inner = 0, columns = 0;
    const uint8_t* x = nullptr;  // [rows, stride_of_byte_rows(inner)]: lay_out_byte_rows
    int origin = 0;  // what stands for 0 in x
    const int8_t* w = nullptr;  // [columns, inner]
    const float* scale = nullptr;  // [columns], or one number
    bool is_one_scale = false;
    const float* shift = nullptr;  // [columns], added; null: zeros
    float step = 1;
    float* y = nullptr;  // [rows, columns]
    int32_t* sums = nullptr;  // the sums themselves, in place of y
    int64_t first = 0, end = 0;  // the columns that are wanted
};

// Rows of whole numbers are as long as a multiple of the terms that are added at once.
int64_t stride_of_byte_rows(int64_t inner);
// from: [rows, inner]. Returns the origin.
int lay_out_byte_rows(const int8_t* from, int64_t rows, int64_t inner, uint8_t* to);
int lay_out_byte_rows(const uint8_t* from, int64_t rows, int64_t inner, uint8_t* to);

void multiply_byte_rows(const FewByteRows& p);  // all columns, by several threads

// How numbers are rounded to 8 bits: a level stands for (level - origin) * step.
struct ByteLevels {
    float step;
    int origin;
};

struct RecurrentCells {
    // NaN becomes the level of 0 (runtime/ops/recurrent.cpp).
    ByteLevels (*levels_of)(int64_t n, const float* x, uint8_t* levels);
    void (*few_byte_rows)(const FewByteRows&);
    // y: x at the nearest of 256 numbers between its extrema (runtime/ops/recurrent.cpp).
    void (*round_to_8_bits)(int64_t n, const float* x, float* y);
    void (*few_rows)(const FewRows&);
    void (*lstm)(const LstmStep&);
    void (*lstm_grad)(const LstmGradStep&);
    void (*gru)(const GruStep&);
    void (*gru_reset)(const GruResetStep&);
    void (*gru_new)(const GruNewStep&);
    void (*gru_grad)(const GruGradStep&);
    void (*rnn)(const RnnStep&);
    void (*rnn_grad)(const RnnGradStep&);
};

// has_vnni: as runtime/host/isa.h tells it.
MEGJIT_AT_EACH_LEVEL(RecurrentCells recurrent_cells(bool has_vnni);)

}  // namespace megjit::cpu
