// runtime/ops/index.h -- errors for places out of range, shared by the kernels of every device.
#pragma once

#include <cstdint>
#include <string_view>

namespace megjit::runtime {

[[noreturn]] void refuse_place(std::string_view op, int64_t value, int64_t axis, int64_t extent);
[[noreturn]] void refuse_label(std::string_view op, int64_t label, int64_t classes);

}  // namespace megjit::runtime
