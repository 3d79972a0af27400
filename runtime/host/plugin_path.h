// runtime/host/plugin_path.h -- where the libraries lie that are installed with us and opened at
// run time.
#pragma once

#include <filesystem>
#include <string_view>

namespace megjit::runtime {

std::filesystem::path package_folder();  // of the library that holds this code; empty if unknown
// In MEGJIT_PLUGIN_DIR when that is set, else in package_folder().
std::filesystem::path plugin_path(std::string_view file);

}  // namespace megjit::runtime
