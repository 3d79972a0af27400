// Two groups that reduce the same value along the same axes, where no path leads from one to the
// other, become one. (None does if all readers of the lower one have levels above the other's.) The
// data are read once, and nothing but rows is written earlier than before. Likewise element-wise
// groups of few elements whose results one group reads: a kernel's start costs more than their
// work.
#include <algorithm>
#include <limits>
#include <map>

#include "jit/plan/passes/fusion_group.h"

namespace megjit::jit {
namespace {

constexpr int64_t kSmall = 4096;  // elements of a group that is joined with others of its shape
constexpr ptrdiff_t kSiblings = 4;  // how many candidates are looked at

// The first reader of a group.
struct Reader {
    int level = std::numeric_limits<int>::max();
    int group = kNoGroup;
};

class SiblingJoiner {
public:
    explicit SiblingJoiner(Grouping& grouping) : grouping_(grouping), lowest_(lowest_readers()) {}

    void run() {
        std::map<ValueId, std::vector<int>> reducers;  // groups that reduce an operand
        std::map<int, std::vector<int>> small;  // small groups, by the group that reads them
        for (int g = 0; g < static_cast<int>(grouping_.groups.size()); ++g) {
            const Group& of = grouping_.group(g);
            if (of.nodes.empty()) continue;
            const int reader = lowest_[static_cast<size_t>(g)].group;
            if (!of.reduced && of.shape.numel() <= kSmall && reader != kNoGroup)
                join_a_sibling(g, small[reader]);
            if (!of.reduced || of.contracts || !writes_rows_only(g)) continue;
            for (ValueId operand : std::vector(of.operands))
                if (grouping_.graph.type(operand).shape == of.shape &&
                    join_a_sibling(g, reducers[operand]))
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
};

}  // namespace

void join_siblings(Grouping& grouping) { SiblingJoiner(grouping).run(); }

}  // namespace megjit::jit
