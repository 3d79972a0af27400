#include "backends/halide/emit.h"

#include <algorithm>

#include "backends/halide/code.h"
#include "backends/halide/emit_scalar.h"
#include "runtime/host/error.h"

namespace megjit::halide_backend {
namespace {

using namespace Halide::Internal;
using codegen::loops::Function;
using codegen::loops::Inst;
using codegen::loops::Kind;
using codegen::loops::Op;
using codegen::loops::Where;
using Halide::Type;
using runtime::cat;
namespace loops = codegen::loops;

// To Halide, all memory is one array named "memory", whose address each access sets by a let:
// arrays of different names may not overlap, but an output may lie on an input.
constexpr char kMemory[] = "memory";
constexpr char kShared[] = "shared";  // words of the block's shared memory: the only such array

Expr i64(int64_t value) { return make_const(Halide::Int(64), value); }
Expr everywhere(int lanes) { return const_true(lanes); }
Expr neighbors(const Expr& first, int lanes) {
    return lanes == 1 ? first : Ramp::make(first, make_one(first.type()), lanes);
}

class LoopEmitter {
public:
    LoopEmitter(const Function& function, Code& code)
        : function_(function), values_(function.values.size()), pointers_(function.values.size()) {
        for (const Function::Room& room : function.rooms) {
            const Kind kind = type_of(room.value).kind;
            Pointer& to = pointers_[static_cast<size_t>(room.value)];
            to.offset = i64(room.is_shared ? shared_bytes_ / loops::bytes_of(kind) : 0);
            to.array = room.is_shared ? kShared
                                      : code.allocate("room", memory_type(kind, room.lanes),
                                                      static_cast<int>(room.elements));
            if (room.is_shared)
                shared_bytes_ += std::max<int64_t>(room.elements * loops::bytes_of(kind), 8);
        }
    }

    int64_t shared_bytes() const { return shared_bytes_; }
    // Sets the value of a parameter: an address, or a number.
    void set_parameter(int id, const Expr& value) {
        if (type_of(id).is_pointer) pointers_[static_cast<size_t>(id)] = {kMemory, value, i64(0)};
        else values_[static_cast<size_t>(id)] = value;
    }
    void emit(Code& code, const Expr& opaque_zero) {
        opaque_zero_ = opaque_zero;
        emit_block(code, function_.body);
    }

private:
    struct Pointer {
        std::string array;
        Expr base;  // used where the array is kMemory
        Expr offset;  // i64, in elements
    };
    struct Cell {  // a variable on the stack that a loop or a branch changes
        std::string name;
        loops::Type type;
    };

    const loops::Type& type_of(int id) const { return function_.type_of(id); }
    Expr value(int id) const {
        const Function::Known& known = function_.values[static_cast<size_t>(id)];
        return known.is_constant ? constant(known.type, known.bits)
                                 : values_[static_cast<size_t>(id)];
    }
    const Pointer& pointer(int id) const { return pointers_[static_cast<size_t>(id)]; }
    void set(Code& code, int id, const Expr& value) {
        values_[static_cast<size_t>(id)] = code.let("v", value);
    }

    void emit_block(Code& code, const loops::Block& block) {
        for (const Inst& inst : block.insts) emit_inst(code, inst);
    }

    void emit_inst(Code& code, const Inst& inst) {
        switch (inst.op) {
            case Op::loop: return emit_loop(code, inst);
            case Op::choose: return emit_choose(code, inst);
            case Op::store:
                return store(code, inst.args[0], pointer(inst.args[0]).offset, inst.args[1],
                             inst.args.size() > 2 ? value(inst.args[2]) : Expr(), true);
            case Op::scatter:
                return store(code, inst.args[0], places(inst.args[0], inst.args[1]), inst.args[2],
                             inst.args.size() > 3 ? value(inst.args[3]) : Expr(), false);
            case Op::barrier: return code.add(Evaluate::make(barrier()));
            case Op::at: {
                Pointer to = pointer(inst.args[0]);
                to.offset = code.let("at", to.offset + value(inst.args[1]));
                pointers_[static_cast<size_t>(inst.results[0])] = to;
                return;
            }
            default: set(code, inst.results[0], result_of(inst));
        }
    }

