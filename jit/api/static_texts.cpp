#include "jit/api/static_texts.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "jit/plan/program_layout.h"
#include "runtime/host/error.h"
#include "runtime/host/isa.h"

namespace megjit::api {
namespace {

using runtime::cat;
using runtime::DType;

// Is it a keyword of C or C++ that somebody might give to a tensor?
bool is_keyword(const std::string& name) {
    static const std::set<std::string> keywords = {
        "auto",     "bool",    "break",    "case",     "char",   "class",    "const",    "default",
        "delete",   "do",      "double",   "else",     "enum",   "extern",   "false",    "final",
        "float",    "for",     "friend",   "if",       "inline", "int",      "long",     "new",
        "operator", "private", "public",   "return",   "short",  "register", "signed",   "static",
        "struct",   "switch",  "this",     "template", "true",   "union",    "unsigned", "using",
        "virtual",  "void",    "volatile", "while"};
    return keywords.contains(name);
}

const char* c_type_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float";
        case DType::i32: return "int32_t";
        case DType::f64: return "double";
        case DType::i64: return "int64_t";
        case DType::i16: return "int16_t";
        case DType::i8: return "int8_t";
        default: return runtime::size_of(dtype) == 2 ? "uint16_t" : "uint8_t";
    }
}
}  // namespace

std::vector<std::string> members_of(const std::vector<std::string>& names, const char* unnamed) {
    std::vector<std::string> members;
    for (size_t i = 0; i < names.size(); ++i) {
        std::string member = names[i].empty() ? cat(unnamed, i) : names[i];
        for (char& c : member)
            if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
        if (std::isdigit(static_cast<unsigned char>(member[0]))) member.insert(0, "_");
        while (is_keyword(member) || std::ranges::count(members, member)) member += "_";
        members.push_back(std::move(member));
    }
    return members;
}

std::string StaticTexts::tensors_of(const std::string& kind, const std::vector<Member>& members,
                                    const std::string& words) const {
    std::string text;
    for (const Member& member : members)
        text += cat("    ", kind == "inputs" ? "const " : "", c_type_of(member.type.dtype), "* ",
                    member.name, "; /* ", to_string(member.type),
                    kind == "states" && !member.is_replaced ? ", only read" : "", " */\n");
    return cat(words, "typedef struct ", name, "_", kind, " {\n",
               text.empty() ? "    char none;\n" : text, "} ", name, "_", kind, ";\n");
}

// The parameters of a run.
std::string StaticTexts::with_states(const std::string& last) const {
    return cat("const ", name, "_inputs* inputs, const ", name, "_outputs* outputs, ",
               states.empty() ? "" : cat("const ", name, "_states* states, "), "void* arena", last);
}

std::string StaticTexts::header() const {
    std::string state, start;
    if (!states.empty()) {
        state = tensors_of(
            "states", states,
            "/* What is kept from run to run, in memory of the caller's: a run reads it, and puts new values there. */\n");
        start = cat("/* Writes the state as it was when this was packaged. */\nvoid ", name,
                    "_start(const ", name, "_states* states);\n\n");
    }
    return cat(
        "/* Made by `python -m megengine package --static`. Tensors are row-major; float16 and bfloat16 are their bits. */\n"
        "#ifndef ",
        name, "_h\n#define ", name,
        "_h\n#include <stddef.h>\n#include <stdint.h>\n"
        "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n",
        tensors_of("inputs", inputs, ""), tensors_of("outputs", outputs, ""), state,
        "\n/* What a run needs beside its tensors: so many bytes, at a multiple of ", name,
        "_arena_align. */\n"
        "#define ",
        name, "_arena_bytes ((size_t)", std::max<size_t>(arena_bytes, jit::kOperandAlign),
        ")\n"
        "#define ",
        name, "_arena_align ", jit::kOperandAlign, "\n\n", start, "/* 0; 1 where the CPU lacks ",
        runtime::name_of(isa),
        "; 2 where the arena is null or unaligned: nothing is done then.\n"
        "   3 where an index or a label is out of range: the results are not complete then",
        states.empty() ? "" : ", and the state is as it was",
        ".\n"
        "   Inputs are only read; no two of the tensors may overlap. Threads need an arena each. */\n"
        "int ",
        name, "_run(", with_states(");\n\n"),
        "/* The same by several threads: parallel_for(pool, count, body, data) calls body(data, i) for each i from 0 to\n"
        "   count - 1, in whatever threads and order, and returns when all have returned. The results have the same bits. */\n"
        "typedef struct ",
        name,
        "_threads {\n    int count; /* that may compute at once */\n"
        "    void (*parallel_for)(void* pool, int count, void (*body)(void* data, int i), void* data);\n"
        "    void* pool;\n} ",
        name,
        "_threads;\n"
        "int ",
        name, "_run_on(", with_states(cat(", const ", name, "_threads* threads);\n\n")),
        "#ifdef __cplusplus\n}\n#endif\n#endif\n");
}

