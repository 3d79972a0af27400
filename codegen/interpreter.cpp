// The interpreter. It runs the loops that emitters print (codegen/loops), one instruction after the
// other, one lane after the other, following the text of scalar.h: it takes the scalar program
// itself, not its legal form for a target. tests/codegen checks the loops themselves against a walk
// over elements.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen/loops/loops.h"
#include "codegen/scalar_oracle.h"
#include "runtime/host/error.h"

namespace megjit::codegen {
namespace loops {
namespace {

using namespace runtime;

// Cells of 64 bits: f32 and integers of up to 32 bits in the lower half; pointers are addresses.
class Machine {
public:
    explicit Machine(const Function& function) : function_(function) {
        size_t cells = 0;
        for (const Function::Known& value : function.values) {
            start_.push_back(cells);
            cells += static_cast<size_t>(value.type.lanes);
        }
        cells_.resize(cells);
        for (size_t id = 0; id < function.values.size(); ++id)
            if (const Function::Known& value = function.values[id]; value.is_constant)
                std::fill_n(cells_.begin() + static_cast<ptrdiff_t>(start_[id]), value.type.lanes,
                            value.bits);
        for (const Function::Room& room : function.rooms) {
            const size_t bytes =
                static_cast<size_t>(room.elements * bytes_of(function.type_of(room.value).kind));
            rooms_.emplace_back(bytes);
            *cell(room.value) = reinterpret_cast<uint64_t>(rooms_.back().data());
        }
    }

    void run(const std::vector<uint64_t>& arguments) {
        if (arguments.size() != function_.parameters.size())
            throw InternalError(cat("interpreter: ", arguments.size(), " numbers for ",
                                    function_.parameters.size(), " parameters"));
        for (size_t p = 0; p < arguments.size(); ++p) *cell(function_.parameters[p]) = arguments[p];
        run_block(function_.body);
    }

private:
    uint64_t* cell(int value) { return &cells_[start_[static_cast<size_t>(value)]]; }
    const Type& type_of(int value) const { return function_.type_of(value); }

    void copy(const std::vector<int>& from, const int* to) {
        std::vector<uint64_t> all;  // a copy first, for a source may also be a target
        for (const int id : from) all.insert(all.end(), cell(id), cell(id) + type_of(id).lanes);
        const uint64_t* next = all.data();
        for (size_t n = 0; n < from.size(); ++n) {
            const int lanes = type_of(from[n]).lanes;
            std::copy_n(next, lanes, cell(to[n]));
            next += lanes;
        }
    }

    void run_block(const Block& block) {
        for (const Inst& inst : block.insts) run_inst(inst);
    }

    void run_loop(const Inst& inst) {
        const Block& body = inst.blocks[0];
        const auto from = static_cast<int64_t>(*cell(inst.args[0])),
                   to = static_cast<int64_t>(*cell(inst.args[1])),
                   step = static_cast<int64_t>(*cell(inst.args[2]));
        copy({inst.args.begin() + 3, inst.args.end()}, body.parameters.data() + 1);
        if (step < 1) throw InternalError("interpreter: a loop never ends");
        for (int64_t at = from; at < to; at += step) {
            *cell(body.parameters[0]) = static_cast<uint64_t>(at);
            run_block(body);
            copy(body.results, body.parameters.data() + 1);
        }
        copy({body.parameters.begin() + 1, body.parameters.end()}, inst.results.data());
    }

    void run_inst(const Inst& inst) {
        switch (inst.op) {
            case Op::loop: return run_loop(inst);
            case Op::choose: {
                const Block& taken = inst.blocks[*cell(inst.args[0]) ? 0 : 1];
                run_block(taken);
                return copy(taken.results, inst.results.data());
            }
            case Op::store: {
                const int lanes = type_of(inst.args[1]).lanes;
                for (int lane = 0; lane < lanes; ++lane)
                    if (inst.args.size() < 3 || cell(inst.args[2])[lane])
                        write(inst.args[0], lane, cell(inst.args[1])[lane]);
                return;
            }
            case Op::scatter: {
                const int lanes = type_of(inst.args[2]).lanes;
                for (int lane = 0; lane < lanes; ++lane)
                    if (inst.args.size() < 4 || cell(inst.args[3])[lane])
                        write(inst.args[0], static_cast<int64_t>(cell(inst.args[1])[lane]),
                              cell(inst.args[2])[lane]);
                return;
            }
            case Op::publish: return;  // there is one thread
            default: break;
        }
        const int result = inst.results.at(0);
        for (int lane = 0; lane < type_of(result).lanes; ++lane)
            cell(result)[lane] = lane_of(inst, lane);
    }

