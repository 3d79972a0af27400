// Element-wise kernels. Rank 1: one run over lo..hi. Rank above 1: for every row lo..hi one run
// over the innermost axis.
//
// A run is a loop over whole vectors and one masked vector for the rest; the body of long programs
// is written once, and branches where it reads and writes. (Masks for all vectors would be simpler,
// but masked loads and stores cost Zen 5 five times the time on data in memory.)
#include <numeric>

#include "codegen/loops/frame.h"
#include "codegen/tiles.h"
#include "runtime/host/error.h"

namespace megjit::codegen::loops {
namespace {

using runtime::ScalarInst;

// For each instruction: does it have one value for a whole run?
std::vector<bool> uniform_in_a_run(const KernelIR& kernel) {
    const auto is_still = [](const Operand& input) { return input.inner == Inner::broadcast; };
    std::vector<bool> uniform;
    for (const ScalarInst& inst : kernel.program.insts()) {
        bool same = true;
        if (inst.op == ScalarOp::input) {
            const Operand& input = kernel.inputs[inst.bits];
            same = is_still(input) &&
                   (input.by < 0 || is_still(kernel.inputs[static_cast<size_t>(input.by)]));
        }
        for (int k = 0; k < runtime::arity_of(inst.op); ++k)
            same = same && uniform[static_cast<size_t>(inst.args[k])];
        uniform.push_back(same);
    }
    return uniform;
}

class ElementWriter {
public:
    explicit ElementWriter(Frame& frame)
        : f_(frame),
          b_(frame.b),
          values_(static_cast<size_t>(frame.kernel.program.size())),
          outputs_(frame.kernel.outputs.size()) {
        const std::vector<bool> uniform = uniform_in_a_run(f_.kernel);
        for (int id = 0; id < f_.kernel.program.size(); ++id)
            (uniform[static_cast<size_t>(id)] ? uniform_ : varying_).push_back(id);
        std::iota(outputs_.begin(), outputs_.end(), 0);
    }

    void write() {
        f_.decide_to_stream();
        if (f_.kernel.rank == 1) write_run(f_.bases, f_.lo, f_.hi);
        else write_rows_of_elements();
        f_.end_streams();
    }

    // Code for threads of a GPU: each takes `width` neighbors, then those one grid further on, and
    // so on.
    void write_team() {
        const size_t inputs = f_.kernel.inputs.size();
        const int rank = f_.kernel.rank;
        const Value count = f_.product(0, rank), threads = b_.index(f_.target.gpu->threads),
                    step = b_.index(f_.width);
        const Value thread = b_.where(Where::thread);
        const Value from = b_.mul(b_.add(b_.mul(f_.block, threads), thread), step);
        b_.loop(from, count, b_.mul(b_.mul(f_.blocks, threads), step), {},
                [&](Value at, const Values&) {
            const Frame::Place place = f_.place_of(f_.bases, 0, rank, at);
            const Value row = b_.sub(at, place.last);  // outputs are row-major
            const Values bases = f_.gathered(
                f_.moved(place.bases, [&](size_t i) { return i < inputs ? Value() : row; }));
            // Rows of higher ranks consist of whole vectors.
            const bool has_tail = rank == 1 && f_.width > 1;
            f_.evaluate(uniform_, bases, {place.last}, values_);
            write_piece(bases,
                        has_tail ? f_.either(place.last, b_.sub(count, at)) : Piece{place.last});
            return Values();
        });
    }

private:
    void write_rows_of_elements() {
        const size_t inputs = f_.kernel.inputs.size(), outer = f_.extents.size() - 1;
        std::vector<UnitAxis> axes;
        for (size_t axis = 0; axis < outer; ++axis) {
            axes.push_back({f_.extents[axis], Values(f_.bases.size())});
            for (size_t i = 0; i < inputs; ++i) axes.back().strides[i] = f_.strides[i][axis];
        }
        for_units(f_, axes, [&](Value row, Value, const Values& bases) {
            const Value start = b_.mul(row, f_.extents.back());  // outputs are row-major
            write_run(f_.moved(bases, [&](size_t i) { return i < inputs ? Value() : start; }),
                      b_.index(0), f_.extents.back());
        });
    }

