#include "backends/halide/emit_gpu.h"

#include <algorithm>
#include <optional>

#include "backends/halide/accumulator.h"
#include "backends/halide/body.h"

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using codegen::KernelIR;
using codegen::Lanes;
using Halide::cast;

constexpr char kShared[] = "shared";  // words of the block's shared memory: there is one such array
constexpr int kLog2Part = 7;  // an f32 sum of a thread grows in parts of so many elements

// Halide lets LLVM contract products and sums for a GPU; a product with its rounding named is left
// alone. LLVM has no fmod of its own there; libdevice's of f32 takes denormals for zero, that of
// f64 is exact for f32 too.
class ForPtx final : public IRMutator {
    using IRMutator::visit;
    Expr visit(const Call* call) override {
        const Expr changed = IRMutator::visit(call);
        const Call* op = changed.as<Call>();
        if (op->is_intrinsic(Call::strict_mul) && op->type == Halide::Float(32))
            return Call::make(op->type, "llvm.nvvm.mul.rn.f", op->args, Call::PureExtern);
        if (op->name != "fmodf") return changed;
        const Halide::Type f64 = Halide::Float(64);
        return Cast::make(op->type,
                          Call::make(f64, "__nv_fmod",
                                     {Cast::make(f64, op->args[0]), Cast::make(f64, op->args[1])},
                                     Call::PureExtern));
    }
};

class GpuEmitter {
public:
    GpuEmitter(const KernelIR& kernel, Team team)
        : kernel_(kernel),
          team_(team),
          levels_(kernel.levels()),
          code_(serial_),
          operands_(kernel, code_, arguments()),
          body_(kernel, operands_, code_.let("zero", cast<int32_t>(operands_.extent(0) >> 63))) {
        block_ =
            code_.let("block", cast<int64_t>(Variable::make(
                                   Halide::Int(32), "b" + Halide::Internal::gpu_block_name(0))));
        thread_ = Variable::make(Halide::Int(32), "t" + Halide::Internal::gpu_thread_name(0));
    }

    GpuKernel run() {
        if (kernel_.reduced > 0) emit_unit();
        else emit_elements();
        Stmt body = ForPtx().mutate(code_.finish());
        if (shared_words_ > 0)
            body = Allocate::make(kShared, Halide::Int(32), Halide::MemoryType::GPUShared,
                                  {Expr(shared_words_)}, const_true(), body);
        const auto simt = [](const std::string& name, ForType type, Stmt inner) {
            return For::make(name, 0, 1, type, Halide::Partition::Never, Halide::DeviceAPI::CUDA,
                             std::move(inner));  // the launch has the extents
        };
        body =
            simt("t" + Halide::Internal::gpu_thread_name(0), ForType::GPUThread, std::move(body));
        return {.body = simt("b" + Halide::Internal::gpu_block_name(0), ForType::GPUBlock,
                             std::move(body)),
                .arguments = arguments_};
    }

private:
    // In the order of codegen::parameters_of. A dot keeps their names apart from those of lets.
    Operands::Arguments arguments() {
        const size_t inputs = memory_inputs(kernel_), rank = static_cast<size_t>(kernel_.rank);
        size_t strides = (kernel_.inputs.size() + kernel_.outputs.size()) * rank;
        for (const codegen::Operand& input : kernel_.inputs) strides += input.by >= 0;
        const auto declare = [&](const char* prefix, size_t count, const Halide::Type& type) {
            for (size_t i = 0; i < count; ++i)
                arguments_.emplace_back(prefix + std::to_string(i), false, Halide::MemoryType::Auto,
                                        type, 0);
        };
        declare("in.", inputs, Halide::UInt(64));
        declare("out.", kernel_.outputs.size(), Halide::UInt(64));
        declare("extent.", rank, Halide::Int(64));
        declare("stride.", strides, Halide::Int(64));
        const auto address = [](const char* prefix) {
            return [=](size_t i) {
                return Reinterpret::make(
                    Halide::Handle(), Variable::make(Halide::UInt(64), prefix + std::to_string(i)));
            };
        };
        const auto number = [](const char* prefix) {
            return [=](size_t i) {
                return Variable::make(Halide::Int(64), prefix + std::to_string(i));
            };
        };
        return {.input = address("in."),
                .output = address("out."),
                .extent = number("extent."),
                .stride = number("stride.")};
    }

