#include "codegen/card_figures.h"

#include <algorithm>
#include <cmath>

#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

struct CardFile {
    int arch;
    std::vector<CardFigure> figures;
};

// Written by codegen/cards/CMakeLists.txt: a CardFile for each file, sorted by architecture.
const CardFile kFiles[] = {
#include "card_figures.inc"
};

}  // namespace

double CardFigure::number(std::string_view key) const {
    for (const auto& [name, value] : numbers)
        if (name == key) return value;
    throw runtime::InternalError(runtime::cat("a card's figure of ", what, " has no ", key));
}

std::string_view CardFigure::word(std::string_view key) const {
    for (const auto& [name, value] : words)
        if (name == key) return value;
    return {};
}

const CardFigures& CardFigures::of(int arch) {
    static const auto& cards = *[] {
        auto* made = new std::map<int, CardFigures>;
        for (const CardFile& file : kFiles) made->try_emplace(file.arch, file.figures);
        return made;
    }();
    const auto newer = cards.upper_bound(arch);
    return newer == cards.begin() ? newer->second : std::prev(newer)->second;
}

CardFigures::CardFigures(std::vector<CardFigure> figures) : figures_(std::move(figures)) {
    for (const CardFigure& figure : figures_) {
        if (figure.what == "memory")
            memory_.emplace_back(std::log2(figure.number("bytes")), figure.number("per_second"));
        else if (figure.what == "cache") cache_ = figure.number("bytes");
        else if (figure.what == "launch") launch_ = figure.number("seconds");
        else if (figure.what == "instructions") instructions_ = figure.number("per_second");
        else if (figure.what == "flops") flops_[figure.word("dtype")] = figure.number("per_second");
    }
    std::ranges::sort(memory_);
}

double CardFigures::memory_bytes_per_second(double bytes) const {
    const double size = std::log2(std::max(bytes, 1.0));
    const auto above =
        std::ranges::lower_bound(memory_, size, {}, [](auto& row) { return row.first; });
    if (above == memory_.end()) return memory_.back().second;
    if (above == memory_.begin()) return above->second;
    const auto& [below, speed] = *std::prev(above);
    const double part = (size - below) / (above->first - below);
    return speed + part * (above->second - speed);
}

double CardFigures::flops_per_second(std::string_view kind) const {
    const auto found = flops_.find(kind);
    if (found == flops_.end())
        throw runtime::InternalError(runtime::cat("no card's figure tells the flops of ", kind));
    return found->second;
}

std::optional<double> CardFigures::listed_seconds(const CardFigure& problem) const {
    for (const CardFigure& figure : figures_)
        if (figure.what == problem.what &&
            std::ranges::all_of(
                problem.words,
                [&](auto& each) { return figure.word(each.first) == each.second; }) &&
            std::ranges::all_of(problem.numbers, [&](auto& each) {
            return figure.number(each.first) == each.second;
        }))
            return figure.number("seconds");
    return {};
}

}  // namespace megjit::codegen
