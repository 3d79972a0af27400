#include "jit/record.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "runtime/core/host_view.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

bool same_value(const RecordedValue& a, const RecordedValue& b) {
    if (a.origin != b.origin || !(a.type == b.type) || a.device != b.device) return false;
    if (a.origin == Origin::outside) return a.slot == b.slot;
    if (a.origin == Origin::constant)
        return a.tensor == b.tensor ||
               std::memcmp(runtime::HostView(a.tensor).data(), runtime::HostView(b.tensor).data(),
                           a.type.bytes()) == 0;
    return true;
}

std::string name_in(const ValueNames& names, RecordId value) {
    const auto found = names.find(value);
    return found == names.end() ? std::string() : found->second;
}

// "layers.3.weight.grad", by the value that backward gave.
ValueNames gradient_names(const Record& record, const ValueNames& names) {
    ValueNames gradients;
    for (const RecordedBackward& backward : record.backwards)
        for (size_t i = 0; i < backward.grads.size(); ++i)
            if (const auto name = names.find(backward.wanted[i]);
                name != names.end() && backward.grads[i] >= 0)
                gradients.emplace(static_cast<RecordId>(backward.grads[i]), name->second + ".grad");
    return gradients;
}

// The input of the step that the update holds if the call fails, or -1.
int replaced_by(RecordId output, const Record& record, const Step& step) {
    for (const Output& update : record.updates) {
        if (update.value != output) continue;
        const RecordId old = record.inputs[static_cast<size_t>(update.replaces)].value;
        const auto input = std::ranges::find(step.inputs, old, &Input::value);
        const Type& type = record.values[output].type;
        if (input != step.inputs.end() && type == record.values[old].type &&
            type.dtype != runtime::DType::c64)
            return static_cast<int>(input - step.inputs.begin());
    }
    return -1;
}

}  // namespace

bool Record::same_prefix(const Record& other, uint32_t count) const {
    if (count > events.size() || count > other.events.size()) return false;
    const auto same_values = [&](const std::vector<RecordId>& a, const std::vector<RecordId>& b) {
        if (a != b) return false;
        for (RecordId id : a)
            if (!same_value(values[id], other.values[id])) return false;
        return true;
    };
    for (uint32_t i = 0; i < count; ++i) {
        const Event &a = events[i], &b = other.events[i];
        if (a.kind != b.kind || a.index != b.index) return false;
        if (a.kind == EventKind::op) {
            const RecordedOp &x = ops[a.index], &y = other.ops[b.index];
            if (x.op != y.op || !runtime::same(x.attrs, y.attrs) ||
                !same_values(x.inputs, y.inputs) || x.outputs != y.outputs)
                return false;
        } else if (a.kind == EventKind::backward) {
            const RecordedBackward &x = backwards[a.index], &y = other.backwards[b.index];
            if (!same_values(x.ys, y.ys) || !same_values(x.dys, y.dys) ||
                !same_values(x.wanted, y.wanted) || x.groups != y.groups)
                return false;
        } else if (a.kind == EventKind::variant) {
            if (variants[a.index] != other.variants[b.index]) return false;
        }
    }
    return true;
}

