#include "codegen/loops/loops.h"

#include <gtest/gtest.h>

#include "codegen/loops/frame.h"
#include "tests/backends/gpu_cases.h"
#include "tests/codegen/element_walk.h"
#include "tests/codegen/random_kernels.h"
#include "tests/codegen/reduction_bits.h"

namespace megjit::codegen { namespace {

using loops::Function;
using loops::loops_of;
using loops::Target;

std::vector<uint64_t> arguments_of(Case& c, void* const* outputs, int64_t lo, int64_t hi) {
    std::vector<uint64_t> arguments;
    const std::vector<void*> inputs = c.input_pointers();
    for (size_t i = 0; i < memory_inputs(c.kernel); ++i)
        arguments.push_back(reinterpret_cast<uint64_t>(inputs[i]));
    for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
        arguments.push_back(reinterpret_cast<uint64_t>(outputs[k]));
    for (const auto* numbers : {&c.launch.extents, &c.launch.strides})
        for (const int64_t number : *numbers) arguments.push_back(static_cast<uint64_t>(number));
    arguments.insert(arguments.end(), {static_cast<uint64_t>(lo), static_cast<uint64_t>(hi)});
    return arguments;
}

// What loops of vectors of `width` store, in one range of units for each of `parts`.
std::vector<std::vector<char>> looped(Case& c, const Target& target, int64_t parts) {
    std::vector<std::vector<char>> outputs;
    std::vector<void*> pointers;
    for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
        outputs.emplace_back(c.output_bytes(k) + 1);
    for (auto& output : outputs) pointers.push_back(output.data());
    const Function function = loops_of(c.kernel, target);
    EXPECT_EQ(fault_of(function), "");
    const int64_t all = units(c.kernel, c.launch);
    for (int64_t part = 0; part < parts; ++part)
        loops::run(function,
                   arguments_of(c, pointers.data(), all * part / parts, all * (part + 1) / parts));
    return outputs;
}

std::vector<std::vector<char>> walked(Case& c) {
    std::vector<std::vector<char>> outputs;
    std::vector<void*> pointers;
    for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
        outputs.emplace_back(c.output_bytes(k) + 1);
    for (auto& output : outputs) pointers.push_back(output.data());
    ElementWalk(c.kernel, c.launch, c.input_pointers().data(), pointers.data()).run();
    return outputs;
}

Target cpu_of(int width, bool divides) {
    return {.width = width, .registers = width == 8 ? 16 : 32, .divides = divides};
}

void expect_the_walk(Case& c, int width, bool divides, int64_t parts, uint64_t seed) {
    const auto expected = walked(c), got = looped(c, cpu_of(width, divides), parts);
    for (size_t k = 0; k < expected.size(); ++k)
        for (size_t at = 0; at + 1 < expected[k].size();
             at += runtime::size_of(c.kernel.outputs[k].dtype))
            ASSERT_TRUE(same_value(c.kernel.outputs[k].dtype, &expected[k][at], &got[k][at]))
                << "seed " << seed << ", width " << width << ", output " << k << ", byte " << at
                << "\n"
                << print(c.kernel);
}

TEST(Loops, OfElementsDoWhatAWalkOverElementsDoes) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        Case c = random_case(seed);
        for (const int width : {4, 8, 16}) expect_the_walk(c, width, true, 1 + seed % 3, seed);
    }
}

TEST(Loops, OfRowsAndColumnsDoWhatAWalkOverElementsDoes) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
        Case c = random_reduction_case(seed);
        for (const int width : {4, 8, 16}) expect_the_walk(c, width, true, 1 + seed % 3, seed);
    }
}

// Rows as long as chains and groups, columns beyond one block, empty ones; every kind of reduction
// of f32, i32 and b1, and elements that need a row's result.
TEST(Loops, OfEveryReductionDoWhatAWalkOverElementsDoes) {
    for (const bool kept_last : {false, true})
        for (const auto& [rows, length] :
             {std::pair{3, 1}, {2, 15}, {3, 64}, {2, 129}, {5, 300}, {70, 33}, {800, 3}, {4, 0}}) {
            Case c = all_reductions_case(runtime::DType::f32, rows, length, kept_last);
            for (const int width : {4, 8, 16})
                expect_the_walk(c, width, true, 1 + rows % 3, static_cast<uint64_t>(length));
        }
}

TEST(Loops, OfASoftmaxDoWhatAWalkOverElementsDoes) {
    for (const int64_t length : {1, 15, 64, 129, 3000}) {
        Case c = softmax_case(3, length);
        c.kernel = expand_math(c.kernel);
        for (const int width : {4, 8, 16})
            expect_the_walk(c, width, true, 2, static_cast<uint64_t>(length));
    }
}

