#include "jit/trace/record.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "runtime/core/host_view.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

// Names like "layers.3.weight.grad", by the value that backward gave.
std::unordered_map<RecordId, std::string> gradient_names(const Record& record) {
    std::unordered_map<RecordId, std::string> names;
    for (const RecordedBackward& backward : record.backwards)
        for (size_t i = 0; i < backward.grads.size(); ++i)
            if (const std::string name = record.graph.name(backward.wanted[i]);
                !name.empty() && backward.grads[i] != kNoValue)
                names.emplace(backward.grads[i], name + ".grad");
    return names;
}

// The input of the step whose value the update holds if the call fails, or -1.
int replaced_by(RecordId output, const Record& record, const Step& step) {
    for (const Output& update : record.outputs) {
        if (update.value != output) continue;
        const RecordId old = record.inputs[static_cast<size_t>(update.replaces)].value;
        const auto input = std::ranges::find(step.inputs, old, &Input::value);
        const Type& type = record.graph.type(output);
        if (input != step.inputs.end() && type == record.graph.type(old) &&
            type.dtype != runtime::DType::c64)
            return static_cast<int>(input - step.inputs.begin());
    }
    return -1;
}

// Bytes of what a call knows or has made when the segment runs, and the segment does not read.
size_t held_beside(const Record& record, uint32_t index,
                   const std::unordered_map<RecordId, ValueId>& read) {
    const auto is_held = [&](RecordId id) {
        const uint32_t since = record.segment_of(id);
        return record.is_computed(id) ? record[id].is_output && since < index
                                      : record.is_from_outside(id) && since <= index;
    };
    size_t bytes = 0;
    for (size_t i = 0; i < record.values.size(); ++i)
        if (const RecordId id{static_cast<uint32_t>(i)};
            !record[id].tensor && !read.contains(id) && is_held(id))
            bytes += record.graph.type(id).bytes();
    return bytes;
}

}  // namespace

size_t Record::op_count() const {
    return static_cast<size_t>(std::ranges::count(graph.nodes(), NodeKind::op, &Node::kind));
}

uint32_t Record::segment_of(RecordId value) const {
    const auto node = static_cast<uint32_t>(graph.value(value).producer);
    return static_cast<uint32_t>(std::ranges::upper_bound(segment_ends, node) -
                                 segment_ends.begin());
}

std::span<const Node> Record::segment(uint32_t index) const {
    const std::span nodes(graph.nodes());
    const size_t first = index == 0 ? 0 : segment_ends[index - 1];
    return nodes.subspan(
        first, (index < segment_ends.size() ? segment_ends[index] : nodes.size()) - first);
}

bool Record::same_value(const Record& other, RecordId id) const {
    const RecordedValue &a = values[at(id)], &b = other.values[at(id)];
    if (a.slot != b.slot || a.device != b.device || !(graph.type(id) == other.graph.type(id)) ||
        is_computed(id) != other.is_computed(id))
        return false;
    return !is_constant(id) || a.tensor == b.tensor ||
           std::memcmp(runtime::HostView(a.tensor).data(), runtime::HostView(b.tensor).data(),
                       graph.type(id).bytes()) == 0;
}

bool Record::same_prefix(const Record& other, uint32_t count) const {
    if (count > events.size() || count > other.events.size()) return false;
    const auto same_values = [&](const std::vector<RecordId>& a, const std::vector<RecordId>& b) {
        return a == b && std::ranges::all_of(a, [&](RecordId id) { return same_value(other, id); });
    };
    for (uint32_t i = 0; i < count; ++i) {
        const Event &a = events[i], &b = other.events[i];
        if (a.kind != b.kind || a.index != b.index) return false;
        if (a.kind == EventKind::op) {
            const Node &x = op_of(a), &y = other.op_of(b);
            if (x.op != y.op || !runtime::same(x.attrs, y.attrs) ||
                !same_values(x.inputs, y.inputs) || x.outputs != y.outputs)
                return false;
        } else if (a.kind == EventKind::backward) {
            const RecordedBackward &x = backwards[a.index], &y = other.backwards[b.index];
            if (!same_values(x.ys, y.ys) || !same_values(x.dys, y.dys) ||
                !same_values(x.wanted, y.wanted) || x.groups != y.groups)
                return false;
        } else if (a.kind == EventKind::variant) {
            if (a.text != b.text) return false;
        }
    }
    return true;
}

