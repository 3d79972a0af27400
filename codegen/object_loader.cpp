#include "codegen/object_loader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/callable_functions.h"
#include "codegen/relocations.h"
#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

using runtime::cat;

void* callable(std::string_view name) {
    const auto found = callable_functions().find(name);
    return found == callable_functions().end() ? nullptr : found->second;
}

[[noreturn]] void refuse(const std::string& why) {
    throw runtime::DeviceError("cannot load a kernel: " + why);
}

// Reads the object's bytes with checked bounds.
class Object {
public:
    explicit Object(std::string_view bytes) : bytes_(bytes) {
        const auto header = at<Elf64_Ehdr>(0);
        constexpr unsigned char kIdent[] = {ELFMAG0,    ELFMAG1,     ELFMAG2,   ELFMAG3,
                                            ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
        if (std::memcmp(header.e_ident, kIdent, sizeof kIdent) != 0 || header.e_type != ET_REL ||
            header.e_machine != host_machine().elf)
            refuse(cat("it is not object code for ", host_machine().name));
        if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum > 1024)
            refuse("its sections are unusual");
        for (size_t i = 0; i < header.e_shnum; ++i)
            sections.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    }

    template <class T>
    T at(uint64_t offset) const {
        T value;
        std::memcpy(&value, range(offset, sizeof(T)).data(), sizeof(T));
        return value;
    }
    std::string_view range(uint64_t offset, uint64_t size) const {
        if (offset > bytes_.size() || size > bytes_.size() - offset) refuse("it is cut");
        return bytes_.substr(offset, size);
    }
    const Elf64_Shdr& section(uint64_t index) const {
        if (index >= sections.size()) refuse("it names a section that does not exist");
        return sections[index];
    }
    template <class T>
    T entry(const Elf64_Shdr& table, uint64_t index) const {
        if (index >= table.sh_size / sizeof(T)) refuse("it names an entry that does not exist");
        return at<T>(table.sh_offset + index * sizeof(T));
    }
    std::string_view name(const Elf64_Shdr& symbols, uint32_t offset) const {
        const Elf64_Shdr& table = section(symbols.sh_link);
        const std::string_view text = range(table.sh_offset, table.sh_size);
        if (offset >= text.size()) refuse("it names a string that does not exist");
        return text.substr(offset, text.substr(offset).find('\0'));
    }

    std::vector<Elf64_Shdr> sections;

private:
    std::string_view bytes_;
};

// One mapping: the sections, then a slot for each address that code loads, then a jump for each
// function outside.
class Image {
public:
    explicit Image(const Object& object)
        : object_(object), offsets_(object.sections.size(), kNowhere) {
        uint64_t size = 0, relocations = 0;
        for (size_t i = 0; i < object.sections.size(); ++i) {
            const Elf64_Shdr& section = object.sections[i];
            if (section.sh_type == SHT_RELA) relocations += section.sh_size / sizeof(Elf64_Rela);
            if (!(section.sh_flags & SHF_ALLOC)) continue;
            if (section.sh_flags & (SHF_WRITE | SHF_TLS)) refuse("it has data that changes");
            if (section.sh_type != SHT_PROGBITS && section.sh_type != SHT_X86_64_UNWIND)
                refuse("it has a section of an unusual type");
            const uint64_t align = std::max<uint64_t>(1, section.sh_addralign);
            if (align > 4096 || (align & (align - 1)) || section.sh_size > kMaxBytes)
                refuse("it has a section of an unusual size");
            size = (size + align - 1) / align * align;
            offsets_[i] = size;
            size += section.sh_size;
            if (size > kMaxBytes) refuse("it is too large");
        }
        slots_ = (size + 15) / 16 * 16;
        capacity_ = std::min<uint64_t>(relocations, kMaxBytes / kSlotBytes);
        bytes_ = slots_ + capacity_ * kSlotBytes;
        void* memory =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) refuse("there is no memory for it");
        base_ = static_cast<std::byte*>(memory);
        for (size_t i = 0; i < object.sections.size(); ++i)
            if (offsets_[i] != kNowhere) {
                const std::string_view content =
                    object.range(object.sections[i].sh_offset, object.sections[i].sh_size);
                std::memcpy(base_ + offsets_[i], content.data(), content.size());
            }
    }
    ~Image() {
        if (base_) ::munmap(base_, bytes_);
    }
    Image(const Image&) = delete;
    Image& operator=(const Image&) = delete;

    void relocate() {
        for (const Elf64_Shdr& table : object_.sections) {
            if (table.sh_type == SHT_REL) refuse("its relocations are unusual");
            if (table.sh_type != SHT_RELA) continue;
            static_cast<void>(object_.section(table.sh_info));  // throws if there is none
            if (offsets_[table.sh_info] == kNowhere) continue;
            const Elf64_Shdr& symbols = object_.section(table.sh_link);
            for (uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i)
                apply(object_.entry<Elf64_Rela>(table, i), table.sh_info, symbols);
        }
    }

    KernelFn run_as(std::string_view wanted) {
        for (const Elf64_Shdr& symbols : object_.sections) {
            if (symbols.sh_type != SHT_SYMTAB) continue;
            for (uint64_t i = 0; i < symbols.sh_size / sizeof(Elf64_Sym); ++i) {
                const auto symbol = object_.entry<Elf64_Sym>(symbols, i);
                if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC ||
                    object_.name(symbols, symbol.st_name) != wanted)
                    continue;
                if (!(object_.section(symbol.st_shndx).sh_flags & SHF_EXECINSTR))
                    refuse("its function is not code");
                std::byte* entry = address_of(symbol, symbols);
                // A processor may have read this memory as instructions before it was written.
                __builtin___clear_cache(reinterpret_cast<char*>(base_),
                                        reinterpret_cast<char*>(base_ + bytes_));
                if (::mprotect(base_, bytes_, PROT_READ | PROT_EXEC) != 0)
                    refuse("this system does not let it run");
                base_ = nullptr;  // the mapping stays
                return reinterpret_cast<KernelFn>(entry);
            }
        }
        refuse(cat("it has no ", wanted));
    }