    uint64_t lane_of(const Inst& inst, int lane) {
        const auto arg = [&](size_t n) { return cell(inst.args[n])[lane]; };
        const Kind kind = type_of(inst.results[0]).kind;
        switch (inst.op) {
            case Op::compute: return computed(inst, lane);
            case Op::convert: {
                const uint64_t given[3] = {arg(0), 0, 0};
                return evaluate(ScalarOp::cast, scalar_of(type_of(inst.args[0]).kind),
                                scalar_of(kind), {}, given);
            }
            case Op::bits:
            case Op::address:
            case Op::fence: return arg(0);
            case Op::widen: return widened(inst.dtype, arg(0));
            case Op::shorten: return shortened(inst.dtype, arg(0));
            case Op::lanes: return static_cast<uint64_t>(lane);
            case Op::splat: return *cell(inst.args[0]);
            case Op::lane: return cell(inst.args[0])[inst.number];
            case Op::half:
                return cell(inst.args[0])[lane + inst.number * type_of(inst.results[0]).lanes];
            case Op::zip: {
                const int lanes = type_of(inst.results[0]).lanes;
                const auto from = static_cast<size_t>(zipped_from(lane, lanes, inst.number)),
                           many = static_cast<size_t>(lanes);
                return cell(inst.args[from / many])[from % many];
            }
            case Op::at:
                return arg(0) +
                       arg(1) * static_cast<uint64_t>(bytes_of(type_of(inst.args[0]).kind));
            case Op::load:
                if (inst.args.size() > 1 && !arg(1)) return 0;
                return read(inst.args[0], lane);
            case Op::gather: return read(inst.args[0], static_cast<int64_t>(arg(1)));
            default: throw InternalError(cat("interpreter: ", name_of(inst.op), " is a GPU's"));
        }
    }

    uint64_t read(int pointer, int64_t element) {
        const int bytes = bytes_of(type_of(pointer).kind);
        uint64_t value = 0;
        std::memcpy(&value, reinterpret_cast<const char*>(*cell(pointer)) + element * bytes,
                    static_cast<size_t>(bytes));
        return value;
    }
    void write(int pointer, int64_t element, uint64_t value) {
        const int bytes = bytes_of(type_of(pointer).kind);
        std::memcpy(reinterpret_cast<char*>(*cell(pointer)) + element * bytes, &value,
                    static_cast<size_t>(bytes));
    }

    uint64_t computed(const Inst& inst, int lane) {
        uint64_t v[3] = {0, 0, 0};
        for (size_t n = 0; n < inst.args.size(); ++n) v[n] = cell(inst.args[n])[lane];
        const ScalarType taken = scalar_of(type_of(inst.args[0]).kind),
                         gives = scalar_of(type_of(inst.results[0]).kind);
        if (taken == ScalarType::i64 &&
            (inst.compute == ScalarOp::div || inst.compute == ScalarOp::mod)) {
            if (v[1] == 0) throw InternalError("interpreter: an index is divided by 0");
            return inst.compute == ScalarOp::div ? v[0] / v[1] : v[0] % v[1];
        }
        return evaluate(inst.compute, taken, gives, inst.dtype, v);
    }

    static ScalarType scalar_of(Kind kind) {
        switch (kind) {
            case Kind::b1: return ScalarType::b1;
            case Kind::i8:
            case Kind::i16:
            case Kind::i32: return ScalarType::i32;
            case Kind::i64:
            case Kind::index: return ScalarType::i64;
            case Kind::f32: return ScalarType::f32;
            case Kind::f64: return ScalarType::f64;
        }
        return ScalarType::i64;
    }

    const Function& function_;
    std::vector<size_t> start_;  // for each value: its first cell
    std::vector<uint64_t> cells_;
    std::vector<std::vector<char>> rooms_;
};

}  // namespace

void run(const Function& function, const std::vector<uint64_t>& arguments) {
    Machine(function).run(arguments);
}

}  // namespace loops

void interpret(const KernelIR& kernel, const LaunchShape& launch, void* const* inputs,
               void* const* outputs) {
    std::vector<uint64_t> arguments;
    const auto add = [&](const auto* from, size_t count) {
        for (size_t n = 0; n < count; ++n) arguments.push_back(std::bit_cast<uint64_t>(from[n]));
    };
    add(inputs, memory_inputs(kernel));
    add(outputs, kernel.outputs.size());
    add(launch.extents.data(), launch.extents.size());
    add(launch.strides.data(), launch.strides.size());
    const int64_t range[] = {0, units(kernel, launch)};
    add(range, 2);
    loops::run(loops::loops_of(kernel, {}), arguments);
}

}  // namespace megjit::codegen
