#include "backends/cuda/products/cudnn_plan.h"

#include <algorithm>

#include "backends/cuda/products/plan_cache.h"
#include "runtime/host/error.h"

namespace megjit::cuda::cudnn {
namespace {

using runtime::cat;
using runtime::DeviceError;

Descriptor device_of(const Library& library, const std::string& json) {
    Descriptor device(library, Kind::device);
    device.set(kDeviceText, json).finalize("the description of the card");
    return device;
}

// An entry of the cache: the engine's name, a line feed, the library's text.
std::string entry_of(const Plan& plan) { return cat(plan.engine(), "\n", plan.text()); }

bool is_float32_product(const Graph& graph) {
    const bool has_product =
        std::any_of(graph.operations.begin(), graph.operations.end(), [](const Operation& op) {
        return op.kind == Kind::conv_forward || op.kind == Kind::conv_data ||
               op.kind == Kind::conv_filter || op.kind == Kind::matmul_op;
    });
    return has_product &&
           std::none_of(graph.tensors.begin(), graph.tensors.end(), [](const TensorSpec& tensor) {
        return tensor.type == DataType::f16 || tensor.type == DataType::bf16;
    });
}

}  // namespace

// Counts what became of the library's proposals.
struct Planner::Tally {
    size_t proposed = 0, barred = 0, too_large = 0;
    std::string failure = {};  // reason of the last failure

