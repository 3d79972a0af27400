#include "codegen/build_id.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include <elf.h>
#include <sys/stat.h>

#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

template <class T>
std::optional<T> read_at(std::ifstream& file, uint64_t offset) {
    T value;
    file.clear();
    file.seekg(static_cast<std::streamoff>(offset));
    if (!file.read(reinterpret_cast<char*>(&value), sizeof value)) return {};
    return value;
}

// Finds the id in the notes of one segment. A note has name size, content size, type, name,
// content, each padded to 4 bytes.
std::string id_in_notes(std::ifstream& file, uint64_t from, uint64_t to) {
    while (from + sizeof(Elf64_Nhdr) <= to) {
        const auto note = read_at<Elf64_Nhdr>(file, from);
        if (!note || note->n_namesz > 64 || note->n_descsz > 4096) return "";
        const uint64_t content = from + sizeof *note + (note->n_namesz + 3) / 4 * 4;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz <= 64) {
            std::string hex;
            for (uint64_t i = 0; i < note->n_descsz; ++i) {
                char digits[3];
                std::snprintf(digits, sizeof digits, "%02x",
                              read_at<unsigned char>(file, content + i).value_or(0));
                hex += digits;
            }
            return hex;
        }
        from = content + (note->n_descsz + 3) / 4 * 4;
    }
    return "";
}

std::string elf_build_id(const std::filesystem::path& library) {
    std::ifstream file(library, std::ios::binary);
    const auto header = read_at<Elf64_Ehdr>(file, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return "";
    for (int i = 0; i < header->e_phnum; ++i) {
        const auto segment = read_at<Elf64_Phdr>(
            file, header->e_phoff + static_cast<uint64_t>(i) * sizeof(Elf64_Phdr));
        if (!segment || segment->p_type != PT_NOTE) continue;
        if (std::string id =
                id_in_notes(file, segment->p_offset, segment->p_offset + segment->p_filesz);
            !id.empty())
            return id;
    }
    return "";
}

}  // namespace

std::string build_id(const std::filesystem::path& library) {
    if (std::string id = elf_build_id(library); !id.empty()) return id;
    struct stat file{};
    ::stat(library.c_str(), &file);
    return runtime::cat(file.st_size, "-", file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec);
}

}  // namespace megjit::codegen
