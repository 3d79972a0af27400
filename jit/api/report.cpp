#include "jit/api/report.h"

#include <cmath>
#include <cstdio>
#include <type_traits>

#include "runtime/host/error.h"

namespace megjit::api {
namespace {

std::string in_quotes(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
            result += escape;
        } else {
            result += c;
        }
    }
    return result + '"';
}

std::string json(std::string_view text) { return in_quotes(text); }
template <class Number>
std::enable_if_t<std::is_arithmetic_v<Number>, std::string> json(Number number) {
    if constexpr (std::is_same_v<Number, bool>) return number ? "true" : "false";
    else if constexpr (std::is_floating_point_v<Number>)
        return std::isfinite(number) ? runtime::cat(number) : "null";
    else return runtime::cat(number);
}

template <class Items, class Print>
std::string list_of(const Items& items, const Print& print) {
    std::string result = "[";
    for (const auto& item : items) result += (result.size() > 1 ? ", " : "") + print(item);
    return result + "]";
}
std::string json(const std::vector<std::string>& texts) {
    return list_of(texts, [](const std::string& text) { return in_quotes(text); });
}

class Fields {
public:
    template <class Value>
    Fields& add(std::string_view name, const Value& value) {
        return add_json(name, json(value));
    }
    Fields& add_json(std::string_view name, std::string_view value) {
        text_ += runtime::cat(text_.size() > 1 ? ", " : "", in_quotes(name), ": ", value);
        return *this;
    }
    std::string text() const { return text_ + "}"; }

private:
    std::string text_ = "{";
};

std::string json_of_buffer(const jit::PlannedBuffer& buffer) {
    return Fields()
        .add("place", jit::name_of(buffer.place))
        .add("offset", buffer.offset)
        .add("bytes", buffer.bytes)
        .add("first_step", buffer.live.first)
        .add("last_step", buffer.live.last)
        .add("use", jit::name_of(buffer.use))
        .add("values", buffer.values)
        .text();
}

std::string json_of_step(const jit::StepProfile& step) {
    return Fields()
        .add("ops", step.ops)
        .add("where", std::string_view(step.where))
        .add("step", step.step)
        .add("backend", std::string_view(step.backend))
        .add("bytes", step.bytes)
        .add("seconds", step.seconds)
        .add("is_transfer", step.is_transfer)
        .add("last_begin", step.last_begin)
        .add("last_seconds", step.last_seconds)
        .text();
}

}  // namespace

std::string json_of(const jit::MemoryPlan& plan) {
    return Fields()
        .add("unplanned_bytes", plan.unplanned_bytes)
        .add("planned_bytes", plan.planned_bytes)
        .add("peak_live_bytes", plan.peak_live_bytes)
        .add("arena_bytes", plan.arena_bytes)
        .add("workspace_bytes", plan.workspace_bytes)
        .add("host_bytes", plan.host_bytes)
        .add("transferred_bytes", plan.transferred_bytes)
        .add("recompute_flops_ratio", plan.recompute_flops_ratio)
        .add_json("buffers", list_of(plan.buffers, json_of_buffer))
        .add("steps", plan.steps)
        .text();
}

std::string json_of(std::span<const jit::KernelUse> kernels) {
    return list_of(kernels, [](const jit::KernelUse& use) {
        return Fields()
            .add("backend", std::string_view(use.compiled->backend))
            .add("ops", use.ops)
            .add("choice", std::string_view(use.choice))
            .add("where", std::string_view(use.where))
            .add("bytes", use.bytes)
            .add("ir", std::string_view(print(use.compiled->kernel)))
            .add("compile_ms", use.compiled->compile_ms)
            .add("cached", use.compiled->cached)
            .text();
    });
}

std::string profiles_json(std::span<const std::shared_ptr<jit::Program>> programs) {
    return list_of(programs, [](const std::shared_ptr<jit::Program>& program) {
        const jit::Profile profile = program->profile();
        return Fields()
            .add("runs", profile.runs)
            .add("seconds", profile.seconds)
            .add("last_seconds", profile.last_seconds)
            .add_json("steps", list_of(profile.steps, json_of_step))
            .text();
    });
}

}  // namespace megjit::api
