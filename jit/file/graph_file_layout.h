// jit/file/graph_file_layout.h -- what the reader and the writer of graph files have in common.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "jit/step/graph.h"

namespace megjit::jit::graph_file {

static_assert(std::endian::native == std::endian::little,
              "the container holds numbers as they lie in memory");

inline constexpr std::string_view kMagic = "MEGJITGF";
inline constexpr uint32_t kSchema = 5;  // what earlier ones lack: graph_file.h
inline constexpr size_t kHeaderBytes = 32;
inline constexpr size_t kTotalAt = 16, kChecksumAt = 24;
inline constexpr size_t kAlign = 64;

inline bool is_constant(const Node& node) { return node.kind == NodeKind::constant; }

}  // namespace megjit::jit::graph_file
