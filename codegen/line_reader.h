// codegen/line_reader.h -- reads a line of the text of kernels, loops or graphs, word by word.
#pragma once

#include <algorithm>
#include <charconv>
#include <span>

#include "codegen/kernel_ir.h"
#include "runtime/host/error.h"

namespace megjit::codegen {

// Every error names the line.
class LineReader {
public:
    // `what` is the kind of text: "kernel text".
    LineReader(std::string_view what, std::string_view line, int number)
        : rest_(line), what_(what), line_(line), number_(number) {}

    bool at_end() {
        skip_spaces();
        return rest_.empty();
    }
    std::string_view word() {
        skip_spaces();
        const size_t size = std::min(rest_.find_first_of(" \t"), rest_.size());
        const std::string_view word = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return word;
    }
    // Skips `expected` if that is the next word, and says whether it was.
    bool take(std::string_view expected) {
        const std::string_view before = rest_;
        if (word() == expected) return true;
        rest_ = before;
        return false;
    }
    void expect_end() {
        if (!at_end()) fault(runtime::cat("'", rest_, "' is too much"));
    }
    template <class Int>
    Int number(std::string_view text) {
        Int value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || text.empty())
            fault(runtime::cat("'", text, "' is not a number"));
        return value;
    }
    int value_id(char prefix = '%') {
        const std::string_view text = word();
        if (!text.starts_with(prefix))
            fault(runtime::cat("'", text, "' is not a value such as ", prefix, "0"));
        return number<int>(text.substr(1));
    }
    int one_of(std::span<const std::string_view> names, std::string_view text,
               std::string_view kind) {
        for (size_t i = 0; i < names.size(); ++i)
            if (names[i] == text) return static_cast<int>(i);
        fault(runtime::cat("'", text, "' is not ", kind));
    }
    runtime::ScalarOp scalar_op() {
        const std::string_view name = word();
        for (int op = 0; op <= static_cast<int>(runtime::ScalarOp::narrow); ++op)
            if (runtime::name_of(static_cast<runtime::ScalarOp>(op)) == name)
                return static_cast<runtime::ScalarOp>(op);
        fault(runtime::cat("'", name, "' is not an instruction"));
    }
    runtime::DType dtype() {
        const std::string_view tag = word();
        for (int i = 0; i < runtime::kDTypeCount; ++i)
            if (runtime::info(static_cast<runtime::DType>(i)).tag == tag)
                return static_cast<runtime::DType>(i);
        fault(runtime::cat("'", tag, "' is not a dtype"));
    }
    [[noreturn]] void fault(const std::string& why, std::string fix = {}) const {
        runtime::user_error({.what = runtime::cat(what_, ", line ", number_, ": ", why),
                             .why = runtime::cat("the line is '", line_, "'"),
                             .fix = std::move(fix)});
    }

protected:
    void skip_spaces() {
        rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
    }
    std::string_view rest_;  // the part of the line that is not yet read

private:
    std::string_view what_, line_;
    int number_;
};

}  // namespace megjit::codegen
