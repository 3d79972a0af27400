// backends/cuda/kernels/executables.h -- what the host sides of the kernels written by hand share:
// executables from functions, copies between strided regions, and the widths in which memory moves.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/source_kernel.h"
#include "runtime/core/function_executable.h"
#include "runtime/host/error.h"
#include "runtime/ops/region.h"

namespace megjit::cuda {

using runtime::cat;
using runtime::DType;
using runtime::OpCall;
using runtime::Shape;
using runtime::Type;
using Prepared = std::shared_ptr<const runtime::Executable>;

// Makes one from a function (CudaStream, inputs, outputs, workspace); see
// runtime::function_executable for the rest.
template <class Run>
Prepared executable(Run run, size_t workspace = 0, bool aliases = false,
                    std::vector<runtime::Executable::Part> parts = {}) {
    return runtime::function_executable(
        [run = std::move(run)](runtime::Stream& stream, void* const* inputs, void* const* outputs,
                               void* scratch) {
        run(dynamic_cast<CudaStream&>(stream), inputs, outputs, scratch);
    },
        workspace, aliases, std::move(parts));
}
// Prepares an op without elements.
inline Prepared nothing_to_do() {
    return executable([](CudaStream&, void* const*, void* const*, void*) {});
}

// Prepares an op whose sums have no terms.
Prepared zeros(std::span<const Type> outputs);

// The text of a family of kernels, after the text that all share.
std::string with_prelude(std::string_view text);
// The type that counts what a launch covers: 64 bits where the numbers do not fit into 31.
inline std::string index_type(int64_t count) {
    return count <= INT32_MAX ? "unsigned" : "unsigned long long";
}
// Passes a number as the kernel's INDEX; `count` must be what index_type() was asked for.
template <class Use>
void with_index(int64_t number, const Use& use) {
    if (number <= INT32_MAX) use(static_cast<uint32_t>(number));
    else use(static_cast<uint64_t>(number));
}
// The prelude's name for the storage type of a dtype.
std::string storage_type(DType dtype);

inline char* at(void* p, int64_t bytes) { return static_cast<char*>(p) + bytes; }
inline int64_t size_of(const Type& type) {
    return static_cast<int64_t>(runtime::size_of(type.dtype));
}
inline size_t aligned(size_t bytes) {
    return (bytes + 255) / 256 * 256;
}  // for parts of a workspace

// --- units --------------------------------------------------------------------------------------

// A thread moves 1, 2, 4, 8 or 16 bytes at a time.
constexpr int64_t kWidestUnit = 16;
std::string unit_type(int64_t bytes);
// The widest unit that divides all of `numbers`.
int64_t widest_unit(std::initializer_list<int64_t> numbers);
inline int64_t address_of(const void* p) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p));
}

using Words = std::array<uint64_t, 2>;  // 16 bytes
// Passes a unit as the kernel's UNIT.
template <class Use>
void with_unit(const Words& words, int64_t unit, const Use& use) {
    struct alignas(16) Wide {
        Words words;
    };
    switch (unit) {
        case 1: return use(static_cast<uint8_t>(words[0]));
        case 2: return use(static_cast<uint16_t>(words[0]));
        case 4: return use(static_cast<uint32_t>(words[0]));
        case 8: return use(words[0]);
        default: return use(Wide{words});
    }
}

// The bits of one element, in the low bytes.
uint64_t element_bits(DType dtype, double value);

// --- copies -------------------------------------------------------------------------------------

using runtime::Region;
using runtime::Split;
using runtime::split_at;

// A prepared copy of a region, for elements of one size.
class RegionCopy {
public:
    RegionCopy(Gpu& gpu, const Region& region, int64_t element_bytes);
    void operator()(CudaStream& stream, const void* from, void* to) const;
    bool is_block() const { return region_.is_block(); }

private:
    struct Way {  // a copy in units of one width
        SourceKernel kernel;
        Region region;
        int64_t unit = 1;
        bool tiles = false;
    };
    static Way way_of(Gpu& gpu, const Region& region, int64_t unit);

    Region region_;
    int64_t bytes_ = 0;  // bytes of all elements
    std::vector<Way> ways_;  // widest units first; these need aligned addresses
};

// Prepares an op whose result is its operand 0.
Prepared copy_of(const Type& x);

// The type of a complex tensor seen as floats: with one more axis, of extent 2.
Type as_floats(const Type& type);

}  // namespace megjit::cuda
