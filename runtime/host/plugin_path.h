// runtime/host/plugin_path.h -- where to find the libraries that are installed with us and opened
// at run time.
#pragma once

#include <filesystem>

namespace megjit::runtime {

std::filesystem::path package_folder();  // where our library lies; empty if unknown
std::filesystem::path plugin_folder();  // MEGJIT_PLUGIN_DIR when that is set, else package_folder()

}  // namespace megjit::runtime
