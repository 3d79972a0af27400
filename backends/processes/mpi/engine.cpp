#include "backends/processes/mpi/engine.h"

#include <dlfcn.h>

#include <numeric>
#include <utility>

#include "backends/processes/combine.h"
#include "runtime/host/error.h"

namespace megjit::processes::mpi {

using runtime::cat;
using runtime::Combine;
using runtime::DeviceError;
using runtime::DType;

namespace {

const char* name_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return "FLOAT";
        case DType::f64: return "DOUBLE";
        case DType::i32: return "INT32_T";
        case DType::i64: return "INT64_T";
        case DType::i16: return "INT16_T";
        case DType::i8: return "INT8_T";
        case DType::u16:
        case DType::f16:
        case DType::bf16: return "UINT16_T";  // only operations of ours combine the last two
        case DType::u8:
        case DType::b8: return "UINT8_T";
        case DType::c64: return "C_FLOAT_COMPLEX";
    }
    return "";
}

const char* name_of(Combine combine) {
    switch (combine) {
        case Combine::sum: return "SUM";
        case Combine::prod: return "PROD";
        case Combine::max: return "MAX";
        case Combine::min: return "MIN";
    }
    return "";
}

// `inout` comes later in the order of ranks.
using Function = void (*)(void* in, void* inout, int* count, Handle* type);
template <DType dtype, Combine by>
void ours(void* in, void* inout, int* count, Handle*) {
    const void* parts[] = {in, inout};
    combine(parts, inout, *count, dtype, by);
}
template <DType dtype>
Function ours_of(Combine by) {
    switch (by) {
        case Combine::sum: return ours<dtype, Combine::sum>;
        case Combine::prod: return ours<dtype, Combine::prod>;
        case Combine::max: return ours<dtype, Combine::max>;
        case Combine::min: return ours<dtype, Combine::min>;
    }
    return nullptr;
}
// Null where MPI's operation does the same as ours: MPI knows no halves, its extrema treat NaN
// arbitrarily, and Open MPI's sums of short integers saturate.
Function ours_of(DType dtype, Combine by) {
    const bool is_extremum = by == Combine::max || by == Combine::min;
    switch (dtype) {
        case DType::f16: return ours_of<DType::f16>(by);
        case DType::bf16: return ours_of<DType::bf16>(by);
        case DType::b8: return ours_of<DType::b8>(by);
        case DType::i16: return ours_of<DType::i16>(by);
        case DType::u16: return ours_of<DType::u16>(by);
        case DType::i8: return ours_of<DType::i8>(by);
        case DType::u8: return ours_of<DType::u8>(by);
        case DType::f32: return is_extremum ? ours_of<DType::f32>(by) : nullptr;
        case DType::f64: return is_extremum ? ours_of<DType::f64>(by) : nullptr;
        default: return nullptr;
    }
}

}  // namespace

Engine::Engine(const std::string& library, Handle world, std::map<std::string, Handle> constants)
    : world_(world), constants_(std::move(constants)) {
    void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!opened) throw DeviceError(cat("MPI cannot be opened: ", dlerror()));
    const auto find = [&](auto& function, const char* name) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
        if (!function) throw DeviceError(cat("the MPI of ", library, " has no ", name));
    };
#define MEGJIT_X(member, name, parameters) find(member, name);
    MEGJIT_MPI_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
}

void Engine::check(int code) const {
    if (code == 0) return;
    char text[1024] = "";
    int length = 0;
    error_text(code, text, &length);
    throw DeviceError(cat("MPI: ", text));
}

bool Engine::is_done(Handle& request) const {
    int flag = 0;
    uint64_t status[16];  // longer than a status of any MPI
    check(test(&request, &flag, status));
    return flag != 0;
}

Handle Engine::communicator(const std::vector<int>& ranks) {
    Handle& found = communicators_[ranks];
    if (found) return found;
    Handle all = 0, part = 0;
    check(group_of(world_, &all));
    check(part_of(all, static_cast<int>(ranks.size()), ranks.data(), &part));
    check(create(world_, part, /*tag=*/0, &found));
    check(free_group(&part));
    check(free_group(&all));
    return found;
}

Handle Engine::type_of(DType dtype) const { return constants_.at(name_of(dtype)); }

Handle Engine::op_of(DType dtype, Combine combine) {
    const Function function = ours_of(dtype, combine);
    if (!function) return constants_.at(name_of(combine));
    Handle& op = ops_[{dtype, combine}];
    // Declared as not commutative: MPI then keeps the order of ranks.
    if (!op) check(create_op(function, /*is_commutative=*/0, &op));
    return op;
}

}  // namespace megjit::processes::mpi
