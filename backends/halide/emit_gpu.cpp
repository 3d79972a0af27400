#include "backends/halide/emit_gpu.h"

#include <algorithm>

#include "backends/halide/body.h"
#include "backends/halide/reducer.h"

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using codegen::kChain;
using codegen::KernelIR;
using codegen::Lanes;
using codegen::RowWalk;
using Halide::cast;

constexpr char kShared[] = "shared";  // words of the block's shared memory: there is one such array

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
        std::vector<int> all;
        for (int id = 0; id < kernel_.program.size(); ++id) all.push_back(id);
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
            body_.emit(code, bases, piece, all);
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
        const codegen::RowPlan plan = codegen::row_plan_of(kernel_);
        for (const RowWalk& walk : plan.walks) {
            body_.emit(code_, bases, here, walk.row);
            if (walk.walks()) emit_walk(walk, bases, exists);
        }
        barrier();  // before a row's value is overwritten that another thread still reads
        Code last = code_.inside();
        for (const size_t k : plan.outputs) operands_.store(last, k, bases, here, body_.result(k));
        code_.when(exists && part_ == make_zero(Halide::Int(64)), std::move(last));
    }

    // A thread is a lane; a chain (codegen/row_plan.h) is what it takes next of the last axis.
    void emit_walk(const RowWalk& walk, const Bases& bases, const Expr& exists) {
        std::vector<Reducer> reducers;
        for (const codegen::Reduced& reduced : walk.reductions)
            reducers.emplace_back(code_, reduced, 1);
        const auto take_last = [&](Code& code, const Bases& at, const Expr& first,
                                   const Expr& index) {
            const Expr coordinate = code.let("k", part_ + index * team_.parts);
            take(code, walk, reducers, operands_.moved(code, at, kernel_.rank - 1, coordinate),
                 code.let("place", first + coordinate), exists);
        };
        const std::function<void(Code&, int, const Bases&, const Expr&)> over =
            [&](Code& code, int axis, const Bases& at, const Expr& place) {
            const Expr& extent = operands_.extent(axis);
            const Expr first = code.let("place", place * extent);
            if (axis + 1 < kernel_.rank)
                return code.loop(extent, [&](Code& inner, const Expr& index) {
                    over(inner, axis + 1, operands_.moved(inner, at, axis, index),
                         inner.let("place", first + index));
                });
            const Expr count =
                code.let("count", (extent - part_ + (team_.parts - 1)) / team_.parts);
            code.loop((count + (kChain - 1)) / kChain, [&](Code& inner, const Expr& group) {
                for (const Reducer& reducer : reducers) reducer.start_chains(inner);
                const Expr from = inner.let("from", group * kChain);
                inner.loop(min(count - from, kChain), [&](Code& each, const Expr& index) {
                    take_last(each, at, first, each.let("index", from + index));
                });
                for (const Reducer& reducer : reducers) reducer.end_chains(inner);
            });
        };
        over(code_, kernel_.kept(), bases, make_zero(Halide::Int(64)));
        Expr count = make_one(Halide::Int(64));
        for (int axis = kernel_.kept(); axis < kernel_.rank; ++axis)
            count = count * operands_.extent(axis);
        for (size_t r = 0; r < reducers.size(); ++r)
            body_.set_reduced(static_cast<size_t>(walk.reductions[r].reduction),
                              reducers[r].result(code_, of_all_parts(reducers[r]), count));
    }

    void take(Code& code, const RowWalk& walk, const std::vector<Reducer>& reducers,
              const Bases& bases, const Expr& place, const Expr& exists) {
        const Piece here{.at = make_zero(Halide::Int(64))};
        body_.emit(code, bases, here, walk.elements);
        for (size_t r = 0; r < reducers.size(); ++r)
            reducers[r].take(code, body_.value(walk.reductions[r].arg), cast<int32_t>(place),
                             Expr());
        Code stores = code.inside();
        for (const size_t k : walk.outputs)
            operands_.store(stores, k, bases, here, body_.result(k));
        code.when(exists, std::move(stores));
    }

    // The threads' states merged in a tree, through words of shared memory that no other merge
    // uses.
    Reducer::State of_all_parts(const Reducer& reducer) {
        Reducer::State state = reducer.load(code_);
        if (team_.parts == 1) return state;
        const int threads = team_.threads();
        int first = shared_words_;
        const auto words_of = [](const Expr& value) { return value.type().bits() / 32; };
        for (const Expr& value : state) shared_words_ += words_of(value) * threads;
        const auto place = [&](const Expr& thread, int word) {
            return thread + (first + word * threads);
        };
        const auto put = [&](Code& code, const Reducer::State& values) {
            int word = 0;
            for (const Expr& value : values)
                for (int w = 0; w < words_of(value); ++w)
                    code.add(Store::make(kShared, word_of(value, w), place(thread_, word++),
                                         Halide::Parameter(), const_true(), ModulusRemainder()));
        };
        const auto get = [&](Code& code, const Expr& thread) {
            Reducer::State values;
            int word = 0;
            for (const Expr& like : state) {
                std::vector<Expr> words;
                for (int w = 0; w < words_of(like); ++w)
                    words.push_back(code.let(
                        "word", Load::make(Halide::Int(32), kShared, place(thread, word++), {},
                                           Halide::Parameter(), const_true(), ModulusRemainder())));
                values.push_back(code.let("shared", of_words(like.type(), words)));
            }
            return values;
        };
        put(code_, state);
        for (int half = team_.parts / 2; half > 0; half /= 2) {
            barrier();
            Code lower = code_.inside();
            const Reducer::State merged = reducer.merged(
                lower, get(lower, thread_), get(lower, thread_ + half * team_.columns));
            put(lower, merged);
            code_.when(part_ < half, std::move(lower));
        }
        barrier();
        return get(code_, thread_ % team_.columns);
    }

    // Shared memory has words of 32 bits.
    static Expr word_of(const Expr& value, int number) {
        if (value.type().bits() == 32) return Reinterpret::make(Halide::Int(32), value);
        const Expr bits = Reinterpret::make(Halide::UInt(64), value);
        return Reinterpret::make(Halide::Int(32), cast<uint32_t>(bits >> (32 * number)));
    }
    static Expr of_words(const Halide::Type& type, const std::vector<Expr>& words) {
        if (words.size() == 1) return Reinterpret::make(type, words[0]);
        const auto bits = [&](size_t w) {
            return cast<uint64_t>(Reinterpret::make(Halide::UInt(32), words[w]));
        };
        return Reinterpret::make(type, bits(0) | (bits(1) << 32));
    }

    void barrier() {
        code_.add(Evaluate::make(Call::make(
            Halide::Int(32), Call::gpu_thread_barrier,
            {Expr(static_cast<int>(CodeGen_GPU_Dev::MemoryFenceType::Shared))}, Call::Intrinsic)));
    }

    const KernelIR& kernel_;
    Team team_;
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
