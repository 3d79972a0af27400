// jit/plan/passes/passes.h -- every pass: a function from graph to graph. Each keeps the outputs,
// their order, dtypes and shapes, and returns the graph that it got where it finds nothing to do.
// None leaves nodes that no output needs: later passes count readers, and make kernels of what is
// there. pipeline.cpp says in which order they run, and why.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "jit/step/step.h"
#include "memory/rematerialize.h"
#include "memory/spill.h"
#include "runtime/core/device.h"

namespace megjit::jit {

// What a traced function may take of memory.
struct MemoryOptions {
    size_t limit = 0;  // bytes of a call: inputs, results and arena; 0: none
    bool is_sublinear = false;  // recompute, at about the cost of one more forward pass
    size_t enough_bytes = 0;  // is_sublinear: the search stops at so many live bytes
    bool only_looks = false;  // search for the curve of plans; what runs stays as it is
    memory::RematSearch search = {};
    std::vector<uint32_t> known_order = {};  // an earlier search's order, tried before a new one
    std::string spill = {};  // the folder for what leaves memory to keep the limit; empty: none
};

// The steps in the order in which they run, some of them more than once.
using ChoosePlan = std::function<std::vector<uint32_t>(const memory::RematProblem&)>;

// The steps in the order in which they run, for the choice of what leaves memory. Inputs that the
// call replaces may lie outside from call to call: `replacing` takes the place of `replaced`.
struct SpillProblem {
    const memory::RematProblem& steps;
    std::vector<uint32_t> replaced, replacing;
};
using ChooseSpill = std::function<memory::SpillPlan(const SpillProblem&)>;

// Who computes products that could be generated (product_choice.h): the device's library, or a
// kernel by tiles or panels (codegen/kernel_ir.h). `generated`: some kernel; no pass
// then makes an op that needs a library.
enum class Products : uint8_t { measured, library, tiles, panels, generated };

struct PipelineOptions {
    int opt_level = 2;
    bool exact = false;  // numerics="exact": only passes that keep every bit
    std::string backend = {};  // compiler of kernels; empty: MGB_JIT_BACKEND, or the device's best
    bool fuse = false;  // generate kernels below level 3 too
    bool fuse_reduce = true;  // may kernels hold reductions?
    bool fuse_dimshuffle = true;  // may they read through transposes?
    Products products = Products::measured;
    bool splits_products = false;  // the device's libraries refuse to compute the op as a whole
    const std::set<std::string>* refused =
        nullptr;  // printed kernels that cannot be had: their groups stay as they are
    MemoryOptions memory = {};
    runtime::Device* device =
        nullptr;  // the passes look at its memory, and at what its ops need; none: at neither
    bool measured_costs =
        false;  // recomputation costs what profiled runs took, where that is known
    const Step* step = nullptr;  // owner of the graph; null: nothing is known of inputs and outputs
    bool binds_under_limit = false;  // a limit on memory does not keep weights from being packed
    // They choose which steps run, and which run again: among recorded ops, among the ops left
    // before kernels are made, and among the final kernels and ops. The graph stays unchanged
    // where one is null or returns nothing.
    ChoosePlan choose_whole = {}, choose_plan = {}, choose_units = {};
    ChooseSpill choose_spill = {};  // null: all values stay in memory
    bool recomputes_cheap = true;  // what costs next to nothing runs again (recompute_cheap)
};

// Algebra on single nodes that keeps the bits: x*1, x/1, x**2, x**1, double negation and
// transposition, casts to the same type, reshape of reshape. Why: users and gradients write them.
Graph simplify(Graph graph);

// Algebra of the reals: x/x is 1, log(exp(x)) and exp(log(x)) are x, log(exp(x) + exp(y)) is
// logaddexp. Why: the literal form overflows, or divides 0 by 0, where the formula has a value.
Graph cancel(Graph graph);

// Replaces each node whose inputs are all constants by its value. Why: tracing records shape
// arithmetic that no kernel should run. Large results (> 64 KiB) are left to run.
Graph fold_constants(Graph graph);

// Joins nodes that apply the same op to the same values. Why: gradients recompute what forward had.
Graph dedup(Graph graph);

// Attention that the program writes in products and softmax becomes one op, forward and backward.
// Why: it keeps nothing as large as the scores.
Graph attend(Graph graph);

// Products read matrices that are transposed as they lie. Why: a copy of each weight costs memory
// and time.
Graph turn_factors(Graph graph);

// Begins collective operations as soon as their operands exist, so that they run beside later
// computation. Keeps the bits.
Graph begin_exchanges(Graph graph);

// Where the device has memory of its own, values that jit.offload marks wait in the host's memory
// between forward and backward. Keeps the bits.
Graph offload(Graph graph, const PipelineOptions& options);

// Begins each transfer back so early that it is over when its value is read, and no earlier.
Graph prefetch(Graph graph, const PipelineOptions& options);

// Runs again what the marks say (jit.recompute, parameters that are gathered); else chooses the
// order of ops for the peak. Keeps the bits.
Graph order_steps(Graph graph, const PipelineOptions& options);

// Lets go of values and computes them again where they are needed, as options.choose_whole says.
// Keeps the bits.
Graph rematerialize_whole(Graph graph, const PipelineOptions& options);

// Does the same as options.choose_plan says, to the ops left when all but kernels is decided.
Graph rematerialize(Graph graph, const PipelineOptions& options);

// Computes again what costs next to nothing instead of keeping it. Keeps the bits.
Graph recompute_cheap(Graph graph, const PipelineOptions& options);

// Does what rematerialize does once kernels are made: each one runs again whole. Keeps the bits.
Graph rematerialize_units(Graph graph, const PipelineOptions& options);

// Values wait in a file while nothing needs them, as options.choose_spill says. Keeps the bits.
Graph spill(Graph graph, const PipelineOptions& options);

// Keeps activations channels-last between convolutions.
Graph assign_layouts(Graph graph);
// Asks OpDef::prefers_channels_last; the library of a GPU prefers it for every op that has one.
bool prefers_channels_last(const Graph& graph, const Node& node);

// Biases and residuals that are added to convolutions and matrix products become steps of them.
// Why: the products have each element in a register once. Keeps the bits. (A product with other
// element-wise ops after it is left to fuse, where its kernel is as fast as the library's.)
Graph fuse_epilogues(Graph graph, const PipelineOptions& options = {});

// Biases that are added to products of halves become steps of them on a GPU, whose library adds
// them to the sums before it rounds these.
Graph fuse_half_biases(Graph graph, const PipelineOptions& options = {});

// Another gradient that is added to a convolution's, and relu's gradient of the sum, become steps
// of the convolution on a GPU. Why: that gradient is neither written by itself nor read again.
Graph fuse_masks(Graph graph, const PipelineOptions& options = {});

// Products of halves whose rows begin anywhere become products of larger matrices on a GPU, which
// share what is copied. Keeps the bits.
Graph align_rows(Graph graph, const PipelineOptions& options = {});

// Sums of a factor's rows are computed with the product of halves that sums over the same axis, on
// a GPU. Why: gradients of weights and biases read one large value.
Graph join_sums(Graph graph, const PipelineOptions& options = {});

// May a library add up what its convolutions give (join_stats, join_gradient_sums)? It computes
// products on this device, and runs need not have equal bits.
bool libraries_add_up(const Graph& graph, const PipelineOptions& options);

// Mean and variance of a convolution's result of halves come from sums that the library adds up
// beside it, on a GPU. Why: the statistics of a batch norm do not read the result again.
Graph join_stats(Graph graph, const PipelineOptions& options = {});

// The sums by channel that a batch norm's gradient needs come from the convolution whose gradient
// is added up, on a GPU, behind relu's mask. Why: the gradient is not read again for them.
Graph join_gradient_sums(Graph graph, const PipelineOptions& options = {});

// Does what fuse_epilogues does, for relu, which then may give NaN for -inf.
Graph fuse_relu(Graph graph, const PipelineOptions& options = {});

// Multiplies the fixed weights of a convolution by the scale that follows it, as normalization in
// inference has one. Why: the scaled weights are computed once, and a bias is left.
Graph fold_scales(Graph graph, const PipelineOptions& options);

// Fixed weights of convolutions and products go, packed as the device wants them, into the
// prologue, with all that they are computed from. Under a limit of memory they go only where the
// caller says so: the packed weights stay beside the others, and the plan counts both.
Graph bind_weights(Graph graph, const PipelineOptions& options);

// Makes results that replace inputs keep the old value after a failure, where a device runs work
// that was queued after one.
Graph guard_updates(Graph graph, const PipelineOptions& options);

// Casts of weights to halves become inputs that the step renews with the weights, on a GPU. Why:
// each call would read all weights only for that. Keeps the bits.
Graph keep_copies(Graph graph, const PipelineOptions& options);

// The gradient of a table of words becomes sums in as many rows as the text has words, and a map
// from the table's rows to them. Why: it is neither written as a table nor read as one. Keeps the
// bits.
Graph map_rows(Graph graph);

// Moves reshapes out of the way of fuse. Why: a kernel has one shape. Keeps the bits.
Graph move_views(Graph graph);

// Joins element-wise nodes, reductions and what stands before and after them into kernels; the stop
// conditions stand in words in fuse.cpp.
Graph fuse(Graph graph, const PipelineOptions& options = {});

// Sets the parts of a sum of zeros with parts set in one tensor of zeros. Why: gradients of slices.
Graph join_slices(Graph graph);

// Attention reads its heads where they lie, and writes them where they go, on devices that can.
// Why: a transformer copies them eight times a layer. Keeps the bits.
Graph place_heads(Graph graph);

// Computes logits, their loss and its gradient for some rows at a time, in a scan. Why: whole, they
// are larger than all else that a language model keeps.
Graph part_rows(Graph graph);

// A mask such as relu's is applied before the gradient of max pooling, not behind it. Keeps the
// bits.
Graph mask_pooled(Graph graph);

// A sum that picks one element of each row picks it from the operand of element-wise ops, not from
// their result. Why: what is picked of log-softmax needs no walk behind that of its sum.
Graph pick_operands(Graph graph);

// Casts of a model's float32 inputs become kernels that stand side by side, on a GPU. Keeps the
// bits.
Graph gather_casts(Graph graph, const PipelineOptions& options = {});

// Joins kernels that are equal and independent into one step with several launches.
Graph batch(Graph graph);

// Runs these passes on the graphs that ops hold (jit/step/subgraph.h).
Graph optimize_subgraphs(Graph graph, const PipelineOptions& options);

// Replaces ops (softmax, layer norm, ...) by the simpler ones that make them up, so that kernels
// can hold them together with their neighbours.
Graph expand(Graph graph, const PipelineOptions& options = {});

}  // namespace megjit::jit
