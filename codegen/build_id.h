// codegen/build_id.h -- which build of a library this is: the id is the same wherever the library
// is installed, and differs when its code does.
#pragma once

#include <filesystem>
#include <string>

namespace megjit::codegen {

// The id that the linker wrote into an ELF file, in hexadecimal; without one, the file's size and
// time.
std::string build_id(const std::filesystem::path& library);

}  // namespace megjit::codegen
