// jit/plan/step_times.h -- StepTimes: what ops really took. Profiled programs note their steps;
// plans of recomputation for functions that are profiled ask it. A device has one table: an op's
// time is a matter of its attributes and types, not of the function it stands in.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/host/mutex.h"

namespace megjit::jit {

// By flops and bytes of the op registry.
double modelled_seconds(const runtime::Speeds& speeds, const runtime::OpCall& call,
                        std::span<const runtime::Type> outputs);

class StepTimes {
public:
    static StepTimes& of(const runtime::Device& device);  // its queues share one table
    explicit StepTimes(const runtime::Speeds& speeds) : speeds_(speeds) {}

    // The row of such calls; the row stays where it is.
    struct Row;
    Row& row(const runtime::OpCall& call, std::span<const runtime::Type> outputs);
    void note(Row& row, double seconds);  // one run

    // What is known at one moment: a plan compares costs that do not change while it is made.
    class Snapshot {
    public:
        explicit Snapshot(const runtime::Speeds& speeds) : speeds_(speeds) {}
        // The median of the runs; of calls that have not run, what the model says times how the
        // model has erred: on this op, else on all that have run. So measured and modelled seconds
        // can be added.
        double seconds(const runtime::OpCall& call, std::span<const runtime::Type> outputs) const;
        // A generated kernel is not measured as such: the model's time, by how it has erred on all.
        double kernel_seconds(const runtime::Cost& cost, runtime::DType dtype) const;

    private:
        friend class StepTimes;
        struct Ratio {
            double measured = 0, modelled = 0;
            double value() const { return modelled > 0 ? measured / modelled : 1; }
        };
        runtime::Speeds speeds_;
        std::unordered_map<std::string, double> medians_;
        std::unordered_map<std::string, Ratio> by_op_;
        Ratio all_;
    };
    Snapshot snapshot() const;
    void clear();  // forgets what is known; rows stay

private:
    const runtime::Speeds speeds_;
    mutable runtime::Mutex mutex_{"the times of steps"};
    std::map<std::string, Row> rows_;  // by key_of
};

struct StepTimes::Row {
    std::string op;
    double modelled = 0;
    std::deque<double> runs = {};  // the last few
};

}  // namespace megjit::jit
