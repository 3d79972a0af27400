// The loops of a kernel. What a row is in the kernel IR, a run is here: pieces of one vector over
// the lane axis, and one masked piece for the rest.
#include "backends/halide/emit.h"

#include <algorithm>
#include <optional>

#include "backends/halide/body.h"
#include "backends/halide/emit_scalar.h"
#include "backends/halide/reducer.h"

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using codegen::Inner;
using codegen::kChain;
using codegen::KernelIR;
using codegen::Lanes;
using codegen::RowWalk;
using Halide::cast;
using runtime::ScalarInst;
using runtime::ScalarOp;

Expr i64(int64_t value) { return make_const(Halide::Int(64), value); }

class KernelEmitter {
public:
    KernelEmitter(const KernelIR& kernel, int width)
        : kernel_(kernel),
          code_(serial_),
          operands_(kernel, code_, Operands::of_kernel_fn()),
          body_(kernel, operands_, code_.let("zero", cast<int32_t>(hi_ >> 63))) {
        lanes_ = width;
        if (kernel.reduced > 0) {
            plan_ = codegen::row_plan_of(kernel);
            lanes_ = kernel.lanes == Lanes::last ? plan_.lanes : width * vectors_of_columns();
        }
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
    // Several chains keep going: an addition takes longer than a load.
    int vectors_of_columns() const {
        const bool is_dense = std::all_of(
            kernel_.inputs.begin(), kernel_.inputs.end(),
            [](const auto& input) { return input.inner != Inner::strided && input.by < 0; });
        if (!is_dense) return 1;
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
            else if (inst.op == ScalarOp::input)
                uniform =
                    codegen::reduction_read_by(kernel_, id) >= 0 || is_uniform_input(inst.bits);
            for (int k = 0; k < runtime::arity_of(inst.op); ++k)
                uniform = uniform && uniform_[static_cast<size_t>(inst.args[k])];
            uniform_.push_back(uniform);
            (uniform ? once_ : each_).push_back(id);
        }
    }
    // Those of some instructions that are the same in all lanes of a run, or all others.
    std::vector<int> among(const std::vector<int>& ids, bool uniform) const {
        std::vector<int> some;
        for (const int id : ids)
            if (uniform_[static_cast<size_t>(id)] == uniform) some.push_back(id);
        return some;
    }
    bool is_uniform_input(size_t i) const {
        const auto is_still = [&](const codegen::Operand& input) {
            return input.inner == Inner::broadcast || input.per_row;
        };
        const codegen::Operand& input = kernel_.inputs[i];
        return is_still(input) &&
               (input.by < 0 || is_still(kernel_.inputs[static_cast<size_t>(input.by)]));
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
        body_.emit(code, bases, {.at = i64(0)}, once_);
        emit_pieces(code, from, to, [&](Code& inner, const Piece& piece) {
            body_.emit(inner, bases, piece, each_);
            for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                operands_.store(inner, k, bases, piece, body_.result(k));
        });
        outer.when(from < to, std::move(code));
    }

