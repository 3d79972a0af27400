// The loops of a kernel. What a row is in the kernel IR, a run is here: pieces of one vector over
// the lane axis, and one masked piece for the rest.
#include "backends/halide/emit.h"

#include <algorithm>
#include <optional>

#include "backends/halide/accumulator.h"
#include "backends/halide/body.h"
#include "backends/halide/emit_scalar.h"

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using codegen::Inner;
using codegen::KernelIR;
using codegen::Lanes;
using Halide::cast;
using runtime::ScalarInst;
using runtime::ScalarOp;

// A part of an f32 sum: so many vectors of each lane.
constexpr int kLog2Part = 7;

Expr i64(int64_t value) { return make_const(Halide::Int(64), value); }

class KernelEmitter {
public:
    KernelEmitter(const KernelIR& kernel, int width)
        : kernel_(kernel),
          levels_(kernel.levels()),
          code_(serial_),
          operands_(kernel, code_, Operands::of_kernel_fn()),
          body_(kernel, operands_, code_.let("zero", cast<int32_t>(hi_ >> 63))) {
        lanes_ = width * vectors_a_piece();
        find_uniform();
    }

    Stmt run() {
        if (kernel_.reduced > 0) emit_units();
        else if (kernel_.rank == 1) emit_run(code_, operands_.start(), lo_, hi_);
        else emit_rows();
        Stmt body = code_.finish();
        return body.defined() ? body : Evaluate::make(0);
    }

private:
    // Short reductions keep several accumulators going: an addition takes longer than a load.
    int vectors_a_piece() const {
        const bool is_dense = std::all_of(
            kernel_.inputs.begin(), kernel_.inputs.end(),
            [](const auto& input) { return input.inner != Inner::strided && input.by < 0; });
        if (kernel_.reduced == 0 || !is_dense) return 1;
        return kernel_.program.size() <= 8 ? 4 : kernel_.program.size() <= 24 ? 2 : 1;
    }

    // ---- instructions
    // ---------------------------------------------------------------------------- The same in all
    // lanes of a run: known before it.
    void find_uniform() {
        for (int id = 0; id < kernel_.program.size(); ++id) {
            const ScalarInst& inst = kernel_.program[id];
            bool uniform = true;
            if (kernel_.lanes == Lanes::kept && kernel_.reduced > 0) uniform = false;
            else if (levels_[static_cast<size_t>(id)].per_row) uniform = true;
            else if (inst.op == ScalarOp::input) uniform = is_uniform_input(inst.bits);
            for (int k = 0; k < runtime::arity_of(inst.op); ++k)
                uniform = uniform && uniform_[static_cast<size_t>(inst.args[k])];
            uniform_.push_back(uniform);
        }
    }
    bool is_uniform_input(size_t i) const {
        const codegen::Operand& input = kernel_.inputs[i];
        return input.inner == Inner::broadcast &&
               (input.by < 0 ||
                kernel_.inputs[static_cast<size_t>(input.by)].inner == Inner::broadcast);
    }

    // ---- element-wise
    // ----------------------------------------------------------------------------
    void emit_rows() {
        code_.loop(hi_ - lo_, [&](Code& code, const Expr& index) {
            const Expr row = code.let("row", lo_ + index);
            Bases bases = operands_.at_position(code, row, kernel_.rank - 1);
            const Expr& columns = operands_.extent(kernel_.rank - 1);
            const Expr row_start = code.let("start", row * columns);
            for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                bases[kernel_.inputs.size() + k] = row_start;
            emit_run(code, bases, i64(0), columns);
        });
    }

    void emit_run(Code& outer, const Bases& bases, const Expr& from, const Expr& to) {
        Code code = outer.inside();  // nothing is read in a run without elements
        body_.emit(code, bases, {.at = i64(0)}, [&](size_t id) { return uniform_[id]; });
        emit_pieces(code, from, to, [&](Code& inner, const Piece& piece) {
            body_.emit(inner, bases, piece, [&](size_t id) { return !uniform_[id]; });
            for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                operands_.store(inner, k, bases, piece, body_.result(k));
        });
        outer.when(from < to, std::move(code));
    }

