// jit/file/batch_flow.h -- which inputs of a recorded function may get another batch: the proof
// that the numbers in its record follow.
//
// A record holds numbers; GivenExtent and ExtentRead say what they meant. The types of all values
// are inferred anew with another extent in front of the inputs. The record is true for its own
// batch alone where a number that the program wrote would have to change, where a number that it
// read of a changing extent stands still, or where a gradient was taken.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "jit/trace/trace_function.h"

namespace megjit::jit {

// Says by argument why its batch stays: a line of the program, and what it does there. A text is
// empty where another batch gives what its recording would. `live`: the ops that are wanted.
std::vector<std::string> fixed_batches(const Version& version, std::span<const NodeId> live);

}  // namespace megjit::jit
