#include "tests/fuzz/minimize.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "runtime/eager/dispatch.h"
#include "runtime/host/error.h"

namespace megjit::fuzz {
namespace {

using jit::Node;
using jit::NodeKind;
using runtime::Shape;
using runtime::Type;

struct Edit {
    std::vector<ValueId> outputs = {};
    std::set<ValueId> known = {};  // become inputs that have the value they had
    std::map<ValueId, ValueId> instead = {};  // another value, of the same type, is read
    int64_t extent = 0, smaller = 0;  // each axis of this extent gets another one
};

Shape resized(const Shape& shape, const Edit& edit) {
    Shape result = shape;
    for (int axis = 0; axis < result.rank(); ++axis)
        if (edit.extent && result[axis] == edit.extent) result[axis] = edit.smaller;
    return result;
}

// The first elements along each axis.
TensorRef corner(const TensorRef& tensor, const Shape& shape) {
    if (shape == tensor->shape()) return tensor;
    TensorRef result = runtime::empty_tensor(runtime::host_device(), {tensor->dtype(), shape});
    const auto strides = tensor->shape().row_major_strides();
    const size_t size = size_of(tensor->dtype());
    for (int64_t i = 0; i < shape.numel(); ++i) {
        int64_t rest = i, from = 0;
        for (int axis = shape.rank() - 1; axis >= 0; --axis) {
            from += rest % shape[axis] * strides[static_cast<size_t>(axis)];
            rest /= shape[axis];
        }
        std::memcpy(result->as<char>() + static_cast<size_t>(i) * size,
                    tensor->as<char>() + static_cast<size_t>(from) * size, size);
    }
    return result;
}

// Every value, computed by the eager kernels.
std::vector<TensorRef> values_of(const Subject& subject) {
    Graph all = subject.graph;
    all.outputs.clear();
    for (size_t id = 0; id < all.value_count(); ++id)
        all.outputs.push_back(static_cast<ValueId>(id));
    return jit::interpret(all, subject.inputs);
}

class Editor {
public:
    Editor(const Subject& from, const std::vector<TensorRef>& values, const Edit& edit)
        : from_(from), values_(values), edit_(edit), map_(from.graph.value_count()) {}

    // Nothing if the ops do not accept the new extents.
    std::optional<Subject> run() {
        find_needed();
        try {
            for (const Node& node : from_.graph.nodes()) copy(node);
        } catch (const runtime::UserError&) { return std::nullopt; }
        for (ValueId output : edit_.outputs) to_.graph.outputs.push_back(map(output));
        return std::move(to_);
    }

private:
    ValueId read(ValueId id) const {
        const auto other = edit_.instead.find(id);
        return other == edit_.instead.end() ? id : other->second;
    }
    ValueId map(ValueId id) const { return map_[jit::at(read(id))]; }

    void find_needed() {
        needed_.assign(from_.graph.value_count(), false);
        for (ValueId output : edit_.outputs) needed_[jit::at(read(output))] = true;
        const auto& nodes = from_.graph.nodes();
        for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
            const bool is_computed = std::any_of(
                node->outputs.begin(), node->outputs.end(),
                [&](ValueId id) { return needed_[jit::at(id)] && !edit_.known.contains(id); });
            for (ValueId input : node->inputs)
                if (is_computed) needed_[jit::at(read(input))] = true;
        }
    }

    void copy(const Node& node) {
        const auto is_computed = [&](ValueId id) {
            return needed_[jit::at(id)] && !edit_.known.contains(id);
        };
        if (node.kind == NodeKind::constant && needed_[jit::at(node.outputs[0])]) {
            note(node.outputs[0], to_.graph.add_constant(corner(
                                      node.constant, resized(node.constant->shape(), edit_))));
        } else if (node.kind == NodeKind::op &&
                   std::any_of(node.outputs.begin(), node.outputs.end(), is_computed)) {
            Node fresh = node;
            for (ValueId& input : fresh.inputs) input = map(input);
            if (node.op->name == "reshape" || node.op->name == "broadcast_to" ||
                node.op->name == "full") {
                auto& shape = std::get<std::vector<int64_t>>(fresh.attrs[0]);
                const Shape smaller = resized(Shape{std::span<const int64_t>(shape)}, edit_);
                shape.assign(smaller.begin(), smaller.end());
            }
            const std::vector<Type> inputs = to_.graph.types(fresh.inputs),
                                    outputs = runtime::infer({*node.op, fresh.attrs, inputs});
            const std::vector<ValueId> ids = to_.graph.add(std::move(fresh), outputs);
            for (size_t k = 0; k < ids.size(); ++k) note(node.outputs[k], ids[k]);
        }
        for (ValueId id : node.outputs) {
            if (node.kind == NodeKind::constant || !needed_[jit::at(id)] ||
                (node.kind == NodeKind::op && is_computed(id)))
                continue;
            const TensorRef value =
                corner(values_[jit::at(id)], resized(values_[jit::at(id)]->shape(), edit_));
            note(id, to_.graph.add_input(value->type(), static_cast<int>(to_.inputs.size())));
            to_.inputs.push_back(value);
        }
    }