    // Whole vectors, then the rest.
    using EmitPiece = std::function<void(Code&, const Piece&)>;
    void emit_pieces(Code& code, const Expr& from, const Expr& to, const EmitPiece& emit_piece,
                     int log2_chunk = 30, const Code::After& after_chunk = nullptr) {
        const Expr count = code.let("count", to - from), whole = code.let("whole", count / lanes_);
        code.loop(whole, [&](Code& inner, const Expr& index) {
            emit_piece(inner, {.at = inner.let("at", from + index * lanes_), .lanes = lanes_});
        }, log2_chunk, after_chunk);
        const Expr left = code.let("left", cast<int32_t>(count - whole * lanes_));
        Code rest = code.inside();
        emit_piece(rest, partial(rest, rest.let("at", from + whole * lanes_), lanes_, left));
        if (after_chunk) after_chunk(rest);
        code.when(left > 0, std::move(rest));
    }

    // ---- reductions
    // ------------------------------------------------------------------------------
    void emit_units() {
        const int kept = kernel_.kept();
        code_.loop(hi_ - lo_, [&](Code& code, const Expr& index) {
            const Expr unit = code.let("unit", lo_ + index);
            if (kernel_.lanes == Lanes::last)
                return emit_row(code, operands_.at_position(code, unit, kept), {.at = i64(0)});
            // A block of columns, vector by vector.
            const Expr& columns = operands_.extent(kept - 1);
            constexpr int kBlock = codegen::kColumnBlock;
            const Expr blocks = code.let("blocks", (columns + (kBlock - 1)) / kBlock);
            const Expr run =
                code.let("run", cast<int64_t>(cast<uint64_t>(unit) / cast<uint64_t>(blocks)));
            const Bases bases = operands_.at_position(code, run, kept - 1);
            const Expr from = code.let("from", (unit - run * blocks) * kBlock);
            emit_pieces(code, from, code.let("to", min(from + kBlock, columns)),
                        [&](Code& inner, const Piece& piece) { emit_row(inner, bases, piece); });
        });
    }

    // All passes over the reduced axes for one row, or for a vector of columns, which is `columns`.
    void emit_row(Code& code, const Bases& bases, const Piece& columns) {
        Expr count = i64(1);
        for (int axis = kernel_.kept(); axis < kernel_.rank; ++axis)
            count = count * operands_.extent(axis);
        count = code.let("count", count);
        for (int pass = 0; pass <= kernel_.passes(); ++pass) {
            body_.emit(code, bases, columns,
                       [&](size_t id) { return levels_[id].per_row && levels_[id].pass == pass; });
            if (pass < kernel_.passes()) emit_pass(code, pass, bases, columns, count);
        }
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (kernel_.outputs[k].per_row)
                operands_.store(code, k, bases, columns, body_.result(k));
    }

    struct OpenPass {
        Pass pass;
        std::vector<std::optional<Accumulator>> accumulators;  // per reduction of the kernel
        bool has_parts = false;
    };

    void emit_pass(Code& code, int number, const Bases& bases, const Piece& columns,
                   const Expr& count) {
        OpenPass open{.pass = pass_of(kernel_, levels_, number), .accumulators = {}};
        const Pass& pass = open.pass;
        open.accumulators.resize(kernel_.reductions.size());
        for (size_t r : pass.reductions) {
            const codegen::Reduction& reduction = kernel_.reductions[r];
            open.accumulators[r].emplace(code, reduction.kind, kernel_.program[reduction.arg].type,
                                         lanes_);
            open.has_parts = open.has_parts || open.accumulators[r]->wants_parts();
        }
        emit_reduced(code, open, kernel_.kept(), bases, columns, i64(0));
        for (size_t r : pass.reductions) {
            const Accumulator& accumulator = *open.accumulators[r];
            Accumulator::State state = accumulator.load(code);
            if (kernel_.lanes == Lanes::last)
                state = accumulator.of_all_lanes(code, std::move(state));
            body_.set_reduced(r, accumulator.result(code, state, count));
        }
    }

