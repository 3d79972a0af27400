#include "tests/card/emulator/module.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace megjit::card {
namespace {

constexpr uint32_t kFatBinaryMagic = 0xba55ed50, kFatBinaryWrapperMagic = 0x466243b1;

uint32_t first_word(const void* image) {
    uint32_t word;
    std::memcpy(&word, image, sizeof word);
    return word;
}

bool is_elf(const void* image) { return std::memcmp(image, ELFMAG, SELFMAG) == 0; }

const Elf64_Shdr* sections(const char* base) {
    return reinterpret_cast<const Elf64_Shdr*>(base +
                                               reinterpret_cast<const Elf64_Ehdr*>(base)->e_shoff);
}

// A CUBIN has one section .text.NAME a kernel.
std::vector<std::string> kernels_of_cubin(const char* base) {
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
    const Elf64_Shdr* section = sections(base);
    const char* names = base + section[header->e_shstrndx].sh_offset;
    std::vector<std::string> found;
    for (int i = 0; i < header->e_shnum; ++i)
        if (const std::string name = names + section[i].sh_name; name.starts_with(".text."))
            found.push_back(name.substr(6));
    return found;
}

}  // namespace

std::string copy_of_image(const void* image) {
    const auto* bytes = static_cast<const char*>(image);
    if (is_elf(image)) {
        const auto* header = reinterpret_cast<const Elf64_Ehdr*>(bytes);
        size_t end = header->e_shoff + size_t{header->e_shnum} * header->e_shentsize;
        end =
            std::max<size_t>(end, header->e_phoff + size_t{header->e_phnum} * header->e_phentsize);
        for (int i = 0; i < header->e_shnum; ++i)
            if (const Elf64_Shdr& s = sections(bytes)[i]; s.sh_type != SHT_NOBITS)
                end = std::max<size_t>(end, s.sh_offset + s.sh_size);
        return {bytes, end};
    }
    const uint32_t magic = first_word(image);
    if (magic == kFatBinaryMagic || magic == kFatBinaryWrapperMagic) return {bytes, 16};
    return bytes;  // text
}

Module::Module(Card& card, const void* image) : card(card) {
    const uint32_t magic = first_word(image);
    any_name_ = magic == kFatBinaryMagic || magic == kFatBinaryWrapperMagic;
    if (any_name_) return;
    const auto add = [&](const std::string& name, const ptx::Kernel* kernel) {
        functions_[name].reset(new Function{this, name, kernel});
    };
    if (is_elf(image)) {
        for (const std::string& name : kernels_of_cubin(static_cast<const char*>(image)))
            add(name, nullptr);
        return;
    }
    program_ = std::make_unique<ptx::Program>(card, static_cast<const char*>(image));
    for (const auto& kernel : program_->kernels()) add(kernel->name, kernel.get());
}

Function* Module::function(const std::string& name) {
    auto it = functions_.find(name);
    if (it == functions_.end() && any_name_)
        it = functions_.emplace(name, new Function{this, name, nullptr}).first;
    return it == functions_.end() ? nullptr : it->second.get();
}

ptx::Variable Module::variable(const std::string& name) const {
    if (program_)
        if (const ptx::Variable* found = program_->variable(name)) return *found;
    throw Fault(Result::not_found, "the module has no variable " + name);
}

Library::Library(const void* data) : image(copy_of_image(data)) {}

Module& Library::on(Card& card) {
    auto& module = modules[&card];
    if (!module) module = std::make_unique<Module>(card, image.c_str());
    return *module;
}