    void note(ValueId old, ValueId fresh) {
        map_[jit::at(old)] = fresh;
        to_.tolerance.resize(to_.graph.value_count());
        to_.tolerance[jit::at(fresh)] = from_.tolerance[jit::at(old)];
    }

    const Subject& from_;
    const std::vector<TensorRef>& values_;
    const Edit& edit_;
    Subject to_;
    std::vector<ValueId> map_;
    std::vector<bool> needed_;
};

class Minimizer {
public:
    Minimizer(Subject subject, const std::function<bool(const Subject&)>& fails)
        : best_(std::move(subject)), fails_(fails) {
        values_ = values_of(best_);
    }

    Subject run() {
        for (bool smaller = true; smaller;) {
            smaller = false;
            while (fewer_outputs()) smaller = true;
            while (fewer_nodes()) smaller = true;
            while (smaller_extents()) smaller = true;
        }
        return std::move(best_);
    }

private:
    Edit unchanged() const { return {.outputs = best_.graph.outputs}; }

    bool take(const Edit& edit) {
        std::optional<Subject> candidate = Editor(best_, values_, edit).run();
        if (!candidate || !fails_(*candidate)) return false;
        best_ = std::move(*candidate);
        values_ = values_of(best_);
        return true;
    }

    bool fewer_outputs() {
        const std::vector<ValueId> outputs = best_.graph.outputs;
        if (outputs.size() < 2) return false;
        for (ValueId output : outputs)
            if (take({.outputs = {output}})) return true;
        for (size_t k = 0; k < outputs.size(); ++k) {
            Edit edit = unchanged();
            edit.outputs.erase(edit.outputs.begin() + static_cast<ptrdiff_t>(k));
            if (take(edit)) return true;
        }
        return false;
    }

    bool fewer_nodes() {
        const auto& nodes = best_.graph.nodes();
        for (size_t n = nodes.size(); n-- > 0;) {
            if (nodes[n].kind != NodeKind::op) continue;
            Edit edit = unchanged();
            edit.known.insert(nodes[n].outputs.begin(), nodes[n].outputs.end());
            if (take(edit)) return true;
            for (ValueId input : nodes[n].inputs) {
                if (!(best_.graph.type(input) == best_.graph.type(nodes[n].outputs[0]))) continue;
                edit = unchanged();
                edit.instead[nodes[n].outputs[0]] = input;
                if (take(edit)) return true;
            }
        }
        return false;
    }

    bool smaller_extents() {
        std::set<int64_t> extents;
        for (size_t id = 0; id < best_.graph.value_count(); ++id)
            for (int64_t extent : best_.graph.type(static_cast<ValueId>(id)).shape)
                extents.insert(extent);
        for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent)
            for (int64_t smaller : {int64_t{1}, int64_t{2}, *extent / 2, *extent - 1}) {
                if (smaller < 1 || smaller >= *extent) continue;
                Edit edit = unchanged();
                edit.extent = *extent;
                edit.smaller = smaller;
                if (take(edit)) return true;
            }
        return false;
    }

    Subject best_;
    const std::function<bool(const Subject&)>& fails_;
    std::vector<TensorRef> values_;  // of best_
};

}  // namespace

Subject minimize(Subject subject, const std::function<bool(const Subject&)>& fails) {
    return Minimizer(std::move(subject), fails).run();
}

}  // namespace megjit::fuzz