    // Loops over the reduced axes from `axis` on; `place` numbers what lies outside of them.
    void emit_reduced(Code& code, const OpenPass& open, int axis, const Bases& bases,
                      const Piece& columns, const Expr& place) {
        const bool is_last = axis + 1 == kernel_.rank;
        const Expr& extent = operands_.extent(axis);
        const Code::After end_part = [&](Code& after) {
            for (size_t r : open.pass.reductions)
                if (open.accumulators[r]->wants_parts()) open.accumulators[r]->end_part(after);
        };
        const int log2_chunk = is_last && open.has_parts ? kLog2Part : 30;
        if (is_last && kernel_.lanes == Lanes::last) {
            body_.emit(code, bases, {.at = i64(0)},
                       [&](size_t id) { return open.pass.needed[id] && uniform_[id]; });
            const Expr first = code.let("place", place * extent);
            emit_pieces(code, i64(0), extent, [&](Code& inner, const Piece& piece) {
                body_.emit(inner, bases, piece,
                           [&](size_t id) { return open.pass.needed[id] && !uniform_[id]; });
                take(inner, open, bases, piece,
                     Ramp::make(cast<int32_t>(first + piece.at), Expr(1), lanes_));
            }, log2_chunk, open.has_parts ? end_part : nullptr);
            return;
        }
        code.loop(extent, [&](Code& inner, const Expr& index) {
            const Bases next = operands_.moved(inner, bases, axis, index);
            const Expr next_place = inner.let("place", place * extent + index);
            if (!is_last) return emit_reduced(inner, open, axis + 1, next, columns, next_place);
            body_.emit(inner, next, columns, [&](size_t id) { return open.pass.needed[id]; });
            take(inner, open, next, columns, spread(cast<int32_t>(next_place), lanes_));
        }, log2_chunk, is_last && open.has_parts ? end_part : nullptr);
    }

    // Adds the elements of a piece to the pass's reductions, and writes its outputs.
    void take(Code& code, const OpenPass& open, const Bases& bases, const Piece& piece,
              const Expr& place) {
        const Expr numbered = code.let("place", place);
        for (size_t r : open.pass.reductions)
            open.accumulators[r]->take(code, body_.value(kernel_.reductions[r].arg), numbered,
                                       piece.mask);
        for (size_t k : open.pass.outputs) operands_.store(code, k, bases, piece, body_.result(k));
    }

    const KernelIR& kernel_;
    std::vector<KernelIR::Level> levels_;
    int serial_ = 0;
    const Expr lo_ = Variable::make(Halide::Int(64), "lo"),
               hi_ = Variable::make(Halide::Int(64), "hi");
    Code code_;
    Operands operands_;
    Body body_;
    int lanes_ = 1;
    std::vector<bool> uniform_;  // per instruction
};

}  // namespace

LoweredFunc emit(const codegen::KernelIR& kernel, int width) {
    std::vector<LoweredArgument> arguments;
    const auto add = [&](const char* name, const Halide::Type& type) {
        arguments.emplace_back(name, Halide::Argument::InputScalar, type, 0,
                               Halide::ArgumentEstimates{});
    };
    for (const char* name : {"inputs", "outputs", "extents", "strides"})
        add(name, Halide::Handle());
    for (const char* name : {"lo", "hi"}) add(name, Halide::Int(64));
    return {kKernelSymbol, arguments, KernelEmitter(kernel, width).run(),
            Halide::LinkageType::External, Halide::NameMangling::C};
}

}  // namespace megjit::halide_backend
