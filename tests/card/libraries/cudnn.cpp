// tests/card/libraries/cudnn.cpp -- a library with cuDNN's ABI: those of its functions that we
// call. Attention is for halves, as cuDNN's engines are; engines for float32 that are fast use
// TF32, and say so; a convolution of float32 with two summands and relu has no engine, as on cards
// before Blackwell (tests/cudnn/refusals.txt).
#include <algorithm>
#include <cstring>
#include <sstream>
#include <type_traits>

#include "tests/card/libraries/cudnn_descriptor.h"

namespace megjit::cuda::cudnn {

struct OpaqueCudnn {
    card_libraries::Home home;
    void* stream = nullptr;
};

namespace {

using namespace card_libraries;
using card_libraries::call;

constexpr size_t kVersion = 99999;  // 9.99.99: no real library has the plans of this one
constexpr size_t kCudaVersion = 13000;
// Numbers of the driver's interface.
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;

OpaqueCudnn& with_context(Handle handle) {
    live().expect(handle, "handle");
    handle->home.check_current(kNotInitialized);
    return *handle;
}

// ---- engines

enum Engine : int { kTensorCores = 38, kPlain = 1, kAtomic = 0 };

bool has_kind(const Graph& graph, std::initializer_list<Kind> kinds) {
    return std::any_of(graph.steps.begin(), graph.steps.end(), [&](const Step& step) {
        return std::count(kinds.begin(), kinds.end(), step.kind) > 0;
    });
}
bool is_float32(const Graph& graph) {
    return std::none_of(graph.tensors.begin(), graph.tensors.end(), [](const auto& entry) {
        return entry.second.type == Element::f16 || entry.second.type == Element::bf16;
    });
}

std::vector<int> engines_of(const Graph& graph) {
    const bool is_float = is_float32(graph);
    const auto steps = std::count_if(graph.steps.begin(), graph.steps.end(), [](const Step& step) {
        return step.kind == Kind::pointwise_op;
    });
    if (is_float && has_kind(graph, {Kind::matmul_op})) return {};
    const bool is_conv = has_kind(graph, {Kind::conv_forward, Kind::conv_data, Kind::conv_filter});
    if (is_float && is_conv && steps >= 3) return {kTensorCores};
    std::vector<int> engines;
    if (is_conv || has_kind(graph, {Kind::matmul_op})) engines.push_back(kTensorCores);
    engines.push_back(kPlain);
    if (has_kind(graph, {Kind::conv_data, Kind::conv_filter})) engines.push_back(kAtomic);
    return engines;
}

std::vector<NumericalNote> notes_of(int engine) {
    if (engine == kTensorCores)
        return {NumericalNote::tensor_core, NumericalNote::down_converts_inputs};
    if (engine == kAtomic) return {NumericalNote::nondeterministic};
    return {};
}

size_t workspace_of(int engine, const Graph& graph) {
    if (!has_kind(graph, {Kind::conv_forward, Kind::conv_data, Kind::conv_filter})) return 0;
    return engine == kTensorCores ? 5000 : engine == kPlain ? 1000 : 0;  // no round numbers
}

// What a plan fits: the architecture and the multiprocessors of a card.
std::string card_in(const std::string& json) {
    const auto number = [&](const char* key) {
        const size_t at = json.find(cat("\"", key, "\": "));
        if (at == std::string::npos) throw Misuse(kBadParameter, cat("the card has no ", key));
        return std::to_string(std::atoi(json.c_str() + at + std::strlen(key) + 4));
    };
    return "sm " + number("deviceVer") + " x " + number("multiProcessorCount");
}
std::string card_of(const Home& home) {
    return cat("sm ", 100 * home.attribute(kMajor) + 10 * home.attribute(kMinor), " x ",
               home.attribute(kMultiprocessors));
}

// ---- plans

std::string text_of(const PlanFacts& plan) {
    return cat("a plan of the stand-in\n", plan.engine, " ", plan.workspace, "\n", plan.card, "\n",
               to_text(plan.graph));
}

PlanFacts plan_of(const std::string& text) {
    std::istringstream from(text);
    std::string head, numbers, rest;
    PlanFacts plan;
    std::getline(from, head), std::getline(from, numbers), std::getline(from, plan.card);
    std::getline(from, rest, '\0');
    const std::optional<Graph> graph = graph_of(rest);
    if (head != "a plan of the stand-in" || !graph)
        throw Misuse(kBadParameter, "the text of a plan is damaged");
    std::istringstream(numbers) >> plan.engine >> plan.workspace;
    plan.graph = *graph;
    return plan;
}

// Plans do not own what they were made of.
void check_graph(const PlanFacts& plan) {
    if (!plan.made_of) return;
    live().expect(plan.made_of, "descriptor");
    if (plan.made_of->serial != plan.serial)
        throw Misuse(kBadParameter, "the graph of the plan is no live descriptor");
}

void finalize_plan(Descriptor& d) {
    d.finalize();
    if (d.has(kPlanText)) {
        d.plan = plan_of(d.text(kPlanText));
        if (d.has(kPlanDevice) && card_in(d.one(kPlanDevice).text(kDeviceText)) != d.plan.card)
            throw Misuse(kBadParameter, cat("the plan was made for ", d.plan.card));
        return;
    }
    if (!d.has(kPlanConfig)) throw Misuse(kBadParameter, "a plan is of a configuration or a text");
    const Descriptor& config = d.one(kPlanConfig);
    if (!config.is_given) throw Misuse(kBadParameter, "the configuration is none of a heuristic's");
    d.plan = config.plan;
    check_graph(d.plan);
}

// ---- what the library gives

void give(const Descriptor& heuristic, std::vector<Descriptor*> into, int64_t* count) {
    const Descriptor &graph = heuristic.one(kHeuristicGraph),
                     &device = heuristic.one(kHeuristicDevice);
    PlanFacts plan{.graph = graph_of(graph),
                   .card = card_in(device.text(kDeviceText)),
                   .made_of = &graph,
                   .serial = graph.serial};
    std::vector<int> engines = engines_of(plan.graph);
    if (heuristic.number(kHeuristicMode) == static_cast<int64_t>(HeuristicMode::fallback))
        std::erase(engines, kTensorCores);
    *count = static_cast<int64_t>(engines.size());
    for (size_t i = 0; i < std::min(into.size(), engines.size()); ++i) {
        if (into[i]->kind != Kind::engine_config || into[i]->is_final)
            throw Misuse(kBadParameter, "a heuristic fills fresh configurations");
        plan.engine = engines[i];
        plan.workspace = workspace_of(plan.engine, plan.graph);
        into[i]->plan = plan;
        into[i]->is_given = into[i]->is_final = true;
    }
    if (!into.empty()) *count = std::min(*count, static_cast<int64_t>(into.size()));
}

template <class T>
void give_all(const std::vector<T>& from, int64_t room, int64_t* count, void* values) {
    *count = static_cast<int64_t>(from.size());
    if (values)
        std::memcpy(values, from.data(),
                    sizeof(T) * std::min(from.size(), static_cast<size_t>(room)));
}

void get(Descriptor& d, int name, Tag tag, int64_t room, int64_t* count, void* values) {
    if (!d.is_final) throw Misuse(kNotInitialized, "what is not finalized tells nothing");
    const auto is_asked = [&](Kind kind, int attribute, Tag of) {
        return d.kind == kind && name == attribute && tag == of;
    };
    std::vector<Descriptor*> into;
    if (tag == Tag::descriptor && values)
        for (int64_t i = 0; i < room; ++i)
            into.push_back(&checked(static_cast<RawDescriptor*>(values)[i]));
    if (is_asked(Kind::heuristic, kHeuristicResults, Tag::descriptor)) return give(d, into, count);
    if (is_asked(Kind::engine_config, kConfigEngine, Tag::descriptor)) {
        *count = 1;
        if (into.empty()) return;
        into[0]->engine = d.plan.engine;
        into[0]->is_final = true;
        return;
    }
    if (is_asked(Kind::engine, kEngineIndex, Tag::int64))
        return give_all(std::vector<int64_t>{d.engine}, room, count, values);
    if (is_asked(Kind::engine, kEngineNotes, Tag::numerical_note))
        return give_all(notes_of(d.engine), room, count, values);
    if (is_asked(Kind::plan, kPlanWorkspace, Tag::int64))
        return give_all(std::vector<int64_t>{static_cast<int64_t>(d.plan.workspace)}, room, count,
                        values);
    if (is_asked(Kind::plan, kPlanText, Tag::text)) {
        const std::string text = text_of(d.plan);
        return give_all(std::vector<char>(text.begin(), text.end()), room, count, values);
    }
    throw Misuse(kBadParameter, cat("attribute ", name, " is none that is asked for"));
}

// ---- a run

// Operands in memory of the card, and numbers that are given with the run.
struct Bound {
    std::vector<Operand> operands;
    std::vector<int64_t> ids;
    std::map<int64_t, std::vector<std::byte>> numbers;
};

bool is_on_card(const void* pointer) {
    int type = 0;
    constexpr int kTypeOfPointer = 2, kDevice = 2;
    return driver("cuPointerGetAttribute", static_cast<void*>(&type), kTypeOfPointer,
                  reinterpret_cast<uint64_t>(pointer)) == 0 &&
           type == kDevice;
}

Bound bind(const Graph& graph, const Descriptor& pack) {
    std::map<int64_t, const void*> given;
    const Dims ids = pack.numbers(kPackIds), pointers = pack.numbers(kPackPointers);
    for (size_t i = 0; i < ids.size(); ++i) {
        if (!graph.tensors.contains(ids[i]) || graph.tensors.at(ids[i]).is_virtual)
            throw Misuse(kBadParameter, cat("tensor ", ids[i], " is none that is given"));
        given[ids[i]] = reinterpret_cast<const void*>(pointers[i]);
    }
    std::map<int64_t, bool> written;
    for (const Step& step : graph.steps)
        for (const auto& [port, id] : step.ports) written[id] |= is_written(step.kind, port);
    Bound bound;
    for (const auto& [id, tensor] : graph.tensors) {
        if (tensor.is_virtual) continue;
        if (!given[id]) throw Misuse(kBadParameter, cat("tensor ", id, " is not given"));
        if (tensor.is_by_value) {
            if (is_on_card(given[id]))
                throw Misuse(kBadParameter, cat("number ", id, " lies in memory of a card"));
            const auto* bytes = static_cast<const std::byte*>(given[id]);
            bound.numbers[id].assign(bytes, bytes + tensor.bytes());
            continue;
        }
        bound.ids.push_back(id);
        bound.operands.push_back({cat("tensor ", id), given[id], tensor.bytes(),
                                  static_cast<size_t>(tensor.alignment), written[id], tensor.dims,
                                  tensor.strides, card_libraries::size_of(tensor.type)});
    }
    return bound;
}

void execute(OpaqueCudnn& handle, const Descriptor& plan, const Descriptor& pack) {
    if (plan.kind != Kind::plan || pack.kind != Kind::variant_pack || !plan.is_final ||
        !pack.is_final)
        throw Misuse(kBadParameter, "a finalized plan is run with finalized operands");
    if (!plan.has(kPlanText))
        throw Misuse(kNotSupported, "a plan that was made without a handle is run from its text");
    const PlanFacts& facts = plan.plan;
    if (facts.card != card_of(handle.home))
        throw Misuse(kNotSupported,
                     cat("the plan was made for ", facts.card, ", not ", card_of(handle.home)));
    handle.home.check_stream(kBadParameter, handle.stream);
    Bound bound = bind(facts.graph, pack);
    std::vector<Operand> operands = bound.operands;
    if (facts.workspace)
        operands.push_back({"the workspace",
                            reinterpret_cast<const void*>(pack.number(kPackWorkspace)),
                            facts.workspace, kWorkspaceAlign, true});
    check_operands(kBadParameter, operands, handle.home);
    const bool is_tf32 = facts.engine == kTensorCores && is_float32(facts.graph);
    queue(kInternal, handle.stream, cat("cuDNN's engine ", facts.engine), operands,
          flops_of(facts.graph),
          [graph = facts.graph, bound = std::move(bound),
           is_tf32](const std::vector<std::byte*>& at) {
        std::map<int64_t, std::byte*> places;
        for (size_t i = 0; i < bound.ids.size(); ++i) places[bound.ids[i]] = at[i];
        for (const auto& [id, bytes] : bound.numbers)
            places[id] = const_cast<std::byte*>(bytes.data());
        run(graph, is_tf32, places);
    });
}

}  // namespace

MEGJIT_LIBRARY_API size_t cudnnGetVersion() { return kVersion; }
MEGJIT_LIBRARY_API size_t cudnnGetCudartVersion() { return kCudaVersion; }

MEGJIT_LIBRARY_API const char* cudnnGetErrorString(Status status) {
    return status == kBadParameter     ? "CUDNN_STATUS_BAD_PARAM"
           : status == kNotSupported   ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == kNotInitialized ? "CUDNN_STATUS_NOT_INITIALIZED"
                                       : "CUDNN_STATUS_INTERNAL_ERROR";
}
MEGJIT_LIBRARY_API void cudnnGetLastErrorString(char* text, size_t bytes) {
    if (bytes) text[last_error().copy(text, bytes - 1)] = '\0';
}

MEGJIT_LIBRARY_API Status cudnnCreate(Handle* handle) {
    return call(kInternal, [&] {
        *handle = new OpaqueCudnn{Home(kNotInitialized)};
        live().add(*handle, "handle");
    });
}
MEGJIT_LIBRARY_API Status cudnnDestroy(Handle handle) {
    return call(kInternal, [&] {
        with_context(handle);
        live().remove(handle, "handle");
        delete handle;
    });
}
MEGJIT_LIBRARY_API Status cudnnSetStream(Handle handle, void* stream) {
    return call(kInternal, [&] {
        with_context(handle).home.check_stream(kBadParameter, stream);
        handle->stream = stream;
    });
}

MEGJIT_LIBRARY_API Status cudnnBackendCreateDescriptor(Kind kind, RawDescriptor* made) {
    return call(kInternal, [&] {
        *made = new Descriptor(kind);
        live().add(*made, "descriptor");
    });
}
MEGJIT_LIBRARY_API Status cudnnBackendDestroyDescriptor(RawDescriptor raw) {
    return call(kInternal, [&] {
        live().remove(raw, "descriptor");
        delete static_cast<Descriptor*>(raw);
    });
}
MEGJIT_LIBRARY_API Status cudnnBackendSetAttribute(RawDescriptor raw, int name, Tag tag,
                                                   int64_t count, const void* values) {
    return call(kInternal, [&] { checked(raw).set(name, tag, count, values); });
}
MEGJIT_LIBRARY_API Status cudnnBackendGetAttribute(RawDescriptor raw, int name, Tag tag,
                                                   int64_t room, int64_t* count, void* values) {
    return call(kInternal, [&] { get(checked(raw), name, tag, room, count, values); });
}
MEGJIT_LIBRARY_API Status cudnnBackendFinalize(RawDescriptor raw) {
    return call(kInternal, [&] {
        Descriptor& d = checked(raw);
        if (d.kind == Kind::plan) finalize_plan(d);
        else d.finalize();
    });
}
MEGJIT_LIBRARY_API Status cudnnBackendExecute(Handle handle, RawDescriptor plan,
                                              RawDescriptor pack) {
    return call(kInternal, [&] { execute(with_context(handle), checked(plan), checked(pack)); });
}

#define MEGJIT_X(symbol, name, result, parameters) \
    static_assert(std::is_same_v<decltype(&symbol), result(*) parameters>);
MEGJIT_CUDNN_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X

}  // namespace megjit::cuda::cudnn
