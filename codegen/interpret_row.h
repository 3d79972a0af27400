// codegen/interpret_row.h -- a reduction of one row, element by element: the words of row_plan.h as
// the interpreter takes them.
#pragma once

#include "codegen/row_plan.h"

namespace megjit::codegen {

class RowReduction {
public:
    // Of elements of `type`.
    RowReduction(const Reduced& reduced, runtime::ScalarType type, int lanes);
    // The bits of the element at `e` of a run, and at `place` of the row; in order.
    void take(uint32_t bits, int64_t e, int64_t place);
    uint32_t result(double elements);  // its bits, when all were taken

private:
    // What a lane or a chain holds. f32 and f64 are doubles, but rounded.
    struct Cell {
        double real = 0;
        int32_t whole = 0, place = 0;
    };
    struct Growing {
        const Accumulator& by;
        std::vector<Cell> lanes, chains;
    };
    static Cell neutral(const Accumulator& by);
    static Cell joined(const Accumulator& by, bool in_f64, const Cell& a, const Cell& b);
    static void end_chains(Growing& growing);
    static Cell all(Growing& growing);

    const Reduced& reduced_;
    runtime::ScalarType type_;
    std::vector<Growing> growing_;  // per accumulator
};

}  // namespace megjit::codegen
