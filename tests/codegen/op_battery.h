// Every element-wise op of the registry, and every gradient derived from one, as kernels: by dtype,
// and by how operands lie. Several ops share a kernel, so that a compiler's start is paid seldom.
#pragma once

#include "codegen/expand_math.h"
#include "tests/codegen/random_kernels.h"

namespace megjit::codegen {

enum class Placement : uint8_t {
    contiguous,  // scalars, nothing at all, and lengths that fill no vector
    broadcast,  // each operand along other axes
    strided,  // transposed, and every second element
};

// Names of tests; gtest's macros have a parameter `info`.
inline std::string_view tag_of(DType dtype) { return info(dtype).tag; }
inline std::string_view name_of(Placement placement) {
    switch (placement) {
        case Placement::contiguous: return "contiguous";
        case Placement::broadcast: return "broadcast";
        case Placement::strided: return "strided";
    }
    return "";
}

struct BatteryCase {
    std::string name;
    std::vector<Case> cases;  // of one kernel, which is expanded
};

namespace battery {

struct Application {
    const OpDef* op = nullptr;
    Attrs attrs = {};
    std::vector<DType> inputs = {};
    DType output = DType::f32;
};

inline bool takes(const OpDef& op, DType dtype) {
    const Category category = info(dtype).category;
    switch (op.promotion) {
        case Promotion::none: return true;
        case Promotion::arithmetic: return category != Category::boolean;
        case Promotion::floating: return category == Category::floating;
        case Promotion::boolean: return category == Category::boolean;
        case Promotion::integer: return category == Category::integer;
    }
    return false;
}

inline std::vector<Application> applications(DType dtype) {
    std::vector<Application> found;
    const auto add = [&](const OpDef& op, Attrs attrs, std::vector<DType> inputs) {
        std::vector<Type> types;
        for (DType input : inputs) types.push_back({input, {2}});
        const OpCall call{op, attrs, types};
        const Type output = infer(call)[0];
        found.push_back({&op, attrs, inputs, output.dtype});
        std::vector<DType> all = inputs;
        all.insert(all.end(), 2, output.dtype);  // the result and its gradient
        for (size_t k = 0; k < inputs.size() && is_floating(dtype); ++k) {
            if (op.name == "digamma") continue;  // its gradient is refused
            const DerivedGrad* grad = derive_grad(op, types, output, static_cast<int>(k));
            if (!grad || grad->is_identity) continue;
            std::vector<DType> operands;
            std::vector<Type> operand_types;
            for (int operand : grad->operands)
                operands.push_back(all[static_cast<size_t>(operand)]),
                    operand_types.push_back({operands.back(), {2}});
            found.push_back(
                {grad->op, attrs, operands, infer({*grad->op, attrs, operand_types})[0].dtype});
        }
    };
    for (const OpDef* op : all_ops()) {
        if (!op->is_elementwise() || !takes(*op, dtype)) continue;
        std::vector<DType> inputs(op->inputs.size(), dtype);
        for (size_t i = 0; i < inputs.size(); ++i)
            if (op->kind_of(i) == OperandKind::mask) inputs[i] = DType::b8;
        if (op->name == "cast") {
            for (DType to : kScalarDTypes) add(*op, {std::string(info(to).name)}, inputs);
            continue;
        }
        Attrs attrs;
        for (const AttrSpec& attr : op->attrs) attrs.push_back(*attr.fallback);
        add(*op, attrs, inputs);
    }
    return found;
}

inline std::vector<int64_t> strides_of(Placement placement, size_t operand) {
    static const std::vector<std::vector<int64_t>> broadcast = {{7, 0, 1},
                                                                {0, 1, 0},
                                                                {0, 0, 1},
                                                                {21, 7, 1}},
                                                   strided = {{1, 9}, {14, 2}, {7, 1}, {2, 18}};
    if (placement == Placement::contiguous) return {1};
    return (placement == Placement::broadcast ? broadcast : strided)[operand % 4];
}

// Operand k of every application is input k of the kernel, if the dtypes agree.
inline KernelSpec spec_of(std::span<const Application> applications, Placement placement) {
    KernelSpec spec;
    spec.extents = placement == Placement::contiguous  ? std::vector<int64_t>{1021}
                   : placement == Placement::broadcast ? std::vector<int64_t>{5, 3, 7}
                                                       : std::vector<int64_t>{9, 7};
    for (const Application& application : applications) {
        std::vector<int> args;
        std::vector<bool> used;
        for (DType dtype : application.inputs) {
            size_t k = 0;
            used.resize(spec.inputs.size() + 1);
            while (k < spec.inputs.size() && (used[k] || spec.inputs[k].dtype != dtype)) ++k;
            if (k == spec.inputs.size())
                spec.inputs.push_back({.dtype = dtype, .strides = strides_of(placement, k)});
            used[k] = true;
            args.push_back(spec.program.input(static_cast<int>(k), compute_type(dtype)));
        }
        std::vector<Type> types;
        for (DType dtype : application.inputs) types.push_back({dtype, {2}});
        ScalarProgram one;
        const int result =
            build_expr({*application.op, application.attrs, types}, application.output, one);
        spec.results.push_back(spec.program.inline_program(one, result, args));
        std::vector<int64_t> strides(spec.extents.size(), 1);
        for (size_t axis = strides.size() - 1; axis-- > 0;)
            strides[axis] = strides[axis + 1] * spec.extents[axis + 1];
        spec.outputs.push_back({.dtype = application.output, .strides = std::move(strides)});
    }
    return spec;
}

inline void fill_inputs(Case& c, uint64_t seed) {
    Random random(seed);
    c.inputs.clear();
    for (size_t i = 0; i < c.kernel.inputs.size(); ++i) {
        int64_t count = 1;
        for (size_t axis = 0; axis < c.launch.extents.size(); ++axis)
            count += std::max<int64_t>(c.launch.extents[axis] - 1, 0) * c.stride(i, axis);
        c.inputs.emplace_back(static_cast<size_t>(count) * size_of(c.kernel.inputs[i].dtype));
        random.fill(c.kernel.inputs[i].dtype, c.inputs.back().data(), count);
    }
}

}  // namespace battery

// The kernels of one dtype and placement.
inline std::vector<BatteryCase> op_battery(DType dtype, Placement placement) {
    constexpr size_t kOpsPerKernel = 6;
    const std::vector<battery::Application> all = battery::applications(dtype);
    std::vector<BatteryCase> result;
    for (size_t first = 0; first < all.size(); first += kOpsPerKernel) {
        const auto some =
            std::span(all).subspan(first, std::min(kOpsPerKernel, all.size() - first));
        BatteryCase entry;
        for (const battery::Application& application : some)
            entry.name = cat(entry.name, application.op->name, " ");
        const BoundKernel bound = bind(battery::spec_of(some, placement));
        // Functions of float64 have the C library's bits everywhere.
        const bool expands = can_expand_math(bound.kernel.program);
        Case c{.kernel = expands ? expand_math(bound.kernel) : bound.kernel,
               .launch = bound.launch,
               .inputs = {}};
        const std::vector<int64_t> lengths = placement == Placement::contiguous
                                                 ? std::vector<int64_t>{0, 1, 17, 1021}
                                                 : std::vector<int64_t>{c.launch.extents.back()};
        for (int64_t length : lengths) {
            c.launch.extents.back() = length;
            battery::fill_inputs(c, first + static_cast<uint64_t>(length));
            entry.cases.push_back(c);
        }
        result.push_back(std::move(entry));
    }
    return result;
}

// "" or the first element that has other bits than the interpreter gives.
inline std::string battery_fault_of(const Case& c, const std::vector<std::vector<char>>& got,
                                    const std::vector<std::vector<char>>& want) {
    for (size_t k = 0; k < want.size(); ++k)
        if (std::string fault = fault_of(c, k, got[k], want[k]); !fault.empty()) return fault;
    return "";
}

}  // namespace megjit::codegen
