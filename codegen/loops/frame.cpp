#include "codegen/loops/frame.h"

namespace megjit::codegen::loops {

using runtime::ScalarInst;

Frame::Frame(Builder& builder, const KernelIR& kernel_ir, const Target& what)
    : b(builder),
      kernel(kernel_ir),
      target(what),
      width(what.width),
      is_aligned(what.gpu.has_value()) {
    const size_t inputs = kernel.inputs.size(), outputs = kernel.outputs.size();
    const bool joins = target.gpu && target.gpu->joins;
    Value place;  // the next word of this block's launch in the table
    if (joins) {
        place = launch_of_block(launch_table_of(kernel));
    } else if (target.gpu) {
        block = b.where(Where::block);
        blocks = b.where(Where::blocks);
    }
    const auto parameter = [&](Type type) {
        if (!joins) return b.parameter(type);
        const Value word = b.word(place, type);
        place = b.add(place, b.index(1));
        return word;
    };
    for (const Operand& input : kernel.inputs)
        bases.push_back(input.is_offset
                            ? b.index(0)
                            : parameter({.kind = storage_of(input.dtype), .is_pointer = true}));
    for (const Operand& output : kernel.outputs)
        bases.push_back(parameter({.kind = storage_of(output.dtype), .is_pointer = true}));
    for (int axis = 0; axis < kernel.rank; ++axis) extents.push_back(parameter({}));
    for (size_t i = 0; i < inputs + outputs; ++i) {
        Values own;
        const bool is_read = i < inputs || kernel.reduced > 0;
        if (joins && !is_read) continue;
        for (int axis = 0; axis < kernel.rank; ++axis) {
            const auto known = joins ? known_stride(kernel, i, axis) : std::nullopt;
            own.push_back(known ? b.index(*known) : parameter({}));
        }
        if (is_read) strides.push_back(std::move(own));
    }
    for (const Operand& input : kernel.inputs)
        gather_strides_.push_back(input.by >= 0 ? parameter({Kind::i64}) : Value());
    if (!target.gpu) {
        lo = b.parameter({});
        hi = b.parameter({});
    } else if (target.gpu->parts > 1) {
        parts = b.parameter({.kind = Kind::i32, .is_pointer = true});
        tickets = b.parameter({.kind = Kind::i32, .is_pointer = true});
    }
}

// Halves the range of launches until one is left. Words after the last launch are the number of all
// blocks, so that no block takes them.
Value Frame::launch_of_block(const LaunchTable& table) {
    b.take_table(table.size());
    const Value in_grid = b.where(Where::block);
    Value launch = b.index(0);
    for (int step = (table.starts() - 1) / 2; step > 0; step /= 2) {
        const Value later = b.add(launch, b.index(step));
        launch = b.select(b.less(in_grid, b.word(later, {})), launch, later);
    }
    const Value first = b.word(launch, {});
    block = b.sub(in_grid, first);
    blocks = b.sub(b.word(b.add(launch, b.index(1)), {}), first);
    return b.add(b.mul(launch, b.index(static_cast<int64_t>(table.words.size()))),
                 b.index(table.starts()));
}

Frame::Frame(const Frame& other, int lanes, bool aligned)
    : b(other.b),
      kernel(other.kernel),
      target(other.target),
      width(lanes),
      is_aligned(aligned),
      lo(other.lo),
      hi(other.hi),
      block(other.block),
      blocks(other.blocks),
      parts(other.parts),
      tickets(other.tickets),
      streams(other.streams),
      extents(other.extents),
      bases(other.bases),
      strides(other.strides),
      gather_strides_(other.gather_strides_) {}

// ---- places ----

Values Frame::moved(const Values& from, const Elements& elements) {
    Values to = from;
    for (size_t i = 0; i < from.size(); ++i) {
        const Value step = elements(i);
        if (!step) continue;
        to[i] = operand(kernel, i).is_offset ? b.add(from[i], step) : b.at(from[i], step);
    }
    return to;
}

Values Frame::along(const Values& from, int axis, Value steps) {
    return moved(from, [&](size_t i) -> Value {
        if (i >= strides.size() || (axis >= kernel.kept() && operand(kernel, i).per_row)) return {};
        return b.mul(steps, strides[i][static_cast<size_t>(axis)]);
    });
}

bool Frame::is_unit_index(const Operand& index) const {
    return index.inner == Inner::broadcast && (kernel.reduced == 0 || index.per_row);
}

Values Frame::gathered(Values from) {
    for (size_t i = 0; i < kernel.inputs.size(); ++i) {
        const Operand& input = kernel.inputs[i];
        if (input.by >= 0 && is_unit_index(kernel.inputs[static_cast<size_t>(input.by)]))
            from[i] = jump(i, from, b.index(0));
    }
    return from;
}

// Where input i is read for the index at lane position `at`, if all lanes share that index.
Value Frame::jump(size_t i, const Values& from, Value at) {
    const auto by = static_cast<size_t>(kernel.inputs[i].by);
    Value place = from[by];
    if (kernel.inputs[by].inner != Inner::broadcast) place = b.at(place, at);
    const Value number = b.convert(Kind::i64, b.load(place, 1, false));
    return b.at(from[i], b.mul(number, gather_strides_[i]));
}

Frame::Place Frame::place_of(const Values& from, int first, int last, Value number) {
    Place place{from, {}};
    if (first == last) return place;
    Value rest = number;
    for (int axis = last - 1; axis >= first; --axis) {
        const Value extent = extents[static_cast<size_t>(axis)];
        const Value at = axis > first ? b.mod(rest, extent) : rest;
        if (axis > first) rest = b.div(rest, extent);
        if (axis == last - 1) place.last = at;
        else place.bases = along(place.bases, axis, at);
    }
    return place;
}

Values Frame::moved_to(const Values& from, int first, int last, Value number) {
    const Place place = place_of(from, first, last, number);
    return place.last ? along(place.bases, last - 1, place.last) : place.bases;
}

Value Frame::product(int first, int last) {
    Value all = b.index(1);
    for (int axis = first; axis < last; ++axis)
        all = b.mul(all, extents[static_cast<size_t>(axis)]);
    return all;
}

// ---- pieces ----

Piece Frame::partial(Value at, Value left) {
    return {at, left, b.less(b.lanes(Kind::i32, width), splat(i32_of(left)))};
}

Piece Frame::either(Value at, Value ahead) {
    return {.at = at, .left = ahead, .is_whole = b.compute(ScalarOp::le, {b.index(width), ahead})};
}

Value Frame::mask_of(const Piece& piece) {
    if (!piece.is_whole) return piece.mask;
    return b.choose(piece.is_whole, [&] { return Values{b.constant({Kind::b1, width}, 1)}; },
                    [&] { return Values{partial(piece.at, piece.left).mask}; })[0];
}

static std::vector<size_t> inputs_of(const KernelIR& kernel, std::span<const int> ids) {
    std::vector<size_t> inputs;
    for (const int id : ids)
        if (kernel.program[id].op == ScalarOp::input) inputs.push_back(kernel.program[id].bits);
    return inputs;
}

// `read` has the stored inputs of the first values, then those of the second ones, and so on.
void Frame::take_inputs(std::span<const int> ids, const Values& read, std::span<Values> values) {
    auto next = read.begin();
    for (Values& own : values)
        for (const int id : ids)
            if (const auto& inst = kernel.program[id]; inst.op == ScalarOp::input)
                own[static_cast<size_t>(id)] = b.widen(kernel.inputs[inst.bits].dtype, *next++);
}

void Frame::evaluate(std::span<const int> ids, const Values& at, std::span<const Piece> pieces,
                     std::span<Values> values) {
    Values read;
    for (const Piece& piece : pieces)
        append(read, load_all(inputs_of(kernel, ids), std::span(&at, 1), piece));
    take_inputs(ids, read, values);
    for (const int id : spread_chains(kernel.program, ids, target.schedule.wait))
        for (Values& own : values)
            if (kernel.program[id].op != ScalarOp::input)
                own[static_cast<size_t>(id)] = instruction(id, own);
}

void Frame::evaluate(std::span<const int> ids, std::span<const Values> at, const Piece& piece,
                     std::span<Values> values) {
    take_inputs(ids, load_all(inputs_of(kernel, ids), at, piece), values);
    for (Values& own : values)
        for (const int id : ids)
            if (kernel.program[id].op != ScalarOp::input)
                own[static_cast<size_t>(id)] = instruction(id, own);
}

// A quotient of two i32 in double is off by less than 2^-52 of itself, and at least 2^-31 of itself
// away from the next integer unless it is one: its floor is exact.
Value Frame::divided_i32(Value a, Value by) {
    const Value quotient = b.div(b.convert(Kind::f64, a), b.convert(Kind::f64, by));
    return b.convert(Kind::i32, b.compute(ScalarOp::floor, {quotient}));
}

// The loops' division is unsigned. Where signs differ the quotient is -(|a| / |by|), rounded up.
Value Frame::divided_i64(Value a, Value by) {
    const Type type = b.type_of(a);
    const Value zero = b.constant(type, 0), one = b.constant(type, 1);
    const auto magnitude = [&](Value x) { return b.select(b.less(x, zero), b.sub(zero, x), x); };
    const Value is_zero = b.equal(by, zero), size = magnitude(a),
                step = b.select(is_zero, one, magnitude(by)), quotient = b.div(size, step);
    const Value is_whole = b.equal(b.mul(quotient, step), size), below = b.sub(zero, quotient);
    const Value differs = b.less(b.compute(ScalarOp::bit_xor, {a, by}), zero);
    const Value result = b.select(differs, b.select(is_whole, below, b.sub(below, one)), quotient);
    return b.select(is_zero, zero, result);
}
Value Frame::rest_i64(Value a, Value by) {
    const Value zero = b.constant(b.type_of(a), 0);
    return b.select(b.equal(by, zero), zero, b.sub(a, b.mul(divided_i64(a, by), by)));
}

Value Frame::instruction(int id, const Values& values) {
    const ScalarInst& inst = kernel.program[id];
    if (inst.op == ScalarOp::constant) return b.constant({kind_of(inst.type), width}, inst.bits);
    Values args;
    for (int k = 0; k < runtime::arity_of(inst.op); ++k)
        args.push_back(values[static_cast<size_t>(inst.args[k])]);
    const bool is_float = runtime::is_real(inst.type);
    if (inst.op == ScalarOp::cast) return b.convert(kind_of(inst.type), args[0]);
    if (inst.op == ScalarOp::div && inst.type == ScalarType::i64)
        return divided_i64(args[0], args[1]);
    if (inst.op == ScalarOp::mod && inst.type == ScalarType::i64) return rest_i64(args[0], args[1]);
    // No CPU divides vectors of integers.
    if (inst.op == ScalarOp::div && !is_float && !target.divides)
        return divided_i32(args[0], args[1]);
    const Value value = b.compute(inst.op, args, inst.narrow_to);
    // Compilers simplify max(max(x, 0), 0) to max(x, 0), whatever the comparisons give for NaN and
    // for the sign of 0; the fence prevents that.
    const bool is_chosen =
        is_float && inst.op == ScalarOp::select && kernel.program.is_extremum(id);
    return is_chosen ? b.fence(value) : value;
}

void Frame::evaluate_row(const RowWalk& walk, const Values& at, const Piece& piece,
                         const Values& reduced, Values& values) {
    std::vector<int> others;
    for (const int id : walk.row)
        if (const int r = reduction_read_by(kernel, id); r >= 0)
            values[static_cast<size_t>(id)] = reduced[static_cast<size_t>(r)];
        else others.push_back(id);
    evaluate(others, at, piece, values);
}

// Loads inputs in their stored form, base after base.
Values Frame::load_all(std::span<const size_t> inputs, std::span<const Values> at,
                       const Piece& piece) {
    const auto load_as = [&](const Piece& what) {
        Values loaded;
        for (const Values& own : at)
            for (const size_t i : inputs) loaded.push_back(load(i, own, what));
        return loaded;
    };
    if (!piece.is_whole || inputs.empty()) return load_as(piece);
    return b.choose(piece.is_whole, [&] { return load_as({piece.at}); },
                    [&] { return load_as(partial(piece.at, piece.left)); });
}

Value Frame::load(size_t i, const Values& at, const Piece& piece) {
    const Operand& input = kernel.inputs[i];
    if (input.is_offset) return coordinate(i, at[i], piece);
    if (input.by < 0 || is_unit_index(kernel.inputs[static_cast<size_t>(input.by)]))
        return load_lanes(i, at[i], piece);
    const auto by = static_cast<size_t>(input.by);
    if (kernel.inputs[by].inner == Inner::broadcast)
        return load_lanes(i, jump(i, at, piece.at), piece);
    // 0 for lanes that take no part
    const Value numbers = b.convert(Kind::i64, load_lanes(by, at[by], piece));
    Value offsets = b.mul(numbers, splat(gather_strides_[i]));
    Value base = at[i];
    if (input.inner != Inner::broadcast) {
        offsets = b.add(offsets, lane_offsets(i, piece));
        base = b.at(base, b.mul(piece.at, lane_stride(i)));
    }
    return b.gather(base, offsets);
}

Value Frame::load_lanes(size_t i, Value base, const Piece& piece) {
    switch (kernel.inputs[i].inner) {
        case Inner::broadcast: return splat(b.load(base, 1, false));
        case Inner::contiguous: return b.load(b.at(base, piece.at), width, is_aligned, piece.mask);
        case Inner::strided:
        case Inner::transposed:
            return b.gather(b.at(base, b.mul(piece.at, lane_stride(i))), lane_offsets(i, piece));
    }
    return {};
}

// Computes a coordinate in 32 bits.
Value Frame::coordinate(size_t i, Value base, const Piece& piece) {
    if (kernel.inputs[i].inner == Inner::broadcast) return splat(i32_of(base));
    const Value first = i32_of(b.add(base, b.mul(piece.at, lane_stride(i))));
    return b.add(splat(first), b.mul(b.lanes(Kind::i32, width), splat(i32_of(lane_stride(i)))));
}

// Returns each lane's distance from lane 0, in elements. Lanes that take no part get the distance
// of the last one that does: every lane is in bounds, and a gather needs no mask, which for narrow
// elements would become a branch per lane.
Value Frame::lane_offsets(size_t i, const Piece& piece) {
    Value lane = b.lanes(Kind::i64, width);
    const auto wide = [&](Value index) { return splat(b.convert(Kind::i64, index)); };
    if (piece.left) lane = b.smaller(lane, wide(b.sub(piece.left, b.index(1))));
    return b.mul(lane, wide(lane_stride(i)));
}

void Frame::store(std::span<const size_t> outputs, const Values& at, const Piece& piece,
                  const Values& values) {
    const auto store_as = [&](const Piece& what, bool past_caches) {
        for (const size_t k : outputs)
            store_one(k, at, what, values[static_cast<size_t>(kernel.results[k])], past_caches);
        return Values();
    };
    const auto store_whole = [&] {
        const Piece whole{piece.at};
        if (!piece.passes) return store_as(whole, false);
        return b.choose(piece.passes, [&] { return store_as(whole, true); },
                        [&] { return store_as(whole, false); });
    };
    if (outputs.empty()) return;
    if (piece.is_whole)
        b.choose(piece.is_whole, store_whole,
                 [&] { return store_as(partial(piece.at, piece.left), false); });
    else if (piece.mask) store_as(piece, false);
    else store_whole();
}

void Frame::store_one(size_t k, const Values& at, const Piece& piece, Value value,
                      bool past_caches) {
    const size_t i = kernel.inputs.size() + k;
    const Value stored = b.shorten(kernel.outputs[k].dtype, value);
    if (!is_dense(k))
        return b.scatter(b.at(at[i], b.mul(piece.at, lane_stride(i))), lane_offsets(i, piece),
                         stored, piece.mask);
    const Value place = b.at(at[i], piece.at);
    if (past_caches) b.store_past_caches(place, stored);
    else b.store(place, stored, is_aligned, piece.mask);
}

bool Frame::is_dense(size_t k) const {
    return kernel.reduced == 0 || kernel.outputs[k].inner != Inner::strided;
}

void Frame::store_lane0(size_t k, const Values& at, const Values& values) {
    const Value value = values[static_cast<size_t>(kernel.results[k])];
    b.store(at[kernel.inputs.size() + k], b.lane(b.shorten(kernel.outputs[k].dtype, value), 0),
            false);
}

Value Frame::stored(Value row, const Piece& piece) {
    const Value mask = mask_of(piece);
    return b.load(b.at(row, piece.at), width, is_aligned, mask);
}

// ---- runs and units ----

Values Frame::over_axes(int axis, const Run& outer, const Values& state, const RunBody& body) {
    const Value extent = extents[static_cast<size_t>(axis)];
    const Value place = b.mul(outer.place, extent);
    if (axis + 1 == kernel.rank) return body({outer.bases, place, extent}, state);
    return b.loop(b.index(0), extent, 1, state, [&](Value at, const Values& carried) {
        return over_axes(axis + 1, {along(outer.bases, axis, at), b.add(place, at), {}}, carried,
                         body);
    });
}

Values Frame::for_runs(const Values& at, const Values& state, const RunBody& body) {
    return over_axes(kernel.kept(), {at, b.index(0), {}}, state, body);
}

std::vector<UnitAxis> kept_axes(const Frame& frame) {
    std::vector<UnitAxis> axes;
    for (size_t axis = 0; axis < static_cast<size_t>(frame.kernel.kept()); ++axis) {
        axes.push_back({frame.extents[axis], {}});
        for (const Values& own : frame.strides) axes.back().strides.push_back(own[axis]);
    }
    return axes;
}

void make_blocks(Builder& b, UnitAxis& axis, int64_t size) {
    axis.extent = b.divided_up(axis.extent, size);
    for (Value& stride : axis.strides) stride = b.mul(stride, b.index(size));
}

void for_neighbors(Frame& f, Value unit, Value number, Value extent, Value most,
                   const std::function<void(Value together)>& body) {
    Builder& b = f.b;
    const Value place = b.mod(number, most);
    b.branch(b.any(b.equal(place, b.index(0)), b.equal(unit, f.lo)), [&] {
        const Value here = b.smaller(b.sub(f.hi, unit), b.sub(extent, number));
        body(b.smaller(b.sub(most, place), here));
    });
}

// The loop carries the indices of all axes but the first, which never wraps, then each operand's
// offset in elements.
void for_units(Frame& f, std::span<const UnitAxis> axes, const UnitBody& body) {
    if (axes.empty()) return body(f.lo, {}, f.bases);
    Builder& b = f.b;
    const size_t rank = axes.size(), operands = f.bases.size();
    Values position(rank);
    Value rest = f.lo;
    for (size_t axis = rank; axis-- > 1;) {
        position[axis] = b.mod(rest, axes[axis].extent);
        rest = b.div(rest, axes[axis].extent);
    }
    position[0] = rest;
    Values carried(position.begin() + 1, position.end());
    for (size_t i = 0; i < operands; ++i) {
        Value offset = b.index(0);
        for (size_t axis = 0; axis < rank; ++axis)
            if (const Value stride = axes[axis].strides[i])
                offset = b.add(offset, b.mul(position[axis], stride));
        carried.push_back(offset);
    }
    // The change of an offset when an axis advances and the one inside it wraps: one step forward,
    // a whole run of the inner axis back.
    std::vector<Values> wraps(rank, Values(operands));
    for (size_t axis = 1; axis < rank; ++axis)
        for (size_t i = 0; i < operands; ++i)
            if (const Value stride = axes[axis].strides[i])
                wraps[axis][i] = b.sub(axes[axis - 1].strides[i], b.mul(axes[axis].extent, stride));

    b.loop(f.lo, f.hi, 1, carried, [&](Value unit, const Values& state) {
        Values next(state);
        const auto offsets = std::span(next).subspan(rank - 1);
        body(unit, rank > 1 ? state[rank - 2] : unit, f.moved(f.bases, [&](size_t i) {
            return axes.back().strides[i] ? offsets[i] : Value();
        }));
        for (size_t i = 0; i < operands; ++i)
            if (const Value stride = axes.back().strides[i]) offsets[i] = b.add(offsets[i], stride);
        Value carry;  // whether the axis inside wraps
        for (size_t axis = rank; axis-- > 1;) {
            Value stepped = b.add(next[axis - 1], b.index(1));
            if (carry) stepped = b.select(carry, stepped, next[axis - 1]);
            carry = b.equal(stepped, axes[axis].extent);
            next[axis - 1] = b.select(carry, b.index(0), stepped);
            for (size_t i = 0; i < operands; ++i)
                if (wraps[axis][i])
                    offsets[i] = b.add(offsets[i], b.select(carry, wraps[axis][i], b.index(0)));
        }
        return next;
    });
}

}  // namespace megjit::codegen::loops
