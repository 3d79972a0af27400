// Problems of recomputation and their plans as text, for the judge in test_optimal_plans.py.
//     remat_plans problem FILE
//         the problem of a recorded graph (MEGJIT_DUMP=cancel@folder)
//     remat_plans plans
//         problems from stdin; for each its plans, one a line (peak, cost, steps), and an empty
//         line
// A problem is one number after the other: count of values; of each bytes, is_kept, must_stay;
// count of steps; of each cost, repeatable, in_place, scratch, and three lists, each behind its
// length: reads, writes, overwrites.
#include <fstream>
#include <iostream>
#include <iterator>

#include "backends/cpu/cpu_device.h"
#include "jit/plan/passes/passes.h"
#include "memory/caching_allocator.h"

namespace megjit { namespace {

using memory::RematProblem;

void print(const std::vector<uint32_t>& list) {
    std::cout << ' ' << list.size();
    for (uint32_t number : list) std::cout << ' ' << number;
}

std::vector<uint32_t> read_list() {
    size_t count = 0;
    std::cin >> count;
    std::vector<uint32_t> list(count);
    for (uint32_t& number : list) std::cin >> number;
    return list;
}

void print(const RematProblem& problem) {
    std::cout << problem.values.size() << '\n';
    for (const memory::RematValue& value : problem.values)
        std::cout << value.bytes << ' ' << value.is_kept << ' ' << value.must_stay << '\n';
    std::cout << problem.steps.size() << '\n';
    for (const memory::RematStep& step : problem.steps) {
        std::cout << step.cost << ' ' << step.repeatable << ' ' << step.in_place << ' '
                  << step.scratch;
        for (const auto* list : {&step.reads, &step.writes, &step.overwrites}) print(*list);
        std::cout << '\n';
    }
}

bool read(RematProblem& problem) {
    size_t values = 0, steps = 0;
    if (!(std::cin >> values)) return false;
    problem.values.resize(values);
    for (memory::RematValue& value : problem.values)
        std::cin >> value.bytes >> value.is_kept >> value.must_stay;
    std::cin >> steps;
    problem.steps.resize(steps);
    for (memory::RematStep& step : problem.steps) {
        std::cin >> step.cost >> step.repeatable >> step.in_place >> step.scratch;
        for (auto* list : {&step.reads, &step.writes, &step.overwrites}) *list = read_list();
    }
    return true;
}

// As a traced function has it whose parameters are updated where they lie.
void print_problem_of(const jit::Graph& graph) {
    jit::Step step;
    step.inputs.assign(graph.nodes().size(), {.is_released = true});
    jit::PipelineOptions options{.device = &runtime::host_device(), .step = &step};
    options.choose_plan = [](const RematProblem& problem) {
        print(problem);
        return std::vector<uint32_t>{};
    };
    jit::rematerialize(graph, options);
}

int run(int argc, char** argv) {
    std::cout.precision(17);
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "problem" && argc == 3) {
        runtime::register_all_ops();
        runtime::register_device(
            std::make_unique<cpu::CpuDevice>(std::make_unique<memory::CachingAllocator>()));
        std::ifstream file(argv[2]);
        print_problem_of(jit::parse_graph(std::string{std::istreambuf_iterator<char>(file), {}}));
        return 0;
    }
    if (what != "plans") return 2;
    for (RematProblem problem; read(problem); problem = {}) {
        for (const memory::RematPlan& plan : memory::rematerialize(problem)) {
            std::cout << plan.peak_bytes << ' ' << plan.cost;
            for (uint32_t step : plan.order) std::cout << ' ' << step;
            std::cout << '\n';
        }
        std::cout << '\n';
    }
    return 0;
}

}}  // namespace megjit

int main(int argc, char** argv) { return megjit::run(argc, argv); }
