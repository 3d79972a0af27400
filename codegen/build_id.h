// codegen/build_id.h -- which build of a library this is: equal wherever it is installed, another
// when its code is.
#pragma once

#include <filesystem>
#include <string>

namespace megjit::codegen {

// The id that the linker wrote into an ELF file, in hexadecimal; where it wrote none, the file's
// size and time.
std::string build_id(const std::filesystem::path& library);

}  // namespace megjit::codegen
