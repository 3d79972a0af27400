// The copy in halves of a weight, which a step under autocast would make again in each call, is
// written by the kernel that makes the weight's next value: it is a cast of that value and outlives
// the call beside it (Graph::copies). Then no step reads weights only to cast them. A cast is left
// out where
//   1. it makes halves of a float32 input that the step replaces and may write over, in the same
//      layout, on a GPU;
//   2. no limit of memory is set, as copies take memory between calls, and no other library owns
//      the weight's memory, as it may write there;
//   3. a product, or something else that is no part of a kernel, reads the result: a kernel casts
//      what it reads. Or the cast is read with zeros after its rows, as align_rows wants them: then
//      the copy has these rows, too, and no call writes them again;
//   4. the weight's next value is made after all that reads the copy: it is written in its place;
//   5. the result is large: small casts share a launch (gather_casts).
#include <algorithm>

#include "jit/plan/passes/fusion_group.h"
#include "jit/plan/passes/relister.h"
#include "jit/plan/passes/strided_view.h"
#include "runtime/host/error.h"

namespace megjit::jit {
namespace {

using runtime::DType;

constexpr size_t kSmallCopy = 64 << 10;

class CopyKeeper {
public:
    CopyKeeper(const Graph& graph, const Step& step)
        : graph_(graph), step_(step), readers_(graph.value_count()), rewrite_(graph) {
        for (const Node& node : graph.nodes())
            for (const ValueId input : node.inputs) readers_[at(input)].push_back(&node);
        // What the caller gets has a reader that is no node.
        for (const ValueId output : graph.outputs) readers_[at(output)].push_back(nullptr);
        copies_.resize(graph.nodes().size());
        for (size_t k = 0; k < step_.outputs.size(); ++k) find_copy(k);
    }

    bool finds_some() const { return !replaced_.empty(); }

    Graph run() {
        for (size_t id = 0; id < graph_.nodes().size(); ++id) {
            const Node& node = graph_.nodes()[id];
            if (!is_read_no_more(node)) rewrite_.copy(node);
            if (copies_[id]) write(*copies_[id], node);
        }
        Graph result = rewrite_.finish();
        // Programs find copies by their slots, in whose order updates need not be made.
        std::ranges::sort(written_, {}, [](const auto& each) { return each.first.slot; });
        for (const auto& [copy, value] : written_) {
            result.copies.push_back(copy);
            result.copies.back().written = result.outputs.size();
            result.outputs.push_back(value);
        }
        return drop_dead(std::move(result));
    }

private:
    // A weight's casts, which are equal, and what the copy takes the place of.
    struct Found {
        const Node* cast = nullptr;
        const Node* whole = nullptr;  // adds zeros to the cast, or is the cast
        std::vector<ValueId> replaced = {};
    };

    void find_copy(size_t output) {
        const int slot = step_.outputs[output].replaces;
        const NodeId maker = graph_.value(graph_.outputs[output]).producer;
        if (slot < 0 || graph_.node(maker).kind != NodeKind::op || copies_[at(maker)]) return;
        const Input& given = step_.input(slot);
        if (!given.is_released || given.is_lent) return;
        const auto input = std::ranges::find_if(graph_.nodes(), [&](const Node& node) {
            return node.kind == NodeKind::input && node.slot == slot;
        });
        if (input == graph_.nodes().end()) return;
        const Found found = casts_of(input->outputs[0]);
        if (found.replaced.empty() ||
            !std::ranges::all_of(found.replaced,
                                 [&](ValueId value) { return is_read_before(value, maker); }) ||
            std::ranges::none_of(found.replaced,
                                 [&](ValueId value) { return is_read_as_it_is(value); }))
            return;
        add_copy(found, slot, output, input->outputs[0]);
    }

    Found casts_of(ValueId weight) const {
        Found found;
        for (const Node* const reader : readers_[at(weight)]) {
            if (!reader || !is_cast_to_halves(*reader)) continue;
            const Node* const whole = with_zeros(*reader);
            const ValueId made = whole->outputs[0];
            if (found.whole && !(graph_.type(made) == graph_.type(found.replaced[0]))) return {};
            found.cast = reader;
            found.whole = whole;
            found.replaced.push_back(made);
        }
        return found;
    }

    bool is_cast_to_halves(const Node& node) const {
        if (node.op != &ops::cast() || is_kept(node)) return false;
        const Type &from = graph_.type(node.inputs[0]), &to = graph_.type(node.outputs[0]);
        return (to.dtype == DType::f16 || to.dtype == DType::bf16) && from.dtype == DType::f32 &&
               from.layout == to.layout && to.bytes() > kSmallCopy;
    }