    // Elements thread, thread + all threads, ...
    void emit_elements() {
        Expr count = make_one(Halide::Int(64));
        for (int axis = 0; axis < kernel_.rank; ++axis) count = count * operands_.extent(axis);
        const Expr blocks =
            Call::make(Halide::Int(32), "llvm.nvvm.read.ptx.sreg.nctaid.x", {}, Call::PureExtern);
        const Expr step = code_.let("step", cast<int64_t>(blocks) * team_.threads());
        const Expr first = code_.let("first", block_ * team_.threads() + cast<int64_t>(thread_));
        code_.loop((count - first + step - 1) / step, [&](Code& code, const Expr& index) {
            const Expr element = code.let("element", first + index * step);
            Bases bases = operands_.at_position(code, element, kernel_.rank);
            for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                bases[kernel_.inputs.size() + k] = element;  // row-major
            const Piece piece{.at = make_zero(Halide::Int(64))};
            body_.emit(code, bases, piece, [](size_t) { return true; });
            for (size_t k = 0; k < kernel_.outputs.size(); ++k)
                operands_.store(code, k, bases, piece, body_.result(k));
        });
    }

    // A block takes one row, or `columns` columns at one index of the kept axes before them.
    // Threads whose column is not there work on the last one and store nothing: all must come to
    // the barriers.
    void emit_unit() {
        const int kept = kernel_.kept();
        part_ = code_.let("part", cast<int64_t>(thread_ / team_.columns));
        Bases bases;
        Expr exists = const_true();
        if (kernel_.lanes == Lanes::last) {
            bases = operands_.at_position(code_, block_, kept);
        } else {
            const Expr& extent = operands_.extent(kept - 1);
            const Expr blocks = code_.let("blocks", (extent + (team_.columns - 1)) / team_.columns);
            const Expr run =
                code_.let("run", cast<int64_t>(cast<uint64_t>(block_) / cast<uint64_t>(blocks)));
            const Expr column = code_.let("column", (block_ - run * blocks) * team_.columns +
                                                        cast<int64_t>(thread_ % team_.columns));
            bases = operands_.moved(code_, operands_.at_position(code_, run, kept - 1), kept - 1,
                                    min(column, extent - 1));
            exists = code_.let("exists", column < extent);
        }
        const Piece here{.at = make_zero(Halide::Int(64))};
        for (int number = 0; number <= kernel_.passes(); ++number) {
            body_.emit(code_, bases, here, [&](size_t id) {
                return levels_[id].per_row && levels_[id].pass == number;
            });
            if (number < kernel_.passes())
                emit_pass(pass_of(kernel_, levels_, number), bases, exists);
        }
        barrier();  // before a row's value is overwritten that another thread still reads
        Code last = code_.inside();
        for (size_t k = 0; k < kernel_.outputs.size(); ++k)
            if (kernel_.outputs[k].per_row) operands_.store(last, k, bases, here, body_.result(k));
        code_.when(exists && part_ == make_zero(Halide::Int(64)), std::move(last));
    }

