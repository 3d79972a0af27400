// runtime/ops/epilogue.h -- what conv_epilogue, matmul_epilogue and conv_backward_data_epilogue do
// to each element of a product before they store it. Attribute `epilogue` is a list of words, done
// in order:
//   bias   adds the next operand, one number for each channel (conv) or column (matmul)
//   add    adds the next operand, a tensor of the result's type
//   relu   max(x, 0), or NaN; -inf may become NaN, and a denormal x a smaller one
//   mask   x where the next operand is above 0, else 0: relu's gradient, by relu's result
// The fuse_epilogues passes make these ops, and layers for inference call them.
// Gradients are those of the product and of its steps; relu must be the last one.
// Rules:
//   E1 float32, or halves where the product takes them (EpilogueSpec::takes_halves): these are
//      rounded once, after the last step
//   E2 known words, each once at most: add and mask after a gradient, else bias, add and relu
//   E3 one operand for each word that takes one
//   E4 a bias has one element a channel, along the channel's axis
//   E5 an addend has the result's shape, and so has the operand of a mask
#pragma once

#include <vector>

#include "runtime/core/op.h"

namespace megjit::runtime {

struct EpilogueStep {
    EpilogueKind kind = EpilogueKind::relu;
    size_t operand = 0;  // position of its operand (all but relu's) among the op's inputs

    bool takes_operand() const { return kind != EpilogueKind::relu; }
};

// Throws UserError where rule E2 or E3 is broken.
std::vector<EpilogueStep> epilogue_of(const OpCall& call);
// The attribute value that names the steps.
std::string epilogue_text(std::span<const EpilogueStep> steps);

// Checks rules E1 to E5 for a product of type y.
void check_epilogue(const OpCall& call, const Type& y);

// Gradients of a product with epilogue; `product` is the op without epilogue, whose attributes are
// the same but for the last.
Grads grad_of_epilogue(const GradCall& g, const OpDef& product);

// Writes the call as the plain product and an op for each step: for devices whose product does not
// take the steps (OpDef::expand).
std::vector<TensorRef> expand_epilogue(const OpCall& call, std::span<const TensorRef> inputs,
                                       const OpDef& product);

// Rule E2: may a product have the step?
bool takes_step(const EpilogueSpec& spec, EpilogueKind kind);

// Is `dtype` a type of halves in which the product may have steps?
bool takes_halves(const OpDef& product, DType dtype);

// May a tensor of type `bias` be the bias along axis `channel` of a product of type y?
bool is_bias(const Type& bias, const Type& y, int channel);

}  // namespace megjit::runtime
