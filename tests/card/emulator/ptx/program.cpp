#include "tests/card/emulator/ptx/program.h"

#include <algorithm>
#include <cstdio>

#include "tests/card/emulator/ptx/decode.h"
#include "tests/card/emulator/ptx/rounding_rules.h"

namespace megjit::card::ptx {
namespace {

void write_initial(Card& card, const Declaration& d, const Symbols& symbols, Address address) {
    std::byte* at = on_host(card, address, d.bytes(), d.name.c_str());
    std::memset(at, 0, d.bytes());
    const uint32_t bytes = bytes_of(d.type);
    for (const Declaration::Value& value : d.initial) {
        uint64_t bits = value.bits;
        if (!value.symbol.empty()) {
            const auto global = symbols.globals.find(value.symbol);
            if (global == symbols.globals.end())
                refuse(d.line, "what is " + value.symbol + "?", d.name);
            bits += global->second;
        }
        std::memcpy(at, &bits, bytes);
        at += bytes;
    }
}

Dim3 to_dim(const std::vector<uint32_t>& n) {
    return {n.empty() ? 1 : n[0], n.size() > 1 ? n[1] : 1, n.size() > 2 ? n[2] : 1};
}

}  // namespace

Program::Program(Card& card, const char* text) : card_(card) {
    const ModuleText module = parse(text);
    if (module.target.find("sm_") == std::string::npos) refuse(1, ".target is missing");
    const int wanted = std::atoi(module.target.c_str() + module.target.find("sm_") + 3);
    if (wanted > card.description().arch)
        throw Fault(Result::no_binary_for_gpu,
                    "PTX for " + module.target +
                        megjit::card::text("; the card is sm_%d", card.description().arch));
    int major = 0, minor = 0;
    if (std::sscanf(module.version.c_str(), "%d.%d", &major, &minor) != 2)
        refuse(1, ".version is missing");
    if (10 * major + minor > newest_ptx())
        throw Fault(Result::unsupported_ptx_version,
                    "PTX of version " + module.version +
                        megjit::card::text("; the driver compiles up to %d.%d", newest_ptx() / 10,
                                           newest_ptx() % 10));
    Symbols symbols;
    for (const Declaration& d : module.variables) {
        if (d.space == Space::shared) {
            symbols.shared[d.name] = d;
            continue;
        }
        if (d.is_extern && d.bytes() == 0)
            refuse(d.line, "a variable that nobody defines: " + d.name);
        const Address address = card.memory.allocate(std::max<uint64_t>(d.bytes(), 1), true, false);
        if (!address) throw Fault(Result::out_of_memory, "no memory for the variable " + d.name);
        variables_[d.name] = {address, d.bytes()};
        symbols.globals[d.name] = address;
    }
    for (const Declaration& d : module.variables)
        if (const auto it = variables_.find(d.name); it != variables_.end() && d.bytes())
            write_initial(card, d, symbols, it->second.address);
    for (const auto& f : module.functions) {
        // A declaration may come before, or after, the definition.
        auto& known = symbols.texts[f->name];
        if (!known || f->has_body) known = f.get();
        // Shared variables of functions, declared without a size, are the launch's.
        for (const Declaration& d : f->variables)
            if (d.space == Space::shared && d.count == 0) symbols.shared[d.name] = d;
    }
    if (std::ranges::any_of(module.functions, [](const auto& f) { return f->name == kExactEntry; }))
        for (const auto& f : module.functions) refuse_loose_rounding(*f);
    for (const auto& f : module.functions) {
        if (!f->is_entry || !f->has_body) continue;
        auto kernel = std::make_unique<Kernel>();
        kernel->name = f->name;
        kernel->code = Decoder(symbols, *f, *kernel).run();
        if (!f->max_threads.empty())
            kernel->max_threads = static_cast<uint32_t>(to_dim(f->max_threads).count());
        kernel->required_block = to_dim(f->required_threads);
        kernels_.push_back(std::move(kernel));
    }
}

Program::~Program() {
    for (const auto& [_, variable] : variables_) card_.memory.free(variable.address);
}

const Variable* Program::variable(const std::string& name) const {
    const auto it = variables_.find(name);
    return it == variables_.end() ? nullptr : &it->second;
}

}  // namespace megjit::card::ptx
