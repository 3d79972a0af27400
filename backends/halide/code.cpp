#include "backends/halide/code.h"

namespace megjit::halide_backend {

using namespace Halide::Internal;

std::string Code::name(std::string_view prefix) {
    return std::string(prefix) + std::to_string(serial_++);
}

Expr Code::let(std::string_view prefix, const Expr& value) {
    const std::string unique = name(prefix);
    items_.push_back([=](Stmt rest) {
        return rest.defined() ? LetStmt::make(unique, value, std::move(rest)) : rest;
    });
    return Variable::make(value.type(), unique);
}

// Allocates on the stack. Halide takes more than 16 KiB from the heap, unless the memory counts as
// registers.
std::string Code::allocate(std::string_view prefix, Halide::Type type, int elements) {
    const std::string unique = name(prefix);
    items_.push_back([=](Stmt rest) {
        if (!rest.defined()) return rest;
        return Allocate::make(unique, type.element_of(), Halide::MemoryType::Register,
                              {Expr(elements)}, const_true(), std::move(rest));
    });
    return unique;
}

void Code::add(Stmt statement) {
    if (!statement.defined()) return;
    items_.push_back([=](Stmt rest) {
        return rest.defined() ? Block::make(statement, std::move(rest)) : statement;
    });
}

void Code::loop(const Expr& count, const Body& body) {
    constexpr int kLog2Chunk = 30;
    constexpr int64_t kChunk = int64_t{1} << kLog2Chunk;
    const auto range = [](const std::string& index, const Expr& extent, Code code) -> Stmt {
        Stmt inner = code.finish();
        if (!inner.defined()) return inner;
        return For::make(index, 0, Halide::cast<int32_t>(extent), ForType::Serial,
                         Halide::Partition::Never, Halide::DeviceAPI::None, std::move(inner));
    };
    const std::string outer_name = name("c"), inner_name = name("i");
    Code outer = inside();
    const Expr first = outer.let(
        "first", Halide::cast<int64_t>(Variable::make(Halide::Int(32), outer_name)) * Expr(kChunk));
    Code inner = outer.inside();
    const Expr index =
        inner.let("at", first + Halide::cast<int64_t>(Variable::make(Halide::Int(32), inner_name)));
    body(inner, index);
    outer.add(range(inner_name, min(count - first, Expr(kChunk)), std::move(inner)));
    add(range(outer_name, (count + Expr(kChunk - 1)) >> kLog2Chunk, std::move(outer)));
}

Stmt Code::finish() {
    Stmt rest;
    for (size_t i = items_.size(); i-- > 0;) rest = items_[i](std::move(rest));
    items_.clear();
    return rest;
}

}  // namespace megjit::halide_backend