private:
    static constexpr uint64_t kNowhere = ~uint64_t{0}, kMaxBytes = 64u << 20;
    static constexpr uint64_t kSlotBytes = 16;

    // Returns null for a function outside of the object.
    std::byte* address_of(const Elf64_Sym& symbol, const Elf64_Shdr& symbols) const {
        if (symbol.st_shndx == SHN_UNDEF) return nullptr;
        if (symbol.st_shndx >= offsets_.size() || offsets_[symbol.st_shndx] == kNowhere ||
            symbol.st_value > object_.section(symbol.st_shndx).sh_size)
            refuse(cat("its symbol ", object_.name(symbols, symbol.st_name), " lies outside"));
        return base_ + offsets_[symbol.st_shndx] + symbol.st_value;
    }

    // Adds 16 bytes: the address `to`, or code that jumps there.
    std::byte* slot(const void* to, bool jumps) {
        if (used_ == capacity_) refuse("it has too many relocations");
        std::byte* place = base_ + slots_ + used_++ * kSlotBytes;
        if (jumps) host_machine().write_jump(place, to);
        else std::memcpy(place, &to, sizeof to);
        return place;
    }

    void apply(const Elf64_Rela& relocation, uint64_t section, const Elf64_Shdr& symbols) {
        const auto type = ELF64_R_TYPE(relocation.r_info);
        const std::optional<RelocationRule> rule = host_machine().rule(type);
        if (!rule) refuse(cat("relocation ", type, " is unknown"));
        const uint64_t end = object_.section(section).sh_size;
        if (relocation.r_offset > end || end - relocation.r_offset < rule->bytes)
            refuse("a relocation lies outside");
        const auto symbol = object_.entry<Elf64_Sym>(symbols, ELF64_R_SYM(relocation.r_info));
        const void* target = address_of(symbol, symbols);
        const bool is_outside = !target;
        if (is_outside) target = callable(object_.name(symbols, symbol.st_name));
        if (!target)
            refuse(
                cat("it calls ", object_.name(symbols, symbol.st_name), ", which kernels may not"));
        if (rule->reach == Reach::address) target = slot(target, false);
        if (rule->reach == Reach::call && is_outside) target = slot(target, true);
        // Everything but outside functions is in one mapping of less than 128 MiB; only the addend
        // comes from the object.
        if (!host_machine().write(
                type, base_ + offsets_[section] + relocation.r_offset,
                reinterpret_cast<uint64_t>(target) + static_cast<uint64_t>(relocation.r_addend)))
            refuse("a relocation points too far");
    }

    const Object& object_;
    std::vector<uint64_t> offsets_;  // place of each section in the mapping
    uint64_t slots_ = 0, capacity_ = 0, used_ = 0, bytes_ = 0;
    std::byte* base_ = nullptr;
};

}  // namespace

KernelFn load_object(std::string_view bytes) {
    const Object object(bytes);
    Image image(object);
    image.relocate();
    return image.run_as("megjit_kernel");
}

}  // namespace megjit::codegen
