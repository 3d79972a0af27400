#include "jit/file/batch_flow.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/host/error.h"
#include "runtime/ops/refit.h"

namespace megjit::jit {
namespace {

using runtime::BatchChange;
using runtime::cat;
using Kind = GivenExtent::Kind;

Type row_major(const Type& type) { return {.dtype = type.dtype, .shape = type.shape}; }

// A place in the record that keeps the batch: the number of a read, or of an op after them.
using Reason = size_t;

// The types of all values when some arguments have another extent in front.
class Flow {
public:
    Flow(const Version& version, std::span<const NodeId> live, std::span<const size_t> arguments,
         BatchChange change)
        : version_(version), record_(version.record), change_(change) {
        for (const Node& node : record_.graph.nodes())
            for (RecordId value : node.outputs) types_.push_back(row_major(before(value)));
        const std::vector<RecordId> values = version.arguments();
        for (size_t argument : arguments) types_[at(values[argument])]->shape[0] = change.to;
        const std::vector<Node>& nodes = record_.graph.nodes();
        std::vector<bool> is_live(nodes.size());
        for (NodeId op : live) is_live[at(op)] = true;
        for (size_t i = 0; i < nodes.size(); ++i)
            if (nodes[i].kind == NodeKind::op) pass(i, is_live[i]);
        for (size_t i = 0; i < version.notes.extent_reads.size(); ++i)
            if (const ExtentOf& of = version.notes.extent_reads[i].of;
                !types_[at(of.value)] || varies(of))
                reasons_.insert(reasons_.end(), i);
    }

    const std::set<Reason>& reasons() const { return reasons_; }

private:
    const Type& before(RecordId id) const { return record_.graph.type(id); }
    bool varies(const ExtentOf& of) const {
        const std::optional<Type>& now = types_[at(of.value)];
        return now && now->shape[of.axis] != before(of.value).shape[of.axis];
    }
    bool varies(const GivenExtent& given) const {
        return std::ranges::any_of(given.of, [this](const ExtentOf& of) { return varies(of); });
    }

    // An op's results are not known where an operand is not, and where the op does not take its
    // operands: with this batch nothing of it can run.
    void pass(size_t index, bool is_live) {
        const Node& op = record_.graph.nodes()[index];
        std::vector<Type> recorded, operands;
        bool is_known = true;
        for (RecordId input : op.inputs) {
            recorded.push_back(row_major(before(input)));
            is_known = is_known && types_[at(input)];
            if (is_known) operands.push_back(*types_[at(input)]);
        }
        std::vector<Type> results;
        if (is_known) try {
                results = results_of(op, recorded, operands);
            } catch (const runtime::UserError&) { is_known = false; }
        if (is_live && is_known && results.empty())
            reasons_.insert(version_.notes.extent_reads.size() + index);
        for (size_t i = 0; i < op.outputs.size(); ++i)
            types_[at(op.outputs[i])] =
                is_known && !results.empty() ? std::optional(row_major(results[i])) : std::nullopt;
    }

    // Gives nothing where the op's numbers do not follow.
    std::vector<Type> results_of(const Node& op, const std::vector<Type>& recorded,
                                 const std::vector<Type>& operands) const {
        Attrs attrs = op.attrs;
        const runtime::OpCall call{*op.op, op.attrs, recorded};
        // What refit refuses here it might take for granted when passes have joined calls.
        if (recorded != operands) try {
                attrs = runtime::refit(call, operands, change_);
            } catch (const runtime::UserError&) { return {}; }
        if (const std::vector<GivenExtent>& given = given_to(op);
            op.op->refit && !given.empty() && !follow(op, given, recorded[0], operands[0], attrs))
            return {};
        if (recorded == operands) return record_.graph.types(op.outputs);
        return runtime::infer({*op.op, attrs, operands});
    }

    const std::vector<GivenExtent>& given_to(const Node& op) const {
        return version_.notes.call(record_.graph.value(op.outputs[0]).producer).given;
    }