Record Record::prefix(uint32_t count) const {
    Record result;
    result.events.assign(events.begin(), events.begin() + count);
    uint32_t end = 0, last_backward = 0;  // end: of the nodes
    for (const Event& event : result.events) {
        if (event.kind == EventKind::op) end = event.index + 1;
        if (event.kind == EventKind::backward) last_backward = event.index + 1;
        if (event.kind == EventKind::barrier) result.segment_ends.push_back(end);
    }
    result.backwards.assign(backwards.begin(), backwards.begin() + last_backward);
    result.needs_tapes = needs_tapes;
    // Values are numbered in the order in which they appeared; those of the prefix come first.
    const auto see = [&](RecordId id) {
        end = std::max(end, static_cast<uint32_t>(graph.value(id).producer) + 1);
    };
    for (const RecordedBackward& backward : result.backwards)
        for (const auto* ids : {&backward.ys, &backward.dys, &backward.wanted})
            std::ranges::for_each(*ids, see);
    for (const Input& input : inputs)
        if (input.kind == Input::Kind::argument) see(input.value);
    for (const Node& node : std::span(graph.nodes()).first(end))
        result.graph.add(node, graph.types(node.outputs));
    result.values.assign(values.begin(), values.begin() + result.graph.value_count());
    for (size_t i = 0; i < result.values.size(); ++i) {
        const RecordId id{static_cast<uint32_t>(i)};
        if (is_from_outside(id)) result.inputs.push_back({.kind = input(id).kind, .value = id});
        if (is_computed(id) && result.segment_of(id) + 1 == result.segments())
            result[id].is_output = false;  // nobody knows yet whether a call keeps it
    }
    return result;
}

void Record::mark_crossing_values() {
    for (uint32_t index = 1; index < segments(); ++index)
        for (const Node& node : segment(index))
            for (RecordId input : node.inputs)
                if (is_computed(input) && segment_of(input) < index)
                    values[at(input)].is_output = true;
}

Step extract_segment(const Record& record, uint32_t index) {
    Step segment;
    std::unordered_map<RecordId, std::string> gradients = gradient_names(record);
    std::unordered_map<RecordId, ValueId> ids;
    const auto id_of = [&](RecordId value) {
        if (auto found = ids.find(value); found != ids.end()) return found->second;
        ValueId id{};
        if (const TensorRef& tensor = record[value].tensor) {
            id = segment.graph.add_constant(tensor);
        } else {
            id = segment.graph.add_input(record.graph.type(value),
                                         static_cast<int>(segment.inputs.size()),
                                         record.graph.name(value));
            segment.inputs.push_back(record.is_from_outside(value)
                                         ? record.input(value)
                                         : Input{.kind = Input::Kind::made, .value = value});
        }
        ids.emplace(value, id);
        return id;
    };
    std::optional<ValueId> after;  // result of the last op that has an order
    for (const Node& recorded : record.segment(index)) {
        if (recorded.kind != NodeKind::op) continue;
        Node node = recorded;
        for (ValueId& input : node.inputs) input = id_of(input);
        const bool is_ordered = runtime::is_ordered(*node.op);
        if (is_ordered && after) node.inputs.push_back(*after);
        node.names.clear();
        if (!gradients.empty())
            for (RecordId output : recorded.outputs) node.names.push_back(gradients[output]);
        segment.graph.set_device(*record[recorded.outputs[0]].device);
        const std::vector<ValueId> outputs =
            segment.graph.add(std::move(node), record.graph.types(recorded.outputs));
        for (size_t o = 0; o < outputs.size(); ++o) ids[recorded.outputs[o]] = outputs[o];
        if (is_ordered) after = outputs.back();
    }
    for (const Node& recorded : record.segment(index))
        if (recorded.kind == NodeKind::op)
            for (RecordId output : recorded.outputs)
                if (const RecordedValue& value = record[output]; value.is_output && !value.tensor) {
                    segment.graph.outputs.push_back(ids.at(output));
                    segment.outputs.push_back({.value = output});
                }
    // Only the last segment runs when the caller has let go of what it has rebound.
    if (index + 1 == record.segments())
        for (Output& output : segment.outputs)
            output.replaces = replaced_by(output.value, record, segment);
    else
        for (Input& input : segment.inputs) input.is_released = false;
    if (record.segments() > 1) segment.held_bytes = held_beside(record, index, ids);
    return segment;
}

}  // namespace megjit::jit