    std::string reason(bool is_strict, const Limits& limits) const {
        if (proposed == 0 && failure.empty()) return " has no engine for it";
        if (proposed > 0 && barred == proposed)
            return cat(" has ", proposed, " engines for it, and all ",
                       is_strict ? "use tensor cores, which round float32 to 11 bits"
                                 : "add up in less than float32, or in another order each time");
        if (too_large > 0)
            return cat(" needs more than ", limits.workspace_bytes, " bytes of workspace for it");
        return cat(" can build no engine for it: ", failure);
    }
};

Plan::Plan(std::vector<Descriptor> parts, std::string engine, GraphRef graph)
    : graph_(std::move(graph)),
      parts_(std::move(parts)),
      workspace_bytes_(static_cast<size_t>(parts_.back().integer(kPlanWorkspace))),
      engine_(std::move(engine)) {}

void Plan::run(Handle handle, const std::vector<int64_t>& ids, const std::vector<void*>& pointers,
               void* workspace) const {
    const Library& library = parts_.back().library();
    Descriptor pack(library, Kind::variant_pack);
    pack.set(kPackIds, ids)
        .set(kPackPointers, pointers)
        .set(kPackWorkspace, std::vector<void*>{workspace})
        .finalize("the operands of a run");
    library.check(library.call().execute(handle, parts_.back().raw(), pack.raw()), engine_);
}

Planner::Planner(const Library& library, const CardDescription& card, Limits limits)
    : library_(library),
      limits_(limits),
      card_key_(cat("sm_", card.arch, " x ", card.multiprocessors)),
      card_json_(to_json(card)) {}

// Halves are added up in float32. Whether tensor cores may compute matters for products alone:
// engines of other graphs carry the note, too, but have nothing to multiply with them.
bool Planner::may_use(const Descriptor& engine, bool is_strict) const {
    const std::vector<NumericalNote> notes = engine.notes();
    const auto has = [&](NumericalNote note) {
        return std::find(notes.begin(), notes.end(), note) != notes.end();
    };
    if (has(NumericalNote::reduces_precision)) return false;
    if (limits_.deterministic && has(NumericalNote::nondeterministic)) return false;
    return !is_strict ||
           (!has(NumericalNote::tensor_core) && !has(NumericalNote::down_converts_inputs));
}

PlanRef Planner::build(const GraphRef& graph, Descriptor config, bool is_strict,
                       Tally& tally) const {
    ++tally.proposed;
    const std::vector<Descriptor> engine = config.descriptors(kConfigEngine, Kind::engine);
    if (!may_use(engine.at(0), is_strict)) {
        ++tally.barred;
        return nullptr;
    }
    try {
        std::vector<Descriptor> parts;
        parts.push_back(std::move(config));
        Descriptor plan(library_, Kind::plan);
        plan.set(kPlanConfig, parts[0]).finalize("a plan");
        parts.push_back(std::move(plan));
        auto made = std::make_shared<const Plan>(
            std::move(parts), cat("engine ", engine[0].integer(kEngineIndex)), graph);
        if (made->workspace_bytes() <= limits_.workspace_bytes) return from_text(made);
        ++tally.too_large;
    } catch (const DeviceError& error) { tally.failure = error.what(); }
    return nullptr;
}

std::vector<PlanRef> Planner::proposals(const Graph& graph, size_t count,
                                        std::string* why_not) const {
    std::vector<PlanRef> found;
    *why_not = fault_of(graph);
    if (!why_not->empty()) return found;
    const bool is_strict = !limits_.tf32 && is_float32_product(graph);
    Tally tally;
    try {
        const Descriptor device = device_of(library_, card_json_);
        const auto described =
            std::make_shared<const std::vector<Descriptor>>(descriptors_of(library_, graph));
        for (HeuristicMode mode : {HeuristicMode::a, HeuristicMode::fallback}) {
            Descriptor heuristic(library_, Kind::heuristic);
            heuristic.set(kHeuristicGraph, described->back())
                .set(kHeuristicMode, choice(mode))
                .set(kHeuristicDevice, device)
                .finalize("the search for engines");
            for (Descriptor& config :
                 heuristic.descriptors(kHeuristicResults, Kind::engine_config)) {
                if (found.size() == count) return found;
                if (auto plan = build(described, std::move(config), is_strict, tally))
                    found.push_back(std::move(plan));
            }
        }
    } catch (const DeviceError& error) { tally.failure = error.what(); }
    if (found.empty())
        *why_not = cat("cuDNN ", library_.version(), tally.reason(is_strict, limits_));
    return found;
}

PlanRef Planner::plan(const Graph& graph, std::string* why_not) const {
    const std::string plain = key(graph, false);
    for (const std::string& known : {key(graph, true), plain})
        if (PlanRef found = load(known)) return found;
    std::vector<PlanRef> found = proposals(graph, 1, why_not);
    if (found.empty()) return nullptr;
    store(plain, *found[0]);
    return found[0];
}

bool Planner::is_chosen(const Graph& graph) const { return load(key(graph, true)) != nullptr; }
void Planner::choose(const Graph& graph, const Plan& plan) const { store(key(graph, true), plan); }

std::string Planner::key(const Graph& graph, bool chosen) const {
    return cat("cuDNN\nplan of ", library_.version(), " for ", card_key_, chosen ? ", by time" : "",
               limits_.tf32 ? ", tf32" : "", limits_.deterministic ? ", deterministic" : "", ", ",
               limits_.workspace_bytes, " bytes\n", text_of(graph));
}

PlanRef Planner::load(const std::string& key) const {
    const std::optional<std::string> entry = cached_plan(key);
    return entry ? read(*entry) : nullptr;
}

PlanRef Planner::read(const std::string& entry) const {
    const size_t line = entry.find('\n');
    if (line == std::string::npos) return nullptr;
    try {
        const Descriptor device = device_of(library_, card_json_);
        std::vector<Descriptor> parts;
        parts.emplace_back(library_, Kind::plan)
            .set(kPlanDevice, device)
            .set(kPlanText, entry.substr(line + 1))
            .finalize("a plan from the cache");
        return std::make_shared<const Plan>(std::move(parts), entry.substr(0, line), nullptr);
    } catch (const DeviceError&) { return nullptr; }  // the graph is planned anew, and stored again
}

PlanRef Planner::from_text(const PlanRef& plan) const {
    try {
        if (PlanRef again = read(entry_of(*plan))) return again;
    } catch (const DeviceError&) {  // the engine cannot be serialized
    }
    return plan;
}

void Planner::store(const std::string& key, const Plan& plan) const {
    try {
        cache_plan(key, entry_of(plan));
    } catch (const DeviceError&) {  // the engine cannot be serialized
    }
}

}  // namespace megjit::cuda::cudnn