Record Record::prefix(uint32_t count) const {
    Record result;
    result.events.assign(events.begin(), events.begin() + count);
    uint32_t last_op = 0, last_backward = 0, last_variant = 0;
    for (const Event& event : result.events) {
        if (event.kind == EventKind::op) last_op = event.index + 1;
        if (event.kind == EventKind::backward) last_backward = event.index + 1;
        if (event.kind == EventKind::variant) last_variant = event.index + 1;
        if (event.kind == EventKind::barrier) result.segment_end_op.push_back(last_op);
    }
    result.ops.assign(ops.begin(), ops.begin() + last_op);
    result.backwards.assign(backwards.begin(), backwards.begin() + last_backward);
    result.variants.assign(variants.begin(), variants.begin() + last_variant);
    result.segments = static_cast<uint32_t>(result.segment_end_op.size()) + 1;
    result.needs_tapes = needs_tapes;
    // Values are numbered in the order in which they appeared; those of the prefix come first.
    RecordId last = 0;
    const auto see = [&last](const std::vector<RecordId>& ids) {
        for (RecordId id : ids) last = std::max(last, id + 1);
    };
    for (const RecordedOp& op : result.ops) {
        see(op.inputs);
        see(op.outputs);
    }
    for (const RecordedBackward& backward : result.backwards) {
        see(backward.ys);
        see(backward.dys);
        see(backward.wanted);
    }
    for (const Input& input : inputs)
        if (input.kind == Input::Kind::argument) last = std::max(last, input.value + 1);
    result.values.assign(values.begin(), values.begin() + last);
    for (RecordId id = 0; id < last; ++id) {
        RecordedValue& value = result.values[id];
        if (value.origin == Origin::outside)
            result.inputs.push_back({.kind = inputs[value.slot].kind, .value = id});
        if (value.origin == Origin::op && value.segment + 1 == result.segments)
            value.is_output = false;  // it is not yet known who keeps it
    }
    return result;
}

void Record::mark_crossing_values() {
    uint32_t segment = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
        while (segment < segment_end_op.size() && i >= segment_end_op[segment]) ++segment;
        for (RecordId input : ops[i].inputs)
            if (values[input].origin == Origin::op && values[input].segment < segment)
                values[input].is_output = true;
    }
}

Step extract_segment(const Record& record, uint32_t index, const ValueNames& names) {
    const uint32_t first = index == 0 ? 0 : record.segment_end_op[index - 1];
    const uint32_t last = index < record.segment_end_op.size()
                              ? record.segment_end_op[index]
                              : static_cast<uint32_t>(record.ops.size());
    Step segment;
    const ValueNames gradients = gradient_names(record, names);
    std::unordered_map<RecordId, ValueId> ids;
    const auto id_of = [&](RecordId value) {
        if (auto found = ids.find(value); found != ids.end()) return found->second;
        const RecordedValue& recorded = record.values[value];
        ValueId id{};
        if (recorded.tensor) {
            id = segment.graph.add_constant(recorded.tensor);
        } else {
            id = segment.graph.add_input(recorded.type, static_cast<int>(segment.inputs.size()),
                                         name_in(names, value));
            segment.inputs.push_back(recorded.origin == Origin::outside
                                         ? record.inputs[recorded.slot]
                                         : Input{.kind = Input::Kind::made, .value = value});
        }
        ids.emplace(value, id);
        return id;
    };
    std::optional<ValueId> after;  // of the last op that has an order
    for (uint32_t i = first; i < last; ++i) {
        const RecordedOp& op = record.ops[i];
        const bool is_ordered = runtime::is_ordered(*op.op);
        Node node{.kind = NodeKind::op,
                  .op = op.op,
                  .attrs = op.attrs,
                  .where = op.where,
                  .marks = op.marks,
                  .role = op.role};
        for (RecordId input : op.inputs) node.inputs.push_back(id_of(input));
        if (is_ordered && after) node.inputs.push_back(*after);
        std::vector<Type> types;
        for (RecordId output : op.outputs) {
            types.push_back(record.values[output].type);
            if (!gradients.empty()) node.names.push_back(name_in(gradients, output));
        }
        segment.graph.set_device(*record.values[op.outputs[0]].device);
        const std::vector<ValueId> outputs = segment.graph.add(std::move(node), types);
        for (size_t o = 0; o < outputs.size(); ++o) ids[op.outputs[o]] = outputs[o];
        if (is_ordered) after = outputs.back();
    }
    for (uint32_t i = first; i < last; ++i)
        for (RecordId output : record.ops[i].outputs)
            if (const RecordedValue& value = record.values[output];
                value.is_output && !value.tensor) {
                segment.graph.outputs.push_back(ids.at(output));
                segment.outputs.push_back({.value = output});
            }
    // Only the last segment runs when the caller has let go of what it has rebound.
    if (index + 1 == record.segments)
        for (Output& output : segment.outputs)
            output.replaces = replaced_by(output.value, record, segment);
    else
        for (Input& input : segment.inputs) input.is_released = false;
    return segment;
}

}  // namespace megjit::jit
