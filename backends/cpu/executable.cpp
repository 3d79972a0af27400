#include "backends/cpu/executable.h"

#include <cstring>

namespace megjit::cpu {

Prepared make_zeros(std::span<const runtime::Type> outputs) {
    std::vector<size_t> bytes;
    for (const runtime::Type& type : outputs) bytes.push_back(type.bytes());
    return executable([bytes](void* const*, void* const* to, void*) {
        for (size_t i = 0; i < bytes.size(); ++i)
            if (bytes[i]) std::memset(to[i], 0, bytes[i]);
    });
}

}  // namespace megjit::cpu
