// Two groups that reduce the same value along the same axes, where no path leads from one to the
// other, become one. (None does if all readers of the lower one have levels above the other's.) The
// data are read once, and nothing but rows is written earlier than before. Likewise element-wise
// groups of few elements whose results one group reads: a kernel's start costs more than their
// work. On a GPU, which waits for memory, also element-wise groups that are the last to read a
// large value, which then leaves its memory to what is written earlier: the gradients of two norms
// whose sum was rectified.
#include <algorithm>
#include <limits>
#include <map>

#include "jit/plan/passes/fusion_group.h"

namespace megjit::jit {
namespace {

constexpr int64_t kSmall = 4096;  // elements of a group that is joined with others of its shape
constexpr size_t kLarge = size_t{1} << 20;  // bytes; fewer stay in a GPU's cache
constexpr ptrdiff_t kSiblings = 4;  // how many candidates are looked at

// The first reader of a group.
struct Reader {
    int level = std::numeric_limits<int>::max();
    int group = kNoGroup;
};

class SiblingJoiner {
public:
    explicit SiblingJoiner(Grouping& grouping)
        : grouping_(grouping), lowest_(lowest_readers()), readers_(grouping.graph.value_count()) {
        if (is_on_host()) return;
        for (size_t id = 0; id < grouping.graph.nodes().size(); ++id)
            for (ValueId input : grouping.graph.nodes()[id].inputs)
                readers_[at(input)].push_back(static_cast<NodeId>(id));
    }

    void run() {
        // By operand: groups that reduce it, and element-wise ones.
        std::map<ValueId, std::vector<int>> reducers, others;
        std::map<int, std::vector<int>> small;  // small groups, by the group that reads them
        for (int g = 0; g < static_cast<int>(grouping_.groups.size()); ++g) {
            const Group& of = grouping_.group(g);
            if (of.nodes.empty()) continue;
            const int reader = lowest_[static_cast<size_t>(g)].group;
            if (!of.reduced && of.shape.numel() <= kSmall && reader != kNoGroup)
                join_a_sibling(g, small[reader]);
            if (of.contracts || (of.reduced ? !writes_rows_only(g) : is_on_host())) continue;
            for (ValueId operand : std::vector(of.operands))
                if (grouping_.graph.type(operand).shape == of.shape &&
                    (of.reduced ? join_a_sibling(g, reducers[operand])
                                : join_a_last_reader(g, operand, others[operand])))
                    break;
        }
    }

private:
    bool join_a_sibling(int g, std::vector<int>& others) {
        const auto first =
            std::ssize(others) > kSiblings ? others.end() - kSiblings : others.begin();
        const auto sibling =
            std::find_if(first, others.end(), [&](int other) { return are_siblings(g, other); });
        if (sibling == others.end()) {
            others.push_back(g);
            return false;
        }
        grouping_.absorb(g, *sibling);
        Reader& lowest = lowest_[static_cast<size_t>(*sibling)];
        if (lowest_[static_cast<size_t>(g)].level < lowest.level)
            lowest = lowest_[static_cast<size_t>(g)];
        return true;
    }
    bool join_a_last_reader(int g, ValueId operand, std::vector<int>& others) {
        std::vector<int> fitting;
        for (const int other : others)
            if (read_it_last(operand, g, other)) fitting.push_back(other);
        others.push_back(g);
        return join_a_sibling(g, fitting);
    }
    bool is_on_host() const { return grouping_.graph.device().is_host(); }
    // Have all others read a large value before these groups, and is it no smaller than what either
    // of them writes?
    bool read_it_last(ValueId value, int a, int b) const {
        const size_t bytes = grouping_.graph.type(value).bytes();
        const int level = std::min(grouping_.group(a).level, grouping_.group(b).level);
        const auto has_read = [&](NodeId reader) {
            const int by = grouping_.group_of[at(reader)];
            return by == a || by == b || grouping_.level_of(reader) < level;
        };
        return bytes >= kLarge && grouping_.graph.producer(value).kind == NodeKind::op &&
               std::ranges::count(grouping_.graph.outputs, value) == 0 &&
               bytes_written(a) <= bytes && bytes_written(b) <= bytes &&
               std::ranges::all_of(readers_[at(value)], has_read);
    }
    size_t bytes_written(int g) const {
        size_t bytes = 0;
        for (const NodeId id : grouping_.group(g).nodes)
            if (const ValueId value = grouping_.graph.node(id).outputs[0];
                grouping_.escapes[at(value)])
                bytes += grouping_.graph.type(value).bytes();
        return bytes;
    }
    bool are_siblings(int a, int b) const {
        const Group &x = grouping_.group(a), &y = grouping_.group(b);
        if (a == b || y.nodes.empty() || !(x.shape == y.shape) || x.layout != y.layout ||
            x.reduced != y.reduced || x.nodes.size() + y.nodes.size() > kMaxOps)
            return false;
        const int lower = x.level < y.level ? a : b, level = std::max(x.level, y.level);
        return (x.level == y.level || lowest_[static_cast<size_t>(lower)].level > level) &&
               grouping_.joint_operands(a, b).size() <= kMaxOperands;
    }
    std::vector<Reader> lowest_readers() const {
        std::vector<Reader> lowest(grouping_.groups.size());
        for (size_t id = 0; id < grouping_.graph.nodes().size(); ++id) {
            const int own = grouping_.group_of[id],
                      level = grouping_.level_of(static_cast<NodeId>(id));
            for (ValueId input : grouping_.graph.nodes()[id].inputs)
                if (const int g = grouping_.group_of_value(input);
                    g != kNoGroup && g != own && level < lowest[static_cast<size_t>(g)].level)
                    lowest[static_cast<size_t>(g)] = {level, own};
        }
        return lowest;
    }
    bool writes_rows_only(int g) const {
        return std::all_of(grouping_.group(g).nodes.begin(), grouping_.group(g).nodes.end(),
                           [&](NodeId id) {
            return grouping_.form_of[at(id)] != Form::element ||
                   !grouping_.escapes[at(grouping_.graph.node(id).outputs[0])];
        });
    }

    Grouping& grouping_;
    std::vector<Reader> lowest_;  // by group
    std::vector<std::vector<NodeId>> readers_;  // by value; on a GPU alone
};

}  // namespace

void join_siblings(Grouping& grouping) { SiblingJoiner(grouping).run(); }

}  // namespace megjit::jit