    Expr result_of(const Inst& inst) const {
        const loops::Type type = type_of(inst.results[0]);
        const Type to = halide_backend::type_of(type);
        std::vector<Expr> v;
        for (const int id : inst.args) v.push_back(type_of(id).is_pointer ? Expr() : value(id));
        const auto number = static_cast<int>(inst.number);
        switch (inst.op) {
            case Op::compute:
                if (inst.compute == runtime::ScalarOp::narrow)
                    return widened(inst.dtype, shorten(inst.dtype, v[0]));
                return compute(inst.compute, type_of(inst.args[0]).kind, v);
            case Op::convert: return convert(to, v[0]);
            case Op::bits: return Reinterpret::make(to, v[0]);
            case Op::fence: return fenced(v[0], opaque_zero_);
            case Op::widen: return widened(inst.dtype, v[0]);
            case Op::shorten: return shorten(inst.dtype, v[0]);
            case Op::lanes:
                return neighbors(make_zero(halide_backend::type_of({type.kind})), type.lanes);
            case Op::splat: return Broadcast::make(v[0], type.lanes);
            case Op::lane: return Shuffle::make_extract_element(v[0], number);
            case Op::half: return Shuffle::make_slice(v[0], number * type.lanes, 1, type.lanes);
            case Op::zip: return zipped(v, type.lanes, number);
            case Op::load: return load(inst, type);
            case Op::gather:
                return element(inst.args[0], type, places(inst.args[0], inst.args[1]),
                               everywhere(type.lanes));
            case Op::thread: return thread(static_cast<Where>(inst.number));
            case Op::from_thread:
                return Call::make(to, "llvm.nvvm.shfl.sync.bfly.i32",
                                  {Expr(-1), v[0], Expr(number), Expr(31)}, Call::Extern);
            default:
                throw runtime::InternalError(cat("HALIDE: ", name_of(inst.op), " is not printed"));
        }
    }

    static Expr zipped(const std::vector<Expr>& both, int lanes, int number) {
        std::vector<int> places;
        for (int lane = 0; lane < lanes; ++lane)
            places.push_back(static_cast<int>(loops::zipped_from(lane, lanes, number)));
        return Shuffle::make(both, places);
    }

    // LLVM moves comparisons before the widening of a half, where they lose the sign of 0; a fence
    // prevents that.
    Expr widened(runtime::DType dtype, const Expr& stored) const {
        const Expr wide = widen(dtype, stored);
        return dtype == runtime::DType::f16 ? fenced(wide, opaque_zero_) : wide;
    }

    // ---- memory ----
    Expr places(int pointer_id, int offsets) const {
        const Expr lanes = value(offsets), first = pointer(pointer_id).offset;
        const int count = lanes.type().lanes();
        return Add::make(count == 1 ? first : Broadcast::make(first, count), lanes);
    }
    Expr element(int pointer_id, loops::Type type, const Expr& index, const Expr& mask) const {
        const Pointer& from = pointer(pointer_id);
        const Expr loaded = Load::make(memory_type(type.kind, type.lanes), from.array, index, {},
                                       Halide::Parameter(), mask, ModulusRemainder());
        const Expr there = from.base.defined() ? Let::make(kMemory, from.base, loaded) : loaded;
        return type.kind == Kind::b1 ? Cast::make(halide_backend::type_of(type), there) : there;
    }
    Expr load(const Inst& inst, loops::Type type) const {
        const Expr index = neighbors(pointer(inst.args[0]).offset, type.lanes);
        if (inst.args.size() == 1)
            return element(inst.args[0], type, index, everywhere(type.lanes));
        const Expr mask = value(inst.args[1]);
        return Select::make(mask, element(inst.args[0], type, index, mask), constant(type, 0));
    }
    void store(Code& code, int pointer_id, const Expr& index, int from, const Expr& mask,
               bool is_dense) {
        const Pointer& to = pointer(pointer_id);
        const loops::Type type = type_of(from);
        const Expr stored = Cast::make(memory_type(type.kind, type.lanes), value(from));
        const Stmt statement = Store::make(
            to.array, stored, is_dense ? neighbors(index, type.lanes) : index, Halide::Parameter(),
            mask.defined() ? mask : everywhere(type.lanes), ModulusRemainder());
        code.add(to.base.defined() ? LetStmt::make(kMemory, to.base, statement) : statement);
    }

