#include "backends/mlir/walks.h"

namespace megjit::mlir_backend {

using namespace mlir;

void evaluate_row(Frame& f, const codegen::RowWalk& walk, const Values& bases, const Piece& piece,
                  const Values& reduced, Values& values) {
    SmallVector<int> others;
    for (const int id : walk.row)
        if (const int r = codegen::reduction_read_by(f.kernel, id); r >= 0)
            values[static_cast<size_t>(id)] = reduced[static_cast<size_t>(r)];
        else others.push_back(id);
    f.evaluate(others, bases, piece, values);
}

namespace {

Values over_axes(Frame& f, int axis, const Run& outer, const Values& state, const RunBody& body) {
    const Value extent = f.extents[static_cast<size_t>(axis)];
    const Value place = f.mul(outer.place, extent);
    if (axis + 1 == f.kernel.rank) return body({outer.bases, place, extent}, state);
    return f.loop(f.index(0), extent, 1, state, [&](Value at, const Values& carried) {
        return over_axes(f, axis + 1, {f.along(outer.bases, axis, at), f.add(place, at), {}},
                         carried, body);
    });
}

}  // namespace

Values for_runs(Frame& f, const Values& bases, const Values& state, const RunBody& body) {
    return over_axes(f, f.kernel.kept(), {bases, f.index(0), {}}, state, body);
}

Value row_elements(Frame& f) {
    Value elements = f.index(1);
    for (int axis = f.kernel.kept(); axis < f.kernel.rank; ++axis)
        elements = f.mul(elements, f.extents[static_cast<size_t>(axis)]);
    return elements;
}

}  // namespace megjit::mlir_backend