std::vector<std::byte> gather_parameters(const Function& function, void** pointers, void** extra) {
    if (!function.kernel)
        throw Fault(Result::no_binary_for_gpu,
                    function.name +
                        " is machine code of a real card; the emulated card runs PTX: "
                        "load PTX (NVRTC: --gpu-architecture=compute_90)");
    const ptx::Kernel& kernel = *function.kernel;
    std::vector<std::byte> bytes(kernel.parameter_bytes);
    if (pointers && extra)
        throw Fault(Result::invalid_value,
                    "a launch of " + kernel.name + " has both kernelParams and extra; give one");
    if (extra) {
        const void* buffer = nullptr;
        const size_t* size = nullptr;
        for (void** at = extra; *at; at += 2) {
            if (*at == reinterpret_cast<void*>(1)) buffer = at[1];
            else if (*at == reinterpret_cast<void*>(2)) size = static_cast<const size_t*>(at[1]);
            else
                throw Fault(Result::invalid_value,
                            "an entry of `extra` is neither the buffer (1) nor its size (2)");
        }
        if (!buffer || !size || *size != bytes.size())
            throw Fault(Result::invalid_value,
                        text("a launch of %s has %zu bytes of arguments, its .param list has %zu",
                             kernel.name.c_str(), buffer && size ? *size : 0, bytes.size()));
        std::memcpy(bytes.data(), buffer, bytes.size());
        return bytes;
    }
    if (!pointers && !kernel.parameters.empty())
        throw Fault(Result::invalid_value,
                    text("a launch of %s has no arguments, its .param list has %zu",
                         kernel.name.c_str(), kernel.parameters.size()));
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
        if (!pointers[i])
            throw Fault(Result::invalid_value,
                        text("argument %zu of %s is null", i, kernel.name.c_str()));
        std::memcpy(bytes.data() + kernel.parameters[i].offset, pointers[i],
                    kernel.parameters[i].bytes);
    }
    return bytes;
}

void check_launch(const LaunchRequest& launch) {
    const Function& function = *launch.function;
    const ptx::Kernel& kernel = *function.kernel;
    const Description& card = function.module->card.description();
    const auto refuse = [&](Result result, const std::string& why) {
        throw Fault(result, "a launch of " + kernel.name + " is refused: " + why);
    };
    const auto [gx, gy, gz] = launch.grid;
    const auto [bx, by, bz] = launch.block;
    if (!gx || !gy || !gz || gx > 0x7fffffff || gy > 65535 || gz > 65535)
        refuse(Result::invalid_value, text("a grid of %u x %u x %u; 1 to 2147483647 x 65535 x "
                                           "65535 blocks are allowed",
                                           gx, gy, gz));
    if (!bx || !by || !bz || bx > 1024 || by > 1024 || bz > 64 ||
        launch.block.count() > kMaxThreads)
        refuse(
            Result::invalid_value,
            text("a block of %u x %u x %u; 1 to 1024 x 1024 x 64 threads are allowed, 1024 in all",
                 bx, by, bz));
    if (kernel.max_threads && launch.block.count() > kernel.max_threads)
        refuse(Result::invalid_value,
               text("%llu threads a block, .maxntid allows %u",
                    static_cast<unsigned long long>(launch.block.count()), kernel.max_threads));
    if (kernel.required_block.count() > 1 && launch.block != kernel.required_block)
        refuse(Result::invalid_value,
               text("a block of %u x %u x %u, .reqntid asks for %u x %u x %u", bx, by, bz,
                    kernel.required_block.x, kernel.required_block.y, kernel.required_block.z));
    const uint32_t limit = static_cast<uint32_t>(function.dynamic_shared_limit);
    if (launch.shared_bytes > limit ||
        launch.shared_bytes + kernel.shared_bytes > std::max<uint32_t>(limit, kSharedBytes))
        refuse(Result::invalid_value,
               text("%u bytes of dynamic and %u of static shared memory; %u are allowed "
                    "(cuFuncSetAttribute MAX_DYNAMIC_SHARED_SIZE_BYTES allows up to %d in all)",
                    launch.shared_bytes, kernel.shared_bytes, limit, card.shared_bytes_opt_in));
}

double KernelWork::run(Card& card) {
    return ptx::execute(card, *launch.function->kernel,
                        {launch.grid, launch.block, launch.shared_bytes, launch.parameters});
}

}  // namespace megjit::card