    // ---- control ----
    std::vector<Cell> cells_for(Code& code, const std::vector<int>& ids) {
        std::vector<Cell> cells;
        for (const int id : ids) {
            const loops::Type type = type_of(id);
            cells.push_back(
                {code.allocate("cell", memory_type(type.kind, type.lanes), type.lanes), type});
        }
        return cells;
    }
    void put(Code& code, const std::vector<Cell>& cells, std::span<const int> ids) {
        for (size_t c = 0; c < cells.size(); ++c) {
            const loops::Type type = cells[c].type;
            code.add(Store::make(cells[c].name,
                                 Cast::make(memory_type(type.kind, type.lanes), value(ids[c])),
                                 neighbors(Expr(0), type.lanes), Halide::Parameter(),
                                 everywhere(type.lanes), ModulusRemainder()));
        }
    }
    void get(Code& code, const std::vector<Cell>& cells, std::span<const int> ids) {
        for (size_t c = 0; c < cells.size(); ++c) {
            const loops::Type type = cells[c].type;
            const Expr loaded = Load::make(memory_type(type.kind, type.lanes), cells[c].name,
                                           neighbors(Expr(0), type.lanes), {}, Halide::Parameter(),
                                           everywhere(type.lanes), ModulusRemainder());
            set(code, ids[c],
                type.kind == Kind::b1 ? Cast::make(halide_backend::type_of(type), loaded) : loaded);
        }
    }

    void emit_loop(Code& code, const Inst& inst) {
        const loops::Block& body = inst.blocks[0];
        const std::span<const int> start = std::span(inst.args).subspan(3);
        const std::span<const int> state = std::span(body.parameters).subspan(1);
        const std::vector<Cell> cells = cells_for(code, inst.results);
        put(code, cells, start);
        const Expr from = value(inst.args[0]), to = value(inst.args[1]), step = value(inst.args[2]);
        const Expr count = code.let("count", (to - from + step - 1) / step);
        code.loop(count, [&](Code& inner, const Expr& index) {
            set(inner, body.parameters[0], from + index * step);
            get(inner, cells, state);
            emit_block(inner, body);
            put(inner, cells, body.results);
        });
        get(code, cells, inst.results);
    }

    // Does a branch only compute numbers? Then both arms may be computed.
    static bool is_pure(const loops::Block& block) {
        return std::ranges::all_of(
            block.insts, [](const Inst& inst) { return inst.op <= Op::zip && inst.op != Op::at; });
    }

    void emit_choose(Code& code, const Inst& inst) {
        const Expr condition = value(inst.args[0]);
        const loops::Block &first = inst.blocks[0], &second = inst.blocks[1];
        if (!inst.results.empty() && is_pure(first) && is_pure(second)) {
            emit_block(code, first);
            emit_block(code, second);
            for (size_t r = 0; r < inst.results.size(); ++r) {
                const int lanes = type_of(inst.results[r]).lanes;
                set(code, inst.results[r],
                    Select::make(lanes == 1 ? condition : Broadcast::make(condition, lanes),
                                 value(first.results[r]), value(second.results[r])));
            }
            return;
        }
        const std::vector<Cell> cells = cells_for(code, inst.results);
        const auto arm = [&](const loops::Block& block) {
            Code inner = code.inside();
            emit_block(inner, block);
            put(inner, cells, block.results);
            return inner.finish();
        };
        Stmt then = arm(first), otherwise = arm(second);
        if (!then.defined()) then = Evaluate::make(0);
        code.add(IfThenElse::make(condition, then, otherwise));
        get(code, cells, inst.results);
    }

    // ---- threads ----
    static Expr thread(Where where) {
        const auto own = [](const std::string& name) {
            return Cast::make(Halide::Int(64), Variable::make(Halide::Int(32), name));
        };
        switch (where) {
            case Where::thread: return own("t" + gpu_thread_name(0));
            case Where::block: return own("b" + gpu_block_name(0));
            case Where::blocks:
                return Cast::make(Halide::Int(64),
                                  Call::make(Halide::Int(32), "llvm.nvvm.read.ptx.sreg.nctaid.x",
                                             {}, Call::PureExtern));
            case Where::part: break;
        }
        throw runtime::InternalError("HALIDE: blocks share no rows");
    }
    static Expr barrier() {  // for the block, which is one team
        return Call::make(Halide::Int(32), Call::gpu_thread_barrier,
                          {Expr(static_cast<int>(CodeGen_GPU_Dev::MemoryFenceType::Shared))},
                          Call::Intrinsic);
    }

