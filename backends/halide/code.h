// backends/halide/code.h -- Halide statements under construction, in order. A let or an allocation
// is visible to all later statements of the same Code.
#pragma once

#include <Halide.h>

#include <functional>
#include <string>
#include <vector>

namespace megjit::halide_backend {

using Halide::Expr;
using Halide::Internal::Stmt;

class Code {
public:
    // `serial` counts the names of one kernel.
    explicit Code(int& serial) : serial_(serial) {}

    Code inside() const { return Code(serial_); }  // for the inside of a loop or a branch
    std::string name(std::string_view prefix);  // a name that is not in use
    Expr let(std::string_view prefix, const Expr& value);
    // Allocates elements on the stack, which are read and written as vectors of this type.
    std::string allocate(std::string_view prefix, Halide::Type type, int elements);
    void add(Stmt statement);
    // for (index = 0; index < count; ++index) body(code, index); count and index are i64. A loop of
    // Halide counts in 32 bits, so this is one over chunks.
    using Body = std::function<void(Code&, const Expr& index)>;
    void loop(const Expr& count, const Body& body);
    Stmt finish();  // may be undefined if nothing was added

private:
    int& serial_;
    std::vector<std::function<Stmt(Stmt rest)>> items_;  // each puts itself before the rest
};

}  // namespace megjit::halide_backend
