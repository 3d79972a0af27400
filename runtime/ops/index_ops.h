// runtime/ops/index_ops.h -- the ops that read, write and add at places, for passes that make them.
#pragma once

#include "runtime/core/op.h"

namespace megjit::runtime::ops {

inline const OpDef& index_get() {
    static const OpDef& known = find_op("index_get");
    return known;
}
inline const OpDef& index_set() {
    static const OpDef& known = find_op("index_set");
    return known;
}
inline const OpDef& index_add() {
    static const OpDef& known = find_op("index_add");
    return known;
}

}  // namespace megjit::runtime::ops
