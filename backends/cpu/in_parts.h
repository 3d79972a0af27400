// backends/cpu/in_parts.h -- ops that run for a part of their operands at a time: in a small
// workspace, and in place where a part of the result needs no other part of an operand.
#pragma once

#include <span>
#include <vector>

#include "backends/cpu/executable.h"
#include "runtime/core/op.h"
#include "runtime/ops/epilogue.h"

namespace megjit::cpu {

struct Parts {
    int64_t count = 1;
    // Bytes from one part to the next, for each input (0: every part reads all of it), and for the
    // result.
    std::vector<size_t> input_steps = {};
    size_t output_step = 0;  // 0: results of parts are added in turn, in float32
    // The input on which the result may lie, or -1. If it does, each part is computed in the
    // workspace and copied: parts are contiguous in both.
    int in_place_on = -1;
    size_t output_bytes = 0;  // bytes of a part's result
};

// `part` computes the first part, and each further one from operands that begin one step later.
Prepared in_parts(Prepared part, Parts parts);

// Runs an op on large activations a few images at a time. Their number follows from shapes alone,
// so that the op has the same bits wherever it runs. has_images: by input; others, as weights, are
// the same for all images. The result may lie on the first input if that is as large. Null where
// images are few or small.
using PrepareOp = Prepared (*)(const runtime::OpCall& call, std::span<const runtime::Type> outputs);
Prepared by_images(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                   const std::vector<bool>& has_images, PrepareOp prepare);

// Says for each operand of a convolution with these steps whether it has images: activations and
// addends have.
std::vector<bool> with_images(const runtime::OpCall& call,
                              const std::vector<runtime::EpilogueStep>& steps);

// Does the same as by_images for an op whose result is a sum over the images that all operands
// have.
Prepared sum_by_images(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                       PrepareOp prepare);

}  // namespace megjit::cpu