    // The only reader of the cast, if that sets zeros after its rows; else the cast.
    const Node* with_zeros(const Node& cast) const {
        const std::vector<const Node*>& readers = readers_[at(cast.outputs[0])];
        const Node* const reader = readers.size() == 1 ? readers[0] : nullptr;
        if (!reader || reader->op != &ops::concat() || reader->inputs.size() != 2 ||
            reader->inputs[0] != cast.outputs[0] || std::get<int64_t>(reader->attrs[0]) != 0 ||
            is_kept(*reader))
            return &cast;
        return graph_.producer(reader->inputs[1]).op == &ops::full() ? reader : &cast;
    }

    // `maker` makes the weight's next value.
    bool is_read_before(ValueId value, NodeId maker) const {
        return std::ranges::all_of(readers_[at(value)], [&](const Node* reader) {
            if (!reader) return false;
            const bool is_before = reader < &graph_.node(maker);
            return is_before && (!is_view(*reader) || is_read_before(reader->outputs[0], maker));
        });
    }

    bool is_read_as_it_is(ValueId value) const {
        return std::ranges::any_of(readers_[at(value)], [&](const Node* reader) {
            return is_view(*reader) ? is_read_as_it_is(reader->outputs[0])
                                    : reader->op->contraction || part_of(*reader) == Part::none;
        });
    }

    void add_copy(const Found& found, int slot, size_t output, ValueId weight) {
        const size_t bound = graph_.prologue ? graph_.prologue->outputs.size() : 0;
        KeptCopy copy{.slot = static_cast<int>(step_.inputs.size() + bound + count_++),
                      .of = slot,
                      .successor = output,
                      .maker = maker_of(found, weight)};
        const std::string name =
            runtime::cat(graph_.name(weight), " as ", runtime::info(copy.type().dtype).name);
        const ValueId read = rewrite_.to.add_input(copy.type(), copy.slot, name);
        for (const ValueId value : found.replaced) rewrite_.replace(value, read);
        replaced_.insert(replaced_.end(), found.replaced.begin(), found.replaced.end());
        copies_[at(graph_.value(graph_.outputs[output]).producer)] = {copy, found.cast};
    }

    // Returns the graph that makes the copy of the weight alone.
    std::shared_ptr<const Graph> maker_of(const Found& found, ValueId weight) const {
        Graph maker;
        maker.set_device(graph_.device());
        const auto copied = [&](const Node& like, std::vector<ValueId> inputs) {
            Node node = like;
            node.inputs = std::move(inputs);
            return maker.add(std::move(node), graph_.types(like.outputs))[0];
        };
        ValueId made = copied(*found.cast, {maker.add_input(graph_.type(weight), 0)});
        if (found.whole != found.cast) {
            const ValueId zeros = copied(graph_.producer(found.whole->inputs[1]), {});
            made = copied(*found.whole, {made, zeros});
        }
        maker.outputs = {made};
        return std::make_shared<const Graph>(std::move(maker));
    }

    bool is_read_no_more(const Node& node) const {
        return std::ranges::find(replaced_, node.outputs[0]) != replaced_.end();
    }

    struct Writing {
        KeptCopy copy;
        const Node* cast = nullptr;
    };

    // `maker` makes the weight's next value in the old graph.
    void write(const Writing& writing, const Node& maker) {
        Node cast = *writing.cast;
        cast.inputs = {rewrite_.map(graph_.outputs[writing.copy.successor])};
        cast.where = maker.where;
        cast.role = maker.role;
        const ValueId written =
            rewrite_.to.add(std::move(cast), graph_.types(writing.cast->outputs))[0];
        written_.emplace_back(writing.copy, written);
    }

    const Graph& graph_;
    const Step& step_;
    std::vector<std::vector<const Node*>> readers_;  // by value
    Rewriter rewrite_;
    std::vector<ValueId> replaced_;
    std::vector<std::optional<Writing>> copies_;  // by node that makes a weight's next value
    std::vector<std::pair<KeptCopy, ValueId>> written_;  // new values
    size_t count_ = 0;
};

}  // namespace

Graph keep_copies(Graph graph, const PipelineOptions& options) {
    const MemoryOptions& memory = options.memory;
    if (graph.device().is_host() || !options.step || memory.limit || memory.is_sublinear ||
        memory.only_looks)
        return graph;
    CopyKeeper keeper(graph, *options.step);
    return keeper.finds_some() ? keeper.run() : graph;
}

}  // namespace megjit::jit