TEST(Loops, OfAnyScheduleHaveTheSameBits) {
    const loops::Schedule schedules[] = {
        {.short_body = 0, .vectors_at_once = 1, .long_chain = 1, .long_body = 1},
        {.short_body = 1000, .vectors_at_once = 8, .long_chain = 1000, .long_body = 1000},
        {.worth_keeping = 1,
         .kept_elements = 64,
         .streamed_bytes = 0,
         .units_together = 1,
         .tile_vectors = 1,
         .panel_terms = 3,
         .panel_units = 1},
        {.worth_keeping = 1000,
         .units_together = 5,
         .tile_vectors = 3,
         .panel_terms = 200,
         .panel_units = 2}};
    const auto check = [&](Case c) {
        const auto usual = looped(c, {}, 1);
        for (const loops::Schedule& schedule : schedules)
            ASSERT_EQ(looped(c, {.streams = true, .schedule = schedule}, 2), usual)
                << print(c.kernel);
    };
    for (uint64_t seed = 0; seed < 30; ++seed) {
        check(random_case(seed));
        check(random_contraction_case(seed));
    }
    for (const bool kept_last : {false, true})
        check(all_reductions_case(runtime::DType::f32, 70, 300, kept_last));
    Case softmax = softmax_case(3, 300);
    softmax.kernel = expand_math(softmax.kernel);
    check(std::move(softmax));
}

// Steps of two chains come in turns, the longer chain first, so that neither waits for its own
// step before.
TEST(Loops, SpreadsChains) {
    runtime::ScalarProgram program;
    const auto input = [&](int i) {
        return runtime::Expr(&program, program.input(i, ScalarType::f32));
    };
    const runtime::Expr x = input(0), y = input(1);
    const runtime::Expr brief = sqrt(sqrt(x)), longer = sqrt(sqrt(sqrt(sqrt(y))));
    const int sum = (brief + longer).id();
    const std::vector<int> ids = {2, 3, 4, 5, 6, 7, sum};
    EXPECT_EQ(loops::spread_chains(program, ids, 2), (std::vector{4, 2, 5, 3, 6, 7, sum}));
    EXPECT_EQ(loops::spread_chains(program, ids, 1), (std::vector{4, 5, 2, 6, 3, 7, sum}));
}

TEST(Loops, DivideIntegersByReals) {
    Case c;
    c.kernel = parse_kernel(
        "kernel rank=1\nin i32 contiguous\nin i32 contiguous\n%0: i32 = input 0\n%1: i32 = input 1\n"
        "%2: i32 = div %0 %1\nout i32 %2\n");
    const std::vector<int32_t> a = {7, -7, 7, -7, INT32_MAX, INT32_MIN, INT32_MIN, 0, 5},
                               b = {2, 2, -2, -2, 3, 3, INT32_MAX, 9, INT32_MIN};
    c.launch = {.extents = {static_cast<int64_t>(a.size())}, .strides = {1, 1, 1}};
    for (const auto* values : {&a, &b}) {
        const char* bytes = reinterpret_cast<const char*>(values->data());
        c.inputs.emplace_back(bytes, bytes + 4 * values->size());
    }
    expect_the_walk(c, 8, false, 1, 0);
}

std::vector<Target> targets_of(const Case& c) {
    std::vector<Target> targets;
    for (const int width : {4, 8, 16}) targets.push_back(cpu_of(width, width > 4));
    LaunchShape joins = c.launch;
    joins.joins = true;
    for (const GpuPlan& plan :
         {gpu_plan_of(c.kernel, c.launch, 90), single_team_plan_of(c.kernel, c.launch, 90),
          gpu_plan_of(c.kernel, joins, 90), single_team_plan_of(c.kernel, joins, 90)})
        targets.push_back({.width = plan.vector, .divides = plan.wide, .gpu = plan});
    return targets;
}

TEST(LoopsText, IsReadBack) {
    for (uint64_t seed = 0; seed < 60; ++seed)
        for (Case& c : std::vector<Case>{random_case(seed), random_reduction_case(seed),
                                         random_contraction_case(seed)})
            for (const Target& target : targets_of(c)) {
                const Function function = loops_of(c.kernel, target);
                ASSERT_EQ(fault_of(function), "") << print(function);
                const std::string text = print(function);
                const Function again = loops::parse_loops(text);
                ASSERT_EQ(fault_of(again), "") << text;
                ASSERT_EQ(print(again), text);
            }
}

TEST(LoopsText, WhatIsReadBackRunsAsBefore) {
    Case c = random_reduction_case(5);
    std::vector<std::vector<char>> outputs;
    std::vector<void*> pointers;
    for (size_t k = 0; k < c.kernel.outputs.size(); ++k)
        outputs.emplace_back(c.output_bytes(k) + 1);
    for (auto& output : outputs) pointers.push_back(output.data());
    loops::run(loops::parse_loops(print(loops_of(c.kernel, {}))),
               arguments_of(c, pointers.data(), 0, units(c.kernel, c.launch)));
    EXPECT_EQ(outputs, c.expected());
}

std::string why_not(std::string_view text) {
    try {
        return fault_of(loops::parse_loops(text));
    } catch (const runtime::UserError& error) { return error.what(); }
}

