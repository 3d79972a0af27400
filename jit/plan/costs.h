// jit/plan/costs.h -- Costs: the one table of how many bytes and seconds a step takes on a device,
// each with its source. Whatever chooses between plans, kernels or transfers asks it: plans of
// recomputation, who computes a product, heads by parts, transfers to the host and to a file, and
// the modelled time of a step on a card.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/card_figures.h"
#include "codegen/kernel_work.h"
#include "codegen/tuning.h"
#include "jit/step/graph.h"
#include "runtime/host/mutex.h"

namespace megjit::jit {

enum class CostSource : uint8_t {
    model,  // work by OpDef::cost or a kernel's code, at the device's speeds
    card,  // a time that the card's file lists (codegen/cards)
    profile,  // runs of this process (profiling=True); what has not run: the model by how it errs
    tuning,  // runs on this machine (codegen/tuning.h)
};
std::string_view name_of(CostSource source);

struct Estimate {
    double bytes = 0;  // read from memory and written to it
    double seconds = 0;
    CostSource source = CostSource::model;
};

// The line of a card's file (tools/card/products.py) that tells how long the op's product takes;
// nothing where no file has such lines.
std::optional<codegen::CardFigure> listed_problem(const runtime::OpCall& call,
                                                  std::span<const runtime::Type> outputs);

class Costs {
public:
    // These costs are of no device, and so the same in all processes: what they exchange must be.
    Costs() = default;
    explicit Costs(const runtime::Device& device);
    // What profiled runs took counts where it is known now: costs stay while a plan is made.
    static Costs profiled(const runtime::Device& device);

    // A step of its own, with its launch. Views and transfers take nothing of the device.
    Estimate step(const Graph& graph, const Node& node) const;
    Estimate op(const runtime::OpCall& call, std::span<const runtime::Type> outputs) const;
    // As a part of a kernel that reads and writes so many bytes for this op.
    Estimate op_in_kernel(const runtime::OpCall& call, std::span<const runtime::Type> outputs,
                          double bytes) const;

    // The parts of a step. The seconds of computing() are those of its arithmetic alone.
    Estimate computing(const runtime::OpCall& call, std::span<const runtime::Type> outputs) const;
    Estimate launch_of(const codegen::KernelWork& work) const;  // of generated code, on a card
    double arithmetic(const runtime::Cost& work, runtime::DType dtype) const {
        return work.flops / speeds_.flops_of(work, dtype);
    }
    double traffic(double bytes) const {
        return bytes / (card_ ? card_->memory_bytes_per_second(bytes) : speeds_.bytes);
    }
    double launches(int64_t count) const {
        return static_cast<double>(count) * (card_ ? card_->launch_seconds() : kSecondsOfCall);
    }
    double cache_bytes() const { return card_->cache_bytes(); }

    // Seconds on the way to or from the host's memory, and of a processor's work beside a transfer
    // to or from a file; how fast the file's folder was when it was measured, in bytes a second.
    double transfer(double bytes) const { return bytes / speeds_.link_bytes; }
    static double copy_of_transfer(double bytes) { return kSecondsToCopy * bytes; }
    static double file_bytes_per_second(const std::string& folder);

    // A product of floats whose result element-wise ops read, by who computes it: "library",
    // "tiles" or "panels" (codegen/tuning.h). Nothing where a kernel is not known to be as fast.
    std::optional<Estimate> product(const runtime::Contraction& contraction,
                                    const runtime::Type& result, std::string_view by) const;
    // The same as it was measured on this machine, or empty. With MEGJIT_TUNE=on `measure` runs
    // where it was not.
    static std::map<std::string, Estimate> tuned(const std::string& problem,
                                                 const std::function<codegen::Timing()>& measure);

private:
    friend class ProfiledTimes;
    static constexpr double kSecondsOfCall = 1e-6;
    static constexpr double kSecondsToCopy = 2e-10;  // a byte, which is summed, too
    struct Ratio {
        double measured = 0, modelled = 0;
        double value() const { return modelled > 0 ? measured / modelled : 1; }
    };

    Estimate kernel(const Graph& graph, const Node& node) const;
    Estimate modelled(const runtime::OpCall& call, std::span<const runtime::Type> outputs) const;
    std::optional<double> listed(const runtime::OpCall& call,
                                 std::span<const runtime::Type> outputs) const;
    double flops_per_second(const runtime::OpCall& call, const runtime::Cost& work) const;

    runtime::Speeds speeds_ = {};
    const codegen::CardFigures* card_ = nullptr;  // null: not a GPU
    std::unordered_map<std::string, double> medians_ = {};  // of profiled runs, by call
    std::unordered_map<std::string, Ratio> by_op_ = {};  // how the model errs
    Ratio all_ = {};
};

// What ops took in profiled runs on one device; its queues share a table. Programs note it.
class ProfiledTimes {
public:
    static ProfiledTimes& of(const runtime::Device& device);
    explicit ProfiledTimes(Costs model) : model_(std::move(model)) {}

    // The row of such calls; the row stays where it is.
    struct Row;
    Row& row(const runtime::OpCall& call, std::span<const runtime::Type> outputs);
    void note(Row& row, double seconds);  // one run
    void add_to(Costs& costs) const;
    void clear();  // forgets what is known; rows stay

private:
    const Costs model_;
    mutable runtime::Mutex mutex_{"the times of steps"};
    std::map<std::string, Row> rows_;  // by call
};

struct ProfiledTimes::Row {
    std::string op;
    double modelled = 0;
    std::deque<double> runs = {};  // the last few
};

// When each node of a graph runs. Nodes run one after the other; beside them, transfers use a link
// that does one thing at a time.
struct Timetable {
    explicit Timetable(const Graph& graph);

    std::vector<double> begins;  // by node, seconds; the last: when all is done
    // When a transfer of `bytes` ends that begins at `begin`, or when the link is free.
    double transferred(double begin, size_t bytes);
    double transfer_seconds(size_t bytes) const {
        return costs_.launches(1) + costs_.transfer(static_cast<double>(bytes));
    }

private:
    const Costs costs_;
    double link_is_free_ = 0;
};

}  // namespace megjit::jit
