// jit/api/run/npy.h -- arrays in files of NumPy: .npy, and .npz that np.savez wrote.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megjit/megjit.hpp"

namespace megjit::run {

struct Array {
    megjit_dtype dtype = MEGJIT_FLOAT32;
    std::vector<std::int64_t> shape;
    std::string bytes;  // row-major
};

std::string bytes_of(const std::string& path);  // std::runtime_error where it cannot be read
// Reads a little-endian row-major array. Throws std::runtime_error with `name` for all else.
Array array_from(std::string_view file, const std::string& name);
// By name, without compression.
std::map<std::string, Array> arrays_from(std::string_view file, const std::string& name);

}  // namespace megjit::run