    const Function& function_;
    std::vector<Expr> values_;
    std::vector<Pointer> pointers_;
    int64_t shared_bytes_ = 0;
    Expr opaque_zero_;
};

// Halide lets LLVM contract products and sums for a GPU, except for products with an explicit
// rounding. LLVM has no fmod of its own there; libdevice's for f32 takes denormals for zero, and
// the one for f64 is exact for f32, too.
class ForPtx final : public IRMutator {
    using IRMutator::visit;
    Expr visit(const Call* call) override {
        const Expr changed = IRMutator::visit(call);
        const Call* op = changed.as<Call>();
        if (op->is_intrinsic(Call::strict_mul) && op->type.is_scalar())
            return Call::make(op->type,
                              op->type.bits() == 64 ? "llvm.nvvm.mul.rn.d" : "llvm.nvvm.mul.rn.f",
                              op->args, Call::PureExtern);
        if (op->name == "fmod")
            return Call::make(op->type, "__nv_fmod", op->args, Call::PureExtern);
        if (op->name != "fmodf") return changed;
        const Type f64 = Halide::Float(64);
        return Cast::make(op->type,
                          Call::make(f64, "__nv_fmod",
                                     {Cast::make(f64, op->args[0]), Cast::make(f64, op->args[1])},
                                     Call::PureExtern));
    }
};

}  // namespace

LoweredFunc emit(const codegen::KernelIR& kernel, int width) {
    const Function function = loops::loops_of(
        kernel, {.width = width, .registers = width >= 16 ? 32 : 16, .divides = false});
    int serial = 0;
    Code code(serial);
    LoopEmitter emitter(function, code);
    // Inputs, outputs, extents and strides have an array each; then comes the range of units.
    constexpr const char* kArrays[] = {"inputs", "outputs", "extents", "strides"};
    const size_t counts[] = {memory_inputs(kernel), kernel.outputs.size(),
                             static_cast<size_t>(kernel.rank)};
    size_t array = 0, place = 0;
    const size_t numbers = function.parameters.size() - 2;
    for (size_t p = 0; p < numbers; ++p) {
        for (; array < 3 && place == counts[array]; place = 0) ++array;
        const Type type = array < 2 ? Halide::Handle() : Halide::Int(64);
        const Expr loaded = Load::make(type, kArrays[array], i64(static_cast<int64_t>(place++)), {},
                                       Halide::Parameter(), const_true(), ModulusRemainder());
        emitter.set_parameter(function.parameters[p], code.let(kArrays[array], loaded));
    }
    const Expr lo = Variable::make(Halide::Int(64), "lo"),
               hi = Variable::make(Halide::Int(64), "hi");
    emitter.set_parameter(function.parameters[numbers], lo);
    emitter.set_parameter(function.parameters[numbers + 1], hi);
    emitter.emit(code, code.let("zero", Halide::cast<int32_t>(hi >> 63)));
    Stmt body = code.finish();
    if (!body.defined()) body = Evaluate::make(0);

    std::vector<LoweredArgument> arguments;
    const auto add = [&](const char* name, const Type& type) {
        arguments.emplace_back(name, Halide::Argument::InputScalar, type, 0,
                               Halide::ArgumentEstimates{});
    };
    for (const char* name : kArrays) add(name, Halide::Handle());
    for (const char* name : {"lo", "hi"}) add(name, Halide::Int(64));
    return {kKernelSymbol, arguments, body, Halide::LinkageType::External, Halide::NameMangling::C};
}

GpuKernel emit_gpu(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan) {
    const Function function =
        loops::loops_of(kernel, {.width = plan.vector, .divides = false, .gpu = plan});
    int serial = 0;
    Code code(serial);
    LoopEmitter emitter(function, code);
    GpuKernel result;
    Expr extent;
    for (const int id : function.parameters) {
        // The dot distinguishes these names from those of lets.
        const std::string name = cat("parameter.", id);
        const bool is_pointer = function.type_of(id).is_pointer;
        const Type type = is_pointer ? Halide::UInt(64) : Halide::Int(64);
        const Expr own = Variable::make(type, name);
        if (!is_pointer && !extent.defined()) extent = own;
        emitter.set_parameter(id, is_pointer ? Reinterpret::make(Halide::Handle(), own) : own);
        result.arguments.emplace_back(name, false, Halide::MemoryType::Auto, type, 0);
    }
    emitter.emit(code, code.let("zero", Halide::cast<int32_t>(extent >> 63)));
    Stmt body = ForPtx().mutate(code.finish());
    if (const auto words = static_cast<int>(emitter.shared_bytes() / 4); words > 0)
        body = Allocate::make(kShared, Halide::Int(32), Halide::MemoryType::GPUShared,
                              {Expr(words)}, const_true(), body);
    const auto simt = [](const std::string& name, ForType type, Stmt inner) {
        return For::make(name, 0, 1, type, Halide::Partition::Never, Halide::DeviceAPI::CUDA,
                         std::move(inner));  // the launch gives the extents
    };
    body = simt("t" + gpu_thread_name(0), ForType::GPUThread, std::move(body));
    result.body = simt("b" + gpu_block_name(0), ForType::GPUBlock, std::move(body));
    return result;
}

}  // namespace megjit::halide_backend
