#include "backends/cpu/onednn/row_runs.h"

#include <algorithm>
#include <array>
#include <bit>

#include "runtime/core/device.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/host/isa.h"

namespace megjit::cpu {
namespace {

using runtime::MatmulProblem;
using runtime::OpCall;
using runtime::Type;

// So few rows are one run, whatever their number.
constexpr int64_t kShort = 32;
// Each run reads all of b, which is in the cache then.
constexpr size_t kMostRead = size_t{512} << 10;  // in bytes

// Returns the length of the next run where so many rows are left.
int64_t run_of(int64_t left) {
    return left <= kShort ? left
                          : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(left)));
}

// Another product whose first operand and result have so many rows.
struct OfRows {
    OfRows(const OpCall& call, const Type& result, const MatmulProblem& p, int64_t rows)
        : inputs(call.inputs.begin(), call.inputs.end()),
          output{result.dtype, {rows, p.n}, result.layout} {
        inputs[0] = {inputs[0].dtype, {rows, p.k}, inputs[0].layout};
        for (const runtime::EpilogueStep& step : p.steps) {
            if (step.kind == runtime::EpilogueKind::add) inputs[step.operand] = output;
            if (step.kind == runtime::EpilogueKind::bias)  // it had the rank of the whole result
                inputs[step.operand].shape = {p.n};
        }
    }
    std::vector<Type> inputs;
    Type output;
};

class RunsExecutable final : public runtime::Executable {
public:
    struct Run {
        Prepared product;
        int64_t rows = 0;
    };
    // row_bytes: of each input, 0 for those that all runs read as a whole.
    RunsExecutable(std::vector<Run> runs, std::vector<size_t> row_bytes, size_t result_row_bytes)
        : runs_(std::move(runs)),
          row_bytes_(std::move(row_bytes)),
          result_row_bytes_(result_row_bytes) {
        for (const Run& run : runs_)
            workspace_ = std::max(workspace_, run.product->workspace_bytes());
    }

    size_t workspace_bytes() const override { return workspace_; }
    std::string_view remark() const override { return runs_[0].product->remark(); }
    bool may_alias(int out, int in) const override {
        return std::ranges::all_of(runs_,
                                   [&](const Run& run) { return run.product->may_alias(out, in); });
    }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        std::array<void*, kMostInputs> operands{};
        std::copy_n(inputs, row_bytes_.size(), operands.begin());
        void* result = outputs[0];
        for (const Run& run : runs_) {
            run.product->enqueue(stream, operands.data(), &result, workspace);
            const auto rows = static_cast<size_t>(run.rows);
            for (size_t i = 0; i < row_bytes_.size(); ++i)
                operands[i] = static_cast<char*>(operands[i]) + rows * row_bytes_[i];
            result = static_cast<char*>(result) + rows * result_row_bytes_;
        }
    }

    static constexpr size_t kMostInputs = 4;  // two factors, a bias and an addend

private:
    std::vector<Run> runs_;
    std::vector<size_t> row_bytes_;
    size_t result_row_bytes_ = 0, workspace_ = 0;
};

}  // namespace

// Without AVX-512 oneDNN's code serves any number of rows.
int64_t longest_run(const MatmulProblem& p, runtime::DType dtype) {
    const size_t read = static_cast<size_t>(p.k * p.n) * size_of(dtype);
    if (!runtime::has_avx512() || !p.batch.empty() || p.ta || read > kMostRead) return p.m;
    return run_of(p.m);
}

Prepared by_row_runs(const OpCall& call, std::span<const Type> outputs, const MatmulProblem& p) {
    int64_t rows = longest_run(p, call.inputs[0].dtype);
    if (rows == p.m || call.inputs.size() > RunsExecutable::kMostInputs) return nullptr;
    std::vector<RunsExecutable::Run> runs;
    for (int64_t left = p.m; left > 0; left -= rows) {
        rows = run_of(left);
        const OfRows run(call, outputs[0], p, rows);
        runs.push_back(
            {runtime::PreparedOps::instance().executable({call.op, call.attrs, run.inputs},
                                                         {&run.output, 1}, runtime::host_device()),
             rows});
    }
    const OfRows one(call, outputs[0], p, 1);
    std::vector<size_t> row_bytes(call.inputs.size());
    row_bytes[0] = one.inputs[0].bytes();
    for (const runtime::EpilogueStep& step : p.steps)
        if (step.kind == runtime::EpilogueKind::add) row_bytes[step.operand] = one.output.bytes();
    return std::make_shared<const RunsExecutable>(std::move(runs), std::move(row_bytes),
                                                  one.output.bytes());
}

}  // namespace megjit::cpu