// C code that says whether a CPU has that level.
static std::string check_of(runtime::Isa isa) {
    if (runtime::is_arm(isa)) {
        const runtime::ArmBits bits = runtime::arm_bits(isa);
        return cat("(getauxval(AT_HWCAP) & ", bits.hwcap, "UL) == ", bits.hwcap,
                   "UL && (getauxval(AT_HWCAP2) & ", bits.hwcap2, "UL) == ", bits.hwcap2, "UL");
    }
    std::string checked = "__builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\")";
    if (runtime::has_avx512(isa))
        for (const char* feature : {"avx512f", "avx512bw", "avx512dq", "avx512vl"})
            checked += cat(" && __builtin_cpu_supports(\"", feature, "\")");
    return checked;
}

std::string StaticTexts::source() const {
    std::string declared;
    for (const std::string& symbol : kernels) declared += cat("extern kernel ", symbol, ";\n");
    const std::string given = states.empty() ? "" : "states, ";
    return cat(
        "#include \"", name, ".h\"\n\n#include <string.h>\n",
        runtime::is_arm(isa) ? "#include <sys/auxv.h>\n" : "",
        "\n"
        "/* ",
        name,
        ".bin lies beside this file: the assembler looks for it where -Wa,-I says. */\n"
        "__asm__(\".section .rodata\\n.balign 64\\n.globl ",
        name, "_constants\\n.hidden ", name, "_constants\\n", name, "_constants:\\n.incbin \\\"",
        name,
        ".bin\\\"\\n.byte 0\\n.text\\n\");\n"
        "extern const unsigned char ",
        name,
        "_constants[] __attribute__((visibility(\"hidden\")));\n\n"
        "typedef void kernel(void* const* in, void* const* out, const int64_t* extents, const int64_t* strides, int64_t from, int64_t to);\n",
        declared, R"(
typedef struct launch {
    kernel* run;
    void* const *in, *const *out;
    const int64_t *extents, *strides;
    int64_t units, step;
} launch;

static void run_part(void* data, int i) {
    const launch* const all = (const launch*)data;
    const int64_t from = i * all->step, left = all->units - from;
    all->run(all->in, all->out, all->extents, all->strides, from, from + (left < all->step ? left : all->step));
}

/* Threads are worth it from two times `step` units on. */
static void run_launch(const )",
        name, R"(_threads* threads, launch all) {
    const int64_t most = threads ? 4 * (int64_t)threads->count : 1;
    const int64_t align = all.step > 63 ? 64 : 1, parts = all.units / all.step < most ? all.units / all.step : most;
    if (!threads || threads->count < 2 || parts < 2) {
        all.run(all.in, all.out, all.extents, all.strides, 0, all.units);
        return;
    }
    all.step = ((all.units + parts - 1) / parts + align - 1) / align * align;
    threads->parallel_for(threads->pool, (int)((all.units + all.step - 1) / all.step), run_part, &all);
}

)",
        states.empty()
            ? ""
            : cat("void ", name, "_start(const ", name, "_states* states) {\n", start, "}\n\n"),
        "int ", name, "_run(", with_states(") {\n"), "    return ", name,
        "_run_on(inputs, outputs, ", given, "arena, 0);\n}\n\n", "int ", name, "_run_on(",
        with_states(cat(", const ", name, "_threads* threads) {\n")),
        "    char* const memory = (char*)arena;\n    (void)inputs, (void)outputs, (void)memory, (void)threads, (void)run_launch, (void)",
        name,
        "_constants;\n"
        "    if (!(",
        check_of(isa),
        ")) return 1;\n"
        "    if (arena == 0 || (uintptr_t)arena % ",
        name, "_arena_align) return 2;\n", steps, "    return 0;\n}\n");
}

std::string StaticTexts::cmake() const {
    std::string objects;
    for (const std::string& symbol : kernels) objects += cat(" ", symbol, ".o");
    return cat(
        "# add_subdirectory() this folder, and link ", name, ".\nadd_library(", name, " STATIC ",
        name, ".c", objects,
        ")\n"
        "set_source_files_properties(",
        name,
        ".c PROPERTIES COMPILE_OPTIONS \"-Wa,-I${CMAKE_CURRENT_LIST_DIR}\" OBJECT_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/",
        name,
        ".bin)\n"
        "set_target_properties(",
        name,
        " PROPERTIES POSITION_INDEPENDENT_CODE ON)\n"
        "target_include_directories(",
        name,
        " PUBLIC ${CMAKE_CURRENT_LIST_DIR})\n"
        "target_link_libraries(",
        name, " PUBLIC m)\n");
}

}  // namespace megjit::api