    void emit_pass(const Pass& pass, const Bases& bases, const Expr& exists) {
        std::vector<std::optional<Accumulator>> accumulators(kernel_.reductions.size());
        bool has_parts = false;
        for (size_t r : pass.reductions) {
            const codegen::Reduction& reduction = kernel_.reductions[r];
            accumulators[r].emplace(code_, reduction.kind, kernel_.program[reduction.arg].type, 1);
            has_parts = has_parts || accumulators[r]->wants_parts();
        }
        const Code::After end_part = [&](Code& after) {
            for (size_t r : pass.reductions)
                if (accumulators[r]->wants_parts()) accumulators[r]->end_part(after);
        };
        const std::function<void(Code&, int, const Bases&, const Expr&)> walk =
            [&](Code& code, int axis, const Bases& at, const Expr& place) {
            const bool is_last = axis + 1 == kernel_.rank;
            const Expr& extent = operands_.extent(axis);
            const Expr count =
                is_last ? (extent - part_ + (team_.parts - 1)) / team_.parts : extent;
            code.loop(count,
                      [&](Code& inner, const Expr& index) {
                const Expr coordinate =
                    inner.let("k", is_last ? part_ + index * team_.parts : index);
                const Bases next = operands_.moved(inner, at, axis, coordinate);
                const Expr next_place = inner.let("place", place * extent + coordinate);
                if (is_last) take(inner, pass, accumulators, next, next_place, exists);
                else walk(inner, axis + 1, next, next_place);
            }, is_last && has_parts ? kLog2Part : 30,
                      is_last && has_parts ? end_part : Code::After());
        };
        walk(code_, kernel_.kept(), bases, make_zero(Halide::Int(64)));
        Expr count = make_one(Halide::Int(64));
        for (int axis = kernel_.kept(); axis < kernel_.rank; ++axis)
            count = count * operands_.extent(axis);
        for (size_t r : pass.reductions)
            body_.set_reduced(
                r, accumulators[r]->result(code_, of_all_parts(*accumulators[r]), count));
    }

    void take(Code& code, const Pass& pass,
              const std::vector<std::optional<Accumulator>>& accumulators, const Bases& bases,
              const Expr& place, const Expr& exists) {
        const Piece here{.at = make_zero(Halide::Int(64))};
        body_.emit(code, bases, here, [&](size_t id) { return pass.needed[id]; });
        for (size_t r : pass.reductions)
            accumulators[r]->take(code, body_.value(kernel_.reductions[r].arg),
                                  cast<int32_t>(place), Expr());
        Code stores = code.inside();
        for (size_t k : pass.outputs) operands_.store(stores, k, bases, here, body_.result(k));
        code.when(exists, std::move(stores));
    }

    // The threads' states merged in a tree, through words of shared memory that no other merge
    // uses.
    Accumulator::State of_all_parts(const Accumulator& accumulator) {
        Accumulator::State state = accumulator.load(code_);
        if (team_.parts == 1) return state;
        const int first = shared_words_, threads = team_.threads();
        shared_words_ += static_cast<int>(state.size()) * threads;
        const auto put = [&](Code& code, const Accumulator::State& values) {
            for (size_t i = 0; i < values.size(); ++i)
                code.add(Store::make(kShared, Reinterpret::make(Halide::Int(32), values[i]),
                                     thread_ + (first + static_cast<int>(i) * threads),
                                     Halide::Parameter(), const_true(), ModulusRemainder()));
        };
        const auto get = [&](Code& code, const Expr& thread) {
            Accumulator::State values;
            for (size_t i = 0; i < state.size(); ++i) {
                const Expr word = Load::make(Halide::Int(32), kShared,
                                             thread + (first + static_cast<int>(i) * threads), {},
                                             Halide::Parameter(), const_true(), ModulusRemainder());
                values.push_back(code.let("shared", Reinterpret::make(state[i].type(), word)));
            }
            return values;
        };
        put(code_, state);
        for (int half = team_.parts / 2; half > 0; half /= 2) {
            barrier();
            Code lower = code_.inside();
            const Accumulator::State merged = accumulator.merged(
                lower, get(lower, thread_), get(lower, thread_ + half * team_.columns));
            put(lower, merged);
            code_.when(part_ < half, std::move(lower));
        }
        barrier();
        return get(code_, thread_ % team_.columns);
    }

    void barrier() {
        code_.add(Evaluate::make(Call::make(
            Halide::Int(32), Call::gpu_thread_barrier,
            {Expr(static_cast<int>(CodeGen_GPU_Dev::MemoryFenceType::Shared))}, Call::Intrinsic)));
    }

    const KernelIR& kernel_;
    Team team_;
    std::vector<KernelIR::Level> levels_;
    std::vector<DeviceArgument> arguments_;
    int serial_ = 0, shared_words_ = 0;
    Code code_;
    Operands operands_;
    Body body_;
    Expr block_, thread_, part_;  // i64, i32, i64: of this thread
};

}  // namespace

GpuKernel emit_gpu(const codegen::KernelIR& kernel, Team team) {
    return GpuEmitter(kernel, team).run();
}

}  // namespace megjit::halide_backend
