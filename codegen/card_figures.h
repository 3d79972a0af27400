// codegen/card_figures.h -- CardFigures: how fast a GPU is, as data. codegen/cards/sm_90.json and
// its neighbours list one figure a line, each with its source; they are compiled in. Plans of
// recomputation, choices of products, transfers and modelled times all read them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megjit::codegen {

// A line of a card's file: `what` the figure measures, and numbers and words by their keys.
struct CardFigure {
    std::string_view what;  // "memory", "launch", "instructions", "flops", "product", ...
    std::vector<std::pair<std::string_view, double>> numbers;  // true is kept as 1
    std::vector<std::pair<std::string_view, std::string_view>> words;
    double number(std::string_view key) const;  // InternalError where the line has no such key
    std::string_view word(std::string_view key) const;  // empty where the line has no such key
};

class CardFigures {
public:
    // Returns the figures of the architecture (90: sm_90), or of the next older one that has a
    // file. Every file has "memory", "cache", "launch", "instructions" and "flops".
    static const CardFigures& of(int arch);
    explicit CardFigures(std::vector<CardFigure> figures);

    // Returns the speed of a kernel that reads and writes `bytes` in all. It is interpolated over
    // the logarithms of the listed sizes; beyond these it is that of the nearest one.
    double memory_bytes_per_second(double bytes) const;
    double cache_bytes() const { return cache_; }  // size of the second level
    double launch_seconds() const { return launch_; }  // time of one kernel in a CUDA graph
    double instructions_per_second() const { return instructions_; }  // scalar, all lanes
    // The rate that large products reach: "float32", "tf32", "float16", "bfloat16", "int8"; or
    // "scores forward" and "scores backward", of attention.
    double flops_per_second(std::string_view kind) const;
    // The measured time of a "product", a "convolution" or an "attention" whose line has all these
    // numbers and words, if there is one.
    std::optional<double> listed_seconds(const CardFigure& problem) const;

private:
    std::vector<CardFigure> figures_;
    std::vector<std::pair<double, double>> memory_;  // log2 of bytes, bytes a second; sorted
    std::map<std::string_view, double> flops_;
    double cache_ = 0, launch_ = 0, instructions_ = 0;
};

}  // namespace megjit::codegen
