#include "jit/plan/costs.h"

#include <algorithm>

#include "jit/plan/passes/relister.h"
#include "jit/plan/prepared_graph.h"
#include "jit/step/host_copy.h"
#include "runtime/core/spill_file.h"
#include "runtime/host/error.h"
#include "runtime/host/product_rules.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/conv.h"
#include "runtime/ops/known.h"
#include "runtime/ops/matmul.h"

namespace megjit::jit {
namespace {

using codegen::CardFigure;
using runtime::ConvRole;
using runtime::Cost;
using runtime::DType;
using runtime::OpCall;

// Tiles on a GPU as a share of the speed of its library, without and with tensor cores. These are
// guesses: no card has timed them beside it.
constexpr double kSpeedOfTiles = 0.5, kSpeedOfTensorTiles = 0.25;
constexpr size_t kLeastRuns = 3;  // the first one meets cold caches
constexpr size_t kMostRuns = 15;

// Layouts do not count: planning comes before they are chosen.
std::string key_of(const OpCall& call) {
    std::string key = call.op.name;
    for (const runtime::Attr& attr : call.attrs) key += " " + runtime::to_string(attr);
    for (Type type : call.inputs) {
        type.layout = runtime::Layout::row_major;
        key += " " + to_string(type);
    }
    return key;
}

double median_of(const std::deque<double>& runs) {
    std::vector<double> sorted(runs.begin(), runs.end());
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
}

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// The name that a card's file gives to products of the dtype.
std::string_view product_kind(DType dtype) {
    switch (dtype) {
        case DType::f16: return "float16";
        case DType::bf16: return "bfloat16";
        case DType::i8:
        case DType::u8: return "int8";
        default: return runtime::product_rules().tf32 ? "tf32" : "float32";
    }
}

double as_number(int64_t value) { return static_cast<double>(value); }

// The second factor is read where it lies, a page for each index of the sum: twice the time of a
// packed one where these are many, at AVX2.
bool is_short(const runtime::Contraction& contraction) {
    constexpr int64_t kLongestSum = 1024, kMostElements = 128 << 10;
    const int rank = contraction.space.rank();
    const int64_t columns = contraction.space[rank - 2], sum = contraction.space[rank - 1];
    return sum <= kLongestSum && sum * columns <= kMostElements;
}

// How a card's file (tools/card/products.py) lists a product of matrices.
CardFigure matmul_figure(const OpCall& call, std::span<const Type> outputs) {
    const runtime::MatmulProblem p = runtime::matmul_problem(call, outputs);
    int64_t batch = 1;
    for (const int64_t extent : p.batch) batch *= extent;
    return {"product",
            {{"batch", as_number(batch)},
             {"m", as_number(p.m)},
             {"n", as_number(p.n)},
             {"k", as_number(p.k)},
             {"transpose_a", p.ta},
             {"transpose_b", p.tb}},
            {}};
}

// The steps of a convolution, and its sums, take no time in its line.
std::optional<CardFigure> conv_figure(const OpCall& call, std::span<const Type> outputs,
                                      ConvRole role) {
    const runtime::ConvProblem p = runtime::conv_problem(call, outputs, role);
    const auto& [dims, kernel, stride, padding, dilation] = p.window;
    if (dims != 2 || stride[0] != stride[1] || padding[0] != padding[1] || dilation[0] != 1 ||
        dilation[1] != 1)
        return {};
    constexpr std::string_view kDirections[] = {"forward", "input", "filter"};  // by role
    return CardFigure{"convolution",
                      {{"n", as_number(p.x.shape[0])},
                       {"c", as_number(p.x.shape[1])},
                       {"h", as_number(p.x.shape[2])},
                       {"w", as_number(p.x.shape[3])},
                       {"k", as_number(p.w.shape[0])},
                       {"r", as_number(kernel[0])},
                       {"s", as_number(kernel[1])},
                       {"stride", as_number(stride[0])},
                       {"padding", as_number(padding[0])},
                       {"groups", as_number(p.groups)}},
                      {{"direction", kDirections[static_cast<size_t>(role)]}}};
}

std::optional<CardFigure> attention_figure(const OpCall& call, std::string_view direction) {
    const runtime::AttentionProblem p = runtime::attention_problem(call);
    if (p.masks > 0 || p.drop_prob > 0 || p.key_heads != p.heads || p.value_width != p.width)
        return {};
    return CardFigure{ops::attention().name,
                      {{"batch", as_number(p.batch)},
                       {"heads", as_number(p.heads)},
                       {"queries", as_number(p.queries)},
                       {"keys", as_number(p.keys)},
                       {"width", as_number(p.width)},
                       {"causal", p.is_causal}},
                      {{"direction", direction}}};
}

}  // namespace

std::optional<CardFigure> listed_problem(const OpCall& call, std::span<const Type> outputs) {
    const auto is_one_of = [&](std::initializer_list<const OpDef*> ops) {
        return std::ranges::find(ops, &call.op) != ops.end();
    };
    std::optional<CardFigure> figure;
    if (is_one_of({&ops::matmul(), &ops::matmul_epilogue(), &runtime::matmul_sums()}))
        figure = matmul_figure(call, outputs);
    else if (is_one_of({&ops::conv(), &ops::conv_epilogue(), &ops::conv_stats()}))
        figure = conv_figure(call, outputs, ConvRole::forward);
    else if (is_one_of({&ops::conv_backward_data(), &ops::conv_backward_data_epilogue()}))
        figure = conv_figure(call, outputs, ConvRole::data);
    else if (is_one_of({&ops::conv_backward_data_sums()}))
        figure = conv_figure(runtime::gradient_of_sums(call), outputs, ConvRole::data);
    else if (is_one_of({&ops::conv_backward_filter()}))
        figure = conv_figure(call, outputs, ConvRole::filter);
    else if (is_one_of({&ops::attention(), &ops::attention_of_parts()}))
        figure = attention_figure(call, "forward");
    else if (is_one_of({&ops::attention_grad(), &ops::attention_grad_of_parts()}))
        figure = attention_figure(call, "backward");
    if (figure) figure->words.emplace_back("dtype", product_kind(call.inputs[0].dtype));
    return figure;
}

std::string_view name_of(CostSource source) {
    constexpr std::string_view kNames[] = {"model", "card", "profile", "tuning"};
    return kNames[static_cast<size_t>(source)];
}

Costs::Costs(const runtime::Device& device)
    : speeds_(device.speeds()),
      card_(device.target().is_gpu() ? &codegen::CardFigures::of(device.target().gpu_arch)
                                     : nullptr) {}

Costs Costs::profiled(const runtime::Device& device) {
    Costs costs(device);
    ProfiledTimes::of(device).add_to(costs);
    return costs;
}

Estimate Costs::step(const Graph& graph, const Node& node) const {
    if (node.kind == NodeKind::fused) return kernel(graph, node);
    if (node.kind != NodeKind::op || is_view(node) || is_host_copy(node)) return {};
    const std::vector<Type> inputs = graph.types(node.inputs);
    return op({*node.op, node.attrs, inputs}, graph.types(node.outputs));
}

Estimate Costs::op(const OpCall& call, std::span<const Type> outputs) const {
    Estimate cost = modelled(call, outputs);
    if (medians_.empty()) return cost;
    cost.source = CostSource::profile;
    if (const auto known = medians_.find(key_of(call)); known != medians_.end()) {
        cost.seconds = known->second;
    } else {
        const auto alike = by_op_.find(call.op.name);
        cost.seconds *= (alike != by_op_.end() ? alike->second : all_).value();
    }
    return cost;
}

Estimate Costs::op_in_kernel(const OpCall& call, std::span<const Type> outputs,
                             double bytes) const {
    const double inside =
        std::max(arithmetic(runtime::cost_of(call, outputs), runtime::Speeds::dtype_of(call)),
                 traffic(bytes));
    Estimate cost = op(call, outputs);
    cost.seconds *= std::min(1.0, inside / modelled(call, outputs).seconds);
    cost.bytes = bytes;
    return cost;
}

Estimate Costs::modelled(const OpCall& call, std::span<const Type> outputs) const {
    Estimate cost = computing(call, outputs);
    cost.seconds = std::max(cost.seconds, traffic(cost.bytes)) + launches(1);
    return cost;
}

// A generated kernel is not profiled as such: it is modelled, times how the model errs on all ops.
Estimate Costs::kernel(const Graph& graph, const Node& node) const {
    Cost work{.bytes = static_cast<double>(bytes_moved(graph, node)),
              .is_product = std::ranges::any_of(node.ops, [](const std::string& op) {
        return runtime::find_op(op).contraction != nullptr;
    })};
    for (const codegen::LaunchShape& launch : launches_of(node))
        work.flops += static_cast<double>(launch.numel()) *
                      (work.is_product ? 2.0 : node.kernel->kernel.program.size());
    const double seconds =
        std::max(arithmetic(work, graph.type(node.outputs[0]).dtype), traffic(work.bytes)) +
        launches(1);
    return {.bytes = work.bytes,
            .seconds = seconds * all_.value(),
            .source = medians_.empty() ? CostSource::model : CostSource::profile};
}

Estimate Costs::computing(const OpCall& call, std::span<const Type> outputs) const {
    const Cost work = runtime::cost_of(call, outputs);
    if (const auto seconds = work.is_product ? listed(call, outputs) : std::nullopt)
        return {.bytes = work.bytes, .seconds = *seconds, .source = CostSource::card};
    return {.bytes = work.bytes, .seconds = work.flops / flops_per_second(call, work)};
}

std::optional<double> Costs::listed(const OpCall& call, std::span<const Type> outputs) const {
    const std::optional<codegen::CardFigure> problem =
        card_ ? listed_problem(call, outputs) : std::nullopt;
    return problem ? card_->listed_seconds(*problem) : std::nullopt;
}

double Costs::flops_per_second(const OpCall& call, const Cost& work) const {
    const DType dtype = runtime::Speeds::dtype_of(call);
    if (!card_ || !work.is_product) return speeds_.flops_of(work, dtype);
    const auto is_one_of = [&](const OpDef& one, const OpDef& other) {
        return is_half(dtype) && (&call.op == &one || &call.op == &other);
    };
    if (is_one_of(ops::attention(), ops::attention_of_parts()))
        return card_->flops_per_second("scores forward");
    if (is_one_of(ops::attention_grad(), ops::attention_grad_of_parts()))
        return card_->flops_per_second("scores backward");
    return card_->flops_per_second(product_kind(dtype));
}

Estimate Costs::launch_of(const codegen::KernelWork& work) const {
    const double flops_per_second = work.halves
                                        ? kSpeedOfTensorTiles * card_->flops_per_second("float16")
                                        : kSpeedOfTiles * card_->flops_per_second("float32");
    return {.bytes = work.bytes,
            .seconds =
                std::max({traffic(work.bytes), work.instructions / card_->instructions_per_second(),
                          work.flops / flops_per_second})};
}

double Costs::file_bytes_per_second(const std::string& folder) {
    return runtime::SpillFile::in(folder)->bytes_per_second();
}

// On a GPU a result that need not go to memory and back saves more time than the library's product
// is faster, where sums are short. On a CPU tiles are as fast where the second factor is small, and
// panels where the library's own work counts beside few products.
std::optional<Estimate> Costs::product(const runtime::Contraction& contraction, const Type& result,
                                       std::string_view by) const {
    constexpr int64_t kFewProducts = 1 << 20;
    const Cost work{.flops = 2 * static_cast<double>(contraction.space.numel()),
                    .is_product = true};
    const double by_library = arithmetic(work, result.dtype),
                 way_of_result = 2 * static_cast<double>(result.bytes());
    if (by == "library")
        return Estimate{.bytes = way_of_result, .seconds = by_library + traffic(way_of_result)};
    if (card_)
        return Estimate{.seconds = result.dtype != DType::f32
                                       ? by_library / kSpeedOfTensorTiles
                                       : work.flops / speeds_.flops / kSpeedOfTiles};
    const bool is_as_fast =
        by == "tiles" ? is_short(contraction) : contraction.space.numel() <= kFewProducts;
    return is_as_fast ? std::optional(Estimate{.seconds = by_library}) : std::nullopt;
}

std::map<std::string, Estimate> Costs::tuned(const std::string& problem,
                                             const std::function<codegen::Timing()>& measure) {
    const codegen::TuneMode mode = codegen::tune_mode();
    if (mode == codegen::TuneMode::off) return {};
    codegen::Timings& timings = codegen::Timings::instance();
    if (mode == codegen::TuneMode::on && !timings.find(problem)) try {
            timings.keep(problem, measure());
        } catch (const runtime::Error&) {}  // no memory, or no compiler: the model decides
    std::map<std::string, Estimate> estimates;
    for (const auto& [by, seconds] : timings.find(problem).value_or(codegen::Timing()))
        estimates[by] = {.seconds = seconds, .source = CostSource::tuning};
    return estimates;
}

ProfiledTimes& ProfiledTimes::of(const runtime::Device& device) {
    static runtime::Mutex mutex{"the profiled times of devices"};
    static std::map<std::string, ProfiledTimes, std::less<>> tables;
    const std::string_view name = device.name().substr(0, device.name().find(':'));
    const std::lock_guard lock(mutex);
    const auto known = tables.find(name);
    return known != tables.end()
               ? known->second
               : tables.try_emplace(std::string(name), Costs(device)).first->second;
}

ProfiledTimes::Row& ProfiledTimes::row(const OpCall& call, std::span<const Type> outputs) {
    const std::lock_guard lock(mutex_);
    return rows_
        .try_emplace(key_of(call),
                     Row{.op = call.op.name, .modelled = model_.modelled(call, outputs).seconds})
        .first->second;
}

void ProfiledTimes::note(Row& row, double seconds) {
    const std::lock_guard lock(mutex_);
    row.runs.push_back(seconds);
    if (row.runs.size() > kMostRuns) row.runs.pop_front();
}

void ProfiledTimes::clear() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, row] : rows_) row.runs.clear();
}

void ProfiledTimes::add_to(Costs& costs) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, row] : rows_) {
        if (row.runs.size() < kLeastRuns) continue;
        const double median = costs.medians_[key] = median_of(row.runs);
        for (Costs::Ratio* ratio : {&costs.by_op_[row.op], &costs.all_}) {
            ratio->measured += median;
            ratio->modelled += row.modelled;
        }
    }
}

Timetable::Timetable(const Graph& graph) : begins{0}, costs_(graph.device()) {
    for (const Node& node : graph.nodes())
        begins.push_back(begins.back() + costs_.step(graph, node).seconds);
}

double Timetable::transferred(double begin, size_t bytes) {
    return link_is_free_ = std::max(link_is_free_, begin) + transfer_seconds(bytes);
}

}  // namespace megjit::jit
