// backends/cpu/in_parts.h -- ops that run for a part of their operands at a time: in a small
// workspace, and in place where a part of the result needs no other part of an operand.
#pragma once

#include <span>
#include <vector>

#include "backends/cpu/executable.h"
#include "runtime/core/op.h"

namespace megjit::cpu {

struct Parts {
    int64_t count = 1;
    // Bytes from one part to the next, by input (0: every part reads all of it), and of the result.
    std::vector<size_t> input_steps = {};
    size_t output_step = 0;  // 0: what the parts give is added, one after the other, in float32
    // The input on which the result may lie, or -1. Each part is then computed beside it, in the
    // workspace, and copied: the parts lie one behind the other in both.
    int in_place_on = -1;
    size_t output_bytes = 0;  // of a part
};

// `part` computes the first part, and each other one from operands that lie so many steps on.
Prepared in_parts(Prepared part, Parts parts);

// An op on large activations, some images at a time: how many is a matter of shapes alone, so that
// it has the same bits wherever it runs. has_images: by input; others, as weights, are the same for
// all images. The result may lie on the first input where that is as large. Nothing where images
// are few or small.
using PrepareOp = Prepared (*)(const runtime::OpCall& call, std::span<const runtime::Type> outputs);
Prepared by_images(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                   const std::vector<bool>& has_images, PrepareOp prepare);

// The same of an op whose result is a sum over the images that all operands have.
Prepared sum_by_images(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                       PrepareOp prepare);

}  // namespace megjit::cpu