TEST(LoopsText, FaultsNameTheLine) {
    const auto expect = [](std::string_view text, std::string_view part) {
        const std::string message = why_not(text);
        EXPECT_NE(message.find(part), std::string::npos) << text << "\n" << message;
    };
    expect("loop\n", "expected 'loops'");
    expect("loops\nv0: index = parameter\nv1: f32 = compute add v0 v7\n", "v7 is not defined");
    expect("loops\nv1: index = parameter\n", "expected v0");
    expect("loops\nv0: f33 = parameter\n", "is not a type");
    expect("loops\nv0: index = fold v0\n", "is not an instruction");
    expect("loops\nv0: index = parameter\nif v0 {\n", "ends before a '}'");
    expect("loops\nv0: f32x8 = compute add 1:f32x8 0x2:f32x8 3\n", "is not a value");
}

TEST(LoopsVerifier, RefusesWhatIsUnsound) {
    const auto expect = [](std::string_view body, std::string_view part) {
        const std::string head = "loops\nv0: f32* = parameter\nv1: index = parameter\n";
        const std::string message = why_not(head + std::string(body));
        EXPECT_NE(message.find(part), std::string::npos) << body << "\n" << message;
    };
    EXPECT_EQ(why_not("loops\nv0: f32* = parameter\nv1: f32x4 = load #0 v0\nstore #0 v0 v1\n"), "");
    expect("v2: f32 = compute add v1 v1\n", "another type");
    expect("v2: i32x4 = compute add 0x1:i32x4 0x1:f32x4\n", "one type");
    expect("v2: f32 = compute select 0x1:f32 0x0:f32 0x1:f32\n", "one type");
    expect("v2: f32 = compute input\n", "other operands");
    expect("v2: i32 = fence 0x1:f32\n", "gives what it takes");
    expect("v2: b1 = convert 0x1:f32\n", "takes a number");
    expect("v2: i32 = shorten f16 0x1:f32\n", "between memory and registers");
    expect("v2: f32x-3 = load #0 v0\n", "without lanes");
    expect("lanes\n", "gives one value");
    expect("v2: f32 = store #0 v0 0x0:f32\n", "gives nothing");
    expect("v2: f32x4 = load #6 v0\n", "a pointer to what it gives");
    expect("v2: f32 = load #0 0x0:f32*\n", "constant");
    expect("v2: i32 = thread #77\n", "a place of a thread");
    expect("loop v2 = 0:index to v1 by 0:index {\n}\n", "never ends");
    expect("if 0x1:b1 {\n} else garbage\n}\n", "expected '{'");
    expect("loop v2 = 0:index to v1 by 1:index {\nyield\nv3: index = compute add v1 v1\n}\n",
           "expected '}'");
    expect("v2: f32x4 = multiply f16 0x0:i32 0x0:i32 0x0:i32 0x0:i32 0x0:i32 0x0:f32 0x0:f32x4\n",
           "six i32 and an f32x4");
    expect("v2: f64 = load #0 v0\n", "a pointer to what it gives");
    expect("v2: f32x4 = load #0 v0 0x1:b1x8\n", "and a mask");
    expect("store #0 v0 0x0:i32\n", "what is stored there");
    expect("v2: f32x4 = gather v0 0x0:i64x8\n", "an offset for each lane");
    expect("v2: f32 = lane #4 0x0:f32x4\n", "a lane that there is");
    expect("v2: f32x8 = half #0 0x0:f32x8\n", "half of the lanes");
    expect("v2: f32x8 = zip #0 0x0:f32x8 0x0:f32x4\n", "two vectors");
    expect("v2: f32x8 = zip #2 0x0:f32x8 0x0:f32x8\n", "two vectors");
    expect("v2: f32 = bits 0x0:f64\n", "number of bits");
    expect(
        "loop v2 = 0:index to v1 by 1:index with v3: f32 = 0x0:f32 {\nyield 0x0:f64\n} gives v4: f32\n",
        "different types");
    expect("if 0x1:b1 {\nyield 0x0:f32\n} else {\n} gives v2: f32\n", "two blocks");
    expect(
        "if 0x1:b1 {\nv2: index = compute add v1 v1\n} else {\n}\nv3: index = compute add v2 v1\n",
        "not defined before it");
}

TEST(Interpreter, ReductionsHaveTheseBits) {
    const RunUnits run = [](const KernelIR& kernel, Case& c, void* const* outputs, int64_t lo,
                            int64_t hi) {
        loops::run(loops_of(kernel, {}), arguments_of(c, outputs, lo, hi));
    };
    EXPECT_EQ(reduction_bits(run, false), kReductionBits);
    EXPECT_EQ(reduction_bits(run, true), kReductionBits);
    const RunUnits walk = [](const KernelIR& kernel, Case& c, void* const* outputs, int64_t,
                             int64_t) {
        ElementWalk(kernel, c.launch, c.input_pointers().data(), outputs).run();
    };
    EXPECT_EQ(reduction_bits(walk, false), kReductionBits);
}

}}  // namespace megjit::codegen
