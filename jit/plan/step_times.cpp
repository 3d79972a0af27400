#include "jit/plan/step_times.h"

#include <algorithm>

namespace megjit::jit {
namespace {

constexpr double kSecondsPerCall = 1e-6;
constexpr size_t kLeastRuns = 3;  // the first one meets cold caches
constexpr size_t kMostRuns = 15;

// Layouts do not count: planning comes before they are chosen.
std::string key_of(const runtime::OpCall& call) {
    std::string key = call.op.name;
    for (const runtime::Attr& attr : call.attrs) key += " " + runtime::to_string(attr);
    for (runtime::Type type : call.inputs) {
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

double modelled_seconds(const runtime::Speeds& speeds, const runtime::Cost& cost,
                        runtime::DType dtype) {
    return std::max(cost.flops / speeds.flops_of(cost, dtype), cost.bytes / speeds.bytes) +
           kSecondsPerCall;
}

}  // namespace

double modelled_seconds(const runtime::Speeds& speeds, const runtime::OpCall& call,
                        std::span<const runtime::Type> outputs) {
    return modelled_seconds(speeds, runtime::cost_of(call, outputs), speeds.dtype_of(call));
}

StepTimes& StepTimes::of(const runtime::Device& device) {
    static runtime::Mutex mutex{"the times of devices"};
    static std::map<std::string, StepTimes, std::less<>> tables;
    const std::string_view name = device.name().substr(0, device.name().find(':'));
    const std::lock_guard lock(mutex);
    const auto known = tables.find(name);
    return known != tables.end()
               ? known->second
               : tables.try_emplace(std::string(name), device.speeds()).first->second;
}

StepTimes::Row& StepTimes::row(const runtime::OpCall& call,
                               std::span<const runtime::Type> outputs) {
    const std::lock_guard lock(mutex_);
    return rows_
        .try_emplace(key_of(call),
                     Row{.op = call.op.name, .modelled = modelled_seconds(speeds_, call, outputs)})
        .first->second;
}

void StepTimes::note(Row& row, double seconds) {
    const std::lock_guard lock(mutex_);
    row.runs.push_back(seconds);
    if (row.runs.size() > kMostRuns) row.runs.pop_front();
}

void StepTimes::clear() {
    const std::lock_guard lock(mutex_);
    for (auto& [key, row] : rows_) row.runs.clear();
}

StepTimes::Snapshot StepTimes::snapshot() const {
    const std::lock_guard lock(mutex_);
    Snapshot now(speeds_);
    for (const auto& [key, row] : rows_) {
        if (row.runs.size() < kLeastRuns) continue;
        const double median = now.medians_[key] = median_of(row.runs);
        for (Snapshot::Ratio* ratio : {&now.by_op_[row.op], &now.all_}) {
            ratio->measured += median;
            ratio->modelled += row.modelled;
        }
    }
    return now;
}

double StepTimes::Snapshot::seconds(const runtime::OpCall& call,
                                    std::span<const runtime::Type> outputs) const {
    const double modelled = modelled_seconds(speeds_, call, outputs);
    if (medians_.empty()) return modelled;
    if (const auto known = medians_.find(key_of(call)); known != medians_.end())
        return known->second;
    const auto alike = by_op_.find(call.op.name);
    return modelled * (alike != by_op_.end() ? alike->second : all_).value();
}

double StepTimes::Snapshot::kernel_seconds(const runtime::Cost& cost, runtime::DType dtype) const {
    return modelled_seconds(speeds_, cost, dtype) * all_.value();
}

}  // namespace megjit::jit
