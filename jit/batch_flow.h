// jit/batch_flow.h -- which inputs of a recorded function may get another batch: the proof that
// the numbers in its record follow.
//
// A record holds numbers; what they meant, GivenExtent and ExtentRead say. The types of all values
// are inferred anew with another extent in front of the inputs. Where a number that the program
// wrote would have to change, where one that it read of an extent that changes stands still, or
// where a gradient was taken, the record is true for its own batch alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "jit/trace_function.h"

namespace megjit::jit {

// By argument: why its batch stays, a line of the program with what it does there; empty where
// another batch gives what a recording with that batch would. `live`: the ops that are wanted.
std::vector<std::string> fixed_batches(const Version& version, std::span<const NodeId> live);

}  // namespace megjit::jit