    // Are the new numbers those that the call would be given with the other batch?
    bool follow(const Node& op, const std::vector<GivenExtent>& all, const Type& recorded,
                const Type& operand, const Attrs& attrs) const {
        if (op.op->attrs[0].name != "shape") {  // a region: by axis of the operand
            for (size_t i = 0; i < all.size(); ++i)
                if (all[i].kind == Kind::written &&
                    recorded.shape[static_cast<int>(i)] != operand.shape[static_cast<int>(i)])
                    return false;
            return true;
        }
        const auto& old = std::get<std::vector<int64_t>>(op.attrs[0]);
        const auto& now = std::get<std::vector<int64_t>>(attrs[0]);
        if (all.size() != old.size()) return false;
        const auto is_open = [this](const GivenExtent& given) {
            return given.kind == Kind::solved || varies(given);
        };
        const bool has_others = std::ranges::count_if(all, is_open) > 1;
        for (size_t i = 0; i < old.size(); ++i) {
            const GivenExtent& given = all[i];
            if (given.kind == Kind::written && now[i] != old[i]) return false;
            if (given.kind != Kind::read) continue;
            if (varies(given) != (now[i] != old[i])) return false;
            if (given.is_itself ? now[i] != types_[at(given.of[0].value)]->shape[given.of[0].axis]
                                : has_others && varies(given))
                return false;
        }
        return true;
    }

    const Version& version_;
    const Record& record_;
    const BatchChange change_;
    std::vector<std::optional<Type>> types_;  // by value; nothing: not known
    std::set<Reason> reasons_;
};

std::string line_of(const Version& version, Reason reason) {
    if (reason < version.notes.extent_reads.size()) return version.notes.extent_reads[reason].where;
    const Node& op = version.record.graph.nodes()[reason - version.notes.extent_reads.size()];
    return cat(op.where, ", by ", op.op->name);
}

// Arguments by their leading extent.
std::map<int64_t, std::vector<size_t>> batches_of(const Version& version) {
    std::map<int64_t, std::vector<size_t>> batches;
    const std::vector<RecordId> arguments = version.arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
        const Type& type = version.record.graph.type(arguments[i]);
        if (type.rank()) batches[type.shape[0]].push_back(i);
    }
    return batches;
}

// Two batches, lest one fits by chance.
std::set<Reason> reasons_of(const Version& version, std::span<const NodeId> live,
                            std::span<const size_t> changed, int64_t batch) {
    for (const int64_t to : {2 * batch + 1, batch + 4}) {
        const Flow flow(version, live, changed, {batch, to});
        if (!flow.reasons().empty()) return flow.reasons();
    }
    return {};
}

constexpr size_t kMostAlone = 16;  // arguments that are tried one by one

}  // namespace

std::vector<std::string> fixed_batches(const Version& version, std::span<const NodeId> live) {
    std::vector<std::string> lines(version.key.arguments.size());
    const auto fix = [&](std::span<const size_t> arguments, const std::string& line) {
        for (const size_t argument : arguments)
            if (lines[argument].empty()) lines[argument] = line;
    };
    const auto backward = std::ranges::find_if(
        live, [&](NodeId op) { return version.record.graph.node(op).role.is_backward; });
    for (const auto& [batch, arguments] : batches_of(version)) {
        if (backward != live.end()) {  // its means, and ones, are numbers of this batch
            fix(arguments,
                cat(version.record.graph.node(*backward).where, ", where gradients are taken"));
            continue;
        }
        std::set<Reason> known;
        for (const size_t& argument : arguments) {
            if (arguments.size() > kMostAlone) break;
            const std::set<Reason> reasons = reasons_of(version, live, {&argument, 1}, batch);
            if (!reasons.empty()) fix({&argument, 1}, line_of(version, *reasons.begin()));
            known.insert(reasons.begin(), reasons.end());
        }
        if (arguments.size() == 1) continue;
        for (const Reason reason : reasons_of(version, live, arguments, batch))
            if (!known.contains(reason)) fix(arguments, line_of(version, reason));
    }
    return lines;
}

}  // namespace megjit::jit