    void write_run(const Values& start, Value from, Value to) {
        const Values bases = f_.gathered(start);
        const int width = f_.width;
        f_.evaluate(uniform_, bases, {from}, values_);
        const Value passes = f_.passes_caches(outputs_, bases, from);
        if (f_.target.schedule.is_long(static_cast<size_t>(f_.kernel.program.size()))) {
            b_.loop(from, to, width, {}, [&](Value at, const Values&) {
                Piece piece = f_.either(at, b_.sub(to, at));
                piece.passes = passes;
                write_piece(bases, piece);
                return Values();
            });
            return;
        }
        const Value rest = b_.mod(b_.sub(to, from), b_.index(width));
        const Value whole_end = b_.sub(to, rest);
        b_.loop(from, whole_end, width, {}, [&](Value at, const Values&) {
            write_piece(bases, {.at = at, .passes = passes});
            return Values();
        });
        b_.branch(b_.less(b_.index(0), rest),
                  [&] { write_piece(bases, f_.partial(whole_end, rest)); });
    }

    void write_piece(const Values& bases, const Piece& piece) {
        f_.evaluate(varying_, bases, std::span(&piece, 1), std::span(&values_, 1));
        f_.store(outputs_, bases, piece, values_);
    }

    Frame& f_;
    Builder& b_;
    Values values_;  // for each instruction, its value in the current piece
    std::vector<int> uniform_, varying_;
    std::vector<size_t> outputs_;
};

}  // namespace

void write_elements(Frame& frame) { ElementWriter(frame).write(); }
void write_team_elements(Frame& frame) { ElementWriter(frame).write_team(); }

static Function sound(Function function) {
    if (const std::string fault = fault_of(function); !fault.empty())
        throw runtime::InternalError(runtime::cat("unsound loops: ", fault, "\n", print(function)));
    return function;
}

// Counts the vectors that go through a long element-wise body together: in 16 registers the values
// of four have room where there are few operands, and a very long body takes long to compile.
static int vectors_at_once(const KernelIR& kernel, const Target& target) {
    const int size = kernel.program.size(), all = target.schedule.vectors_at_once;
    if (size < target.schedule.long_chain) return 1;
    const bool has_room =
        target.registers >= 32 || memory_inputs(kernel) + kernel.outputs.size() <= 3;
    return has_room && size < 2 * target.schedule.long_body ? all : (all + 1) / 2;
}

Function loops_of(const KernelIR& kernel, const Target& wanted) {
    Target target = wanted;
    if (target.gpu) target.width = target.gpu->vector;
    else if (kernel.reduced == 0 && kernel.rank == 1)
        target.width *= vectors_at_once(kernel, target);
    Builder b;
    Frame frame(b, kernel, target);
    if (target.gpu) {
        if (kernel.reduced == 0) write_team_elements(frame);
        else if (target.gpu->cover == Cover::tiles) write_team_tiles(frame);
        else write_team_rows(frame);
        Function function = sound(b.finish());
        if (const size_t count = function.parameters.size(); count > kMaxGpuParameters)
            throw runtime::DeviceError(runtime::cat(
                "a kernel has ", count, " parameters; a GPU takes ", kMaxGpuParameters));
        return function;
    }
    // Where there is nothing to do no operand is touched, not even a broadcast one.
    Value some = b.less(frame.lo, frame.hi);
    if (kernel.reduced == 0) some = b.both(some, b.less(b.index(0), frame.extents.back()));
    b.branch(some, [&] {
        if (kernel.reduced == 0) write_elements(frame);
        else if (has_dot_rows(kernel)) write_dots(frame);
        else if (kernel.lanes == Lanes::last) write_rows(frame);
        else if (kernel.lanes == Lanes::tiles) write_tiles(frame);
        else if (kernel.lanes == Lanes::panels) write_panels(frame);
        else write_columns(frame);
    });
    return sound(b.finish());
}

}  // namespace megjit::codegen::loops
