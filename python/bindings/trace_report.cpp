#include "python/bindings/trace_report.h"

#include "jit/api/backends.h"
#include "python/bindings/handle.h"
#include "runtime/host/error.h"

namespace megjit::python {

using jit::TraceFunction;

namespace {

nb::dict plan_dict(const jit::MemoryPlan& plan) {
    nb::dict result;
    result["unplanned_bytes"] = plan.unplanned_bytes;
    result["planned_bytes"] = plan.planned_bytes;
    result["peak_live_bytes"] = plan.peak_live_bytes;
    result["arena_bytes"] = plan.arena_bytes;
    result["workspace_bytes"] = plan.workspace_bytes;
    result["held_bytes"] = plan.held_bytes;
    result["host_bytes"] = plan.host_bytes;
    result["transferred_bytes"] = plan.transferred_bytes;
    result["written_bytes"] = plan.written_bytes;
    result["transfer_seconds"] = plan.transfers.seconds;
    result["waiting_seconds"] = plan.transfers.waited;
    result["recompute_flops_ratio"] = plan.recompute_flops_ratio;
    nb::list buffers;
    for (const jit::PlannedBuffer& buffer : plan.buffers) {
        nb::dict row;
        row["place"] = std::string(jit::name_of(buffer.place));
        row["offset"] = buffer.offset;
        row["bytes"] = buffer.bytes;
        row["first_step"] = buffer.live.first;
        row["last_step"] = buffer.live.last;
        row["use"] = std::string(jit::name_of(buffer.use));
        nb::list values;
        for (const std::string& value : buffer.values) values.append(value);
        row["values"] = values;
        buffers.append(row);
    }
    result["buffers"] = buffers;
    nb::list steps;
    for (const std::string& step : plan.steps) steps.append(step);
    result["steps"] = steps;
    nb::list curve;
    for (const jit::CurvePoint& point : plan.curve)
        curve.append(nb::make_tuple(point.bytes, point.seconds, point.is_chosen));
    result["curve"] = curve;
    return result;
}

nb::list strings(const std::vector<std::string>& texts) {
    nb::list result;
    for (const std::string& text : texts) result.append(text);
    return result;
}

// Returns the programs of the version that ran last, with all kernels; waits for them without
// Python's lock.
std::vector<jit::CompiledSegment> compiled(const TraceFunction& function) {
    const runtime::WithoutHostLock release;
    return function.compiled();
}

}  // namespace

nb::list kernels_of(const TraceFunction& function) {
    nb::list result;
    for (const jit::CompiledSegment& segment : compiled(function))
        for (const jit::KernelUse& use : segment.program->kernels()) {
            const codegen::CompiledKernel& kernel = *use.compiled;
            // To compile again for the text takes a while: nobody waits with the Python lock.
            const auto text = [](const std::function<std::string()>& make) {
                return nb::cpp_function([make] {
                    const runtime::WithoutHostLock release;
                    return make ? make() : std::string();
                });
            };
            nb::dict row;
            row["backend"] = kernel.backend;
            row["ops"] = strings(use.ops);
            row["choice"] = use.choice;
            row["where"] = use.where;
            row["bytes"] = use.bytes;
            row["source"] = text(kernel.source);
            row["assembly"] = text(kernel.assembly);
            row["ir"] = codegen::print(kernel.kernel);
            row["compile_ms"] = kernel.compile_ms;
            row["cached"] = kernel.cached;
            result.append(row);
        }
    return result;
}

nb::list plans_of(const TraceFunction& function) {
    nb::list result;
    for (const jit::CompiledSegment& segment : compiled(function))
        result.append(plan_dict(segment.program->plan()));
    return result;
}

nb::list plans_on(const TraceFunction& function, int arch) {
    std::vector<jit::SegmentPlan> plans;
    {
        const runtime::WithoutHostLock release;
        plans = function.planned_on(api::described_gpu(arch, /*for_plans=*/true));
    }
    nb::list result;
    for (const jit::SegmentPlan& segment : plans) {
        nb::dict plan = plan_dict(segment.plan);
        nb::list costs;
        for (const jit::StepCost& cost : segment.costs) {
            nb::dict row;
            row["ops"] = nb::tuple(strings(cost.ops));
            row["where"] = cost.where;
            row["by"] = cost.by;
            row["launches"] = cost.launches;
            row["blocks"] = cost.blocks;
            row["bytes"] = cost.bytes;
            row["flops"] = cost.flops;
            row["instructions"] = cost.instructions;
            row["instructions_of_element"] = cost.instructions_of_element;
            row["source"] = std::string(jit::name_of(cost.source));
            row["seconds"] = cost.seconds ? nb::cast(*cost.seconds) : nb::none();
            row["ir"] = cost.kernel;
            costs.append(row);
        }
        plan["costs"] = costs;
        result.append(plan);
    }
    return result;
}

nb::list profiles_of(const TraceFunction& function, bool of_all_versions) {
    std::vector<std::shared_ptr<jit::Version>> versions;
    if (of_all_versions) versions = function.versions();
    else if (auto latest = function.latest()) versions.push_back(std::move(latest));
    std::vector<jit::CompiledSegment> segments;
    for (const auto& version : versions)
        for (jit::CompiledSegment& segment : version->compiled_so_far())
            segments.push_back(std::move(segment));
    nb::list result;
    for (const auto& [recorded, program] : segments) {
        const jit::Profile profile = program->profile();
        nb::list steps;
        for (const jit::StepProfile& step : profile.steps) {
            nb::dict row;
            row["ops"] = strings(step.ops);
            row["where"] = step.where;
            row["step"] = step.step;
            row["backend"] = step.backend;
            row["bytes"] = step.bytes;
            row["launches"] = step.launches;
            row["seconds"] = step.seconds;
            row["is_transfer"] = step.is_transfer;
            row["last_begin"] = step.last_begin;
            row["last_seconds"] = step.last_seconds;
            steps.append(row);
        }
        nb::dict segment;
        segment["runs"] = profile.runs;
        segment["seconds"] = profile.seconds;
        segment["last_seconds"] = profile.last_seconds;
        segment["steps"] = steps;
        result.append(segment);
    }
    return result;
}

nb::list graphs_of(const TraceFunction& function, bool optimized, bool html) {
    nb::list result;
    for (const auto& [recorded, program] : compiled(function)) {
        const jit::Graph& graph = optimized ? program->graph() : recorded->graph;
        result.append(html ? to_html(graph, runtime::cat("segment ", nb::len(result)))
                           : print(graph));
    }
    return result;
}

}  // namespace megjit::python