    // Whole vectors, then the rest.
    using EmitPiece = std::function<void(Code&, const Piece&)>;
    void emit_pieces(Code& code, const Expr& from, const Expr& to, const EmitPiece& emit_piece) {
        const Expr count = code.let("count", to - from), whole = code.let("whole", count / lanes_);
        code.loop(whole, [&](Code& inner, const Expr& index) {
            emit_piece(inner, {.at = inner.let("at", from + index * lanes_), .lanes = lanes_});
        });
        const Expr left = code.let("left", cast<int32_t>(count - whole * lanes_));
        Code rest = code.inside();
        emit_piece(rest, partial(rest, rest.let("at", from + whole * lanes_), lanes_, left));
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

    // All walks over the reduced axes for one row, or for a vector of columns, which is `columns`.
    void emit_row(Code& code, const Bases& bases, const Piece& columns) {
        Expr count = i64(1);
        for (int axis = kernel_.kept(); axis < kernel_.rank; ++axis)
            count = count * operands_.extent(axis);
        count = code.let("count", count);
        for (const RowWalk& walk : plan_.walks) {
            body_.emit(code, bases, columns, walk.row);
            if (walk.walks()) emit_walk(code, walk, bases, columns, count);
        }
        for (const size_t k : plan_.outputs)
            operands_.store(code, k, bases, columns, body_.result(k));
    }

    struct OpenWalk {
        const RowWalk& walk;
        std::vector<int> once, each;  // its instructions: those the same in a whole run, others
        std::vector<Reducer> reducers = {};
    };

    void emit_walk(Code& code, const RowWalk& walk, const Bases& bases, const Piece& columns,
                   const Expr& count) {
        OpenWalk open{walk, among(walk.elements, true), among(walk.elements, false)};
        for (const codegen::Reduced& reduced : walk.reductions)
            open.reducers.emplace_back(code, reduced, lanes_);
        emit_reduced(code, open, kernel_.kept(), bases, columns, i64(0));
        for (size_t r = 0; r < open.reducers.size(); ++r) {
            const Reducer& reducer = open.reducers[r];
            Reducer::State state = reducer.load(code);
            if (kernel_.lanes == Lanes::last) state = reducer.of_all_lanes(code, std::move(state));
            body_.set_reduced(static_cast<size_t>(walk.reductions[r].reduction),
                              reducer.result(code, state, count));
        }
    }

    // Loops over the reduced axes from `axis` on; `place` numbers what lies outside of them.
    void emit_reduced(Code& code, const OpenWalk& open, int axis, const Bases& bases,
                      const Piece& columns, const Expr& place) {
        const Expr& extent = operands_.extent(axis);
        const Expr first = code.let("place", place * extent);
        if (axis + 1 < kernel_.rank)
            return code.loop(extent, [&](Code& inner, const Expr& index) {
                emit_reduced(inner, open, axis + 1, operands_.moved(inner, bases, axis, index),
                             columns, inner.let("place", first + index));
            });
        if (kernel_.lanes == Lanes::last) return emit_row_run(code, open, bases, first);
        const auto take_row = [&](Code& each, const Expr& row) {
            take(each, open, operands_.moved(each, bases, axis, row), columns,
                 spread(cast<int32_t>(first + row), lanes_));
        };
        emit_groups(code, open, 1, take_row, [&](Code& inner, const Expr& from, const Expr& to) {
            inner.loop(to - from, [&](Code& each, const Expr& index) {
                take_row(each, each.let("row", from + index));
            });
        });
    }

    // A run of a row, whose element 0 is number `first` of it.
    void emit_row_run(Code& code, const OpenWalk& open, const Bases& bases, const Expr& first) {
        body_.emit(code, bases, {.at = i64(0)}, open.once);
        const auto take_piece = [&](Code& each, const Piece& piece) {
            take(each, open, bases, piece,
                 Ramp::make(cast<int32_t>(first + piece.at), Expr(1), lanes_));
        };
        emit_groups(code, open, lanes_, [&](Code& each, const Expr& at) {
            take_piece(each, {.at = at, .lanes = lanes_});
        }, [&](Code& inner, const Expr& from, const Expr& to) {
            emit_pieces(inner, from, to, take_piece);
        });
    }

    // The last axis in groups of kChain steps: whole ones step by step where the walk is short,
    // one(code, at), others by a loop, some(code, from, to).
    using EmitOne = std::function<void(Code&, const Expr& at)>;
    using EmitSome = std::function<void(Code&, const Expr& from, const Expr& to)>;
    void emit_groups(Code& code, const OpenWalk& open, int step, const EmitOne& one,
                     const EmitSome& some) {
        const Expr& extent = operands_.extent(kernel_.rank - 1);
        if (open.reducers.empty()) return some(code, i64(0), extent);
        const int group = step * kChain;
        const auto chained = [&](Code& inner, const std::function<void()>& emit) {
            for (const Reducer& reducer : open.reducers) reducer.start_chains(inner);
            emit();
            for (const Reducer& reducer : open.reducers) reducer.end_chains(inner);
        };
        if (!open.walk.is_short())
            return code.loop((extent + (group - 1)) / group, [&](Code& inner, const Expr& index) {
                const Expr from = inner.let("from", index * group);
                chained(inner,
                        [&] { some(inner, from, inner.let("to", min(from + group, extent))); });
            });
        const Expr whole = code.let("whole", extent / group);
        code.loop(whole, [&](Code& inner, const Expr& index) {
            chained(inner, [&] {
                for (int k = 0; k < kChain; ++k)
                    one(inner, inner.let("at", index * group + k * step));
            });
        });
        const Expr rest = code.let("rest", whole * group);
        Code last = code.inside();
        chained(last, [&] { some(last, rest, extent); });
        code.when(rest < extent, std::move(last));
    }

    // Adds the elements of a piece to the walk's reductions, and writes its outputs.
    void take(Code& code, const OpenWalk& open, const Bases& bases, const Piece& piece,
              const Expr& place) {
        const Expr numbered = code.let("place", place);
        body_.emit(code, bases, piece,
                   kernel_.lanes == Lanes::last ? open.each : open.walk.elements);
        for (size_t r = 0; r < open.reducers.size(); ++r)
            open.reducers[r].take(code, body_.value(open.walk.reductions[r].arg), numbered,
                                  kernel_.lanes == Lanes::last ? piece.mask : Expr());
        for (const size_t k : open.walk.outputs)
            operands_.store(code, k, bases, piece, body_.result(k));
    }

    const KernelIR& kernel_;
    codegen::RowPlan plan_;  // of reductions
    int serial_ = 0;
    const Expr lo_ = Variable::make(Halide::Int(64), "lo"),
               hi_ = Variable::make(Halide::Int(64), "hi");
    Code code_;
    Operands operands_;
    Body body_;
    int lanes_ = 1;
    std::vector<bool> uniform_;  // per instruction
    std::vector<int> once_, each_;  // those that are, and the others
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
