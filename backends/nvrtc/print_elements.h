// backends/nvrtc/print_elements.h -- the part of a kernel's text that is about elements: what the
// loop over them holds. print_kernel.cpp puts the loops, the rows and the function around it.
#pragma once

#include <string>
#include <vector>

#include "codegen/gpu_plan.h"
#include "codegen/row_plan.h"

namespace megjit::nvrtc {

// Names in the text: inK, outK addresses; nA extents; sO_A strides of operand O; gI gather strides;
// iA coordinates; oO, eO offsets of a row and of an element; tI gathered offsets; pO packs; vID
// values of the program; cR_N, aR_N chain and lane of accumulator N of a reduction, rR its result.
class ElementPrinter {
public:
    ElementPrinter(const codegen::KernelIR& kernel, const codegen::GpuPlan& plan);

protected:
    void line(const std::string& text);
    void value(int id, const std::string& text);
    std::string product(int first, int last) const;  // of the extents of axes first..last
    // The offset of operand `at` at coordinates of axes first..last, after `base`.
    std::string offset(std::string base, size_t at, int first, int last) const;
    // Coordinates of `linear` in axes first..last.
    void coordinates(const std::string& linear, int first, int last);
    // Elements j .. j + vector - 1, which are neighbours on the last axis.
    void elements(const codegen::RowWalk& walk);

    bool is_walked(int input) const { return !kernel_.inputs[static_cast<size_t>(input)].per_row; }

    const codegen::KernelIR& kernel_;
    const codegen::GpuPlan& plan_;
    const codegen::RowPlan rows_;  // element-wise kernels are one walk
    const size_t operands_;
    const int
        first_walked_;  // the axes from here on are walked by a loop; those before are a row's
    std::string text_;
    int depth_ = 1;

private:
    bool has_tail() const { return plan_.vector > 1 && kernel_.reduced == 0 && kernel_.rank == 1; }
    bool is_packed(size_t at) const { return plan_.vector > 1 && codegen::is_packed(kernel_, at); }
    bool is_gathered_once(size_t input) const;
    std::vector<bool> read_inputs(const codegen::RowWalk& walk) const;
    std::string lane_offset(size_t at) const;
    std::string element_of(size_t input) const;
    void offsets(const codegen::RowWalk& walk);
    void packs(const codegen::RowWalk& walk);
    void lanes(const codegen::RowWalk& walk);
    void take(const codegen::Reduced& reduced);
    void store_packs(const codegen::RowWalk& walk);
};

}  // namespace megjit::nvrtc
