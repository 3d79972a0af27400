// tests/fuzz/minimize.h -- makes a failing subject as small as it gets.
#pragma once

#include <functional>

#include "tests/fuzz/random_graphs.h"

namespace megjit::fuzz {

// The smallest subject found, by fewer outputs, fewer nodes (an input with the value takes a node's
// place, or one of its operands does) and smaller extents, for which `fails` is still true. It must
// be true for the given one.
Subject minimize(Subject subject, const std::function<bool(const Subject&)>& fails);

}  // namespace megjit::fuzz
