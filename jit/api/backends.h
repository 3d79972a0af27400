// jit/api/ -- the runtime without Python: starting it, models from files, and libmegjit's C
// functions. In: what trace.dump writes. Out: models that any thread may run. Knows every room but
// python/, and links the backends in; the extension stands on it, too.
//
// jit/api/backends.h -- which devices and compilers there are.
#pragma once

#include <filesystem>

#include "runtime/core/device.h"

namespace megjit::api {

// Registers ops, devices and kernel compilers; once in a process, before anything is computed. The
// plug-ins of the compilers are looked for in `plugins`, libHalide beside them, and then where
// `libhalide` says. UserError for an older CPU or a wrong MEGJIT_ISA.
void start(const std::filesystem::path& plugins, const std::filesystem::path& libhalide = {});

// A GPU of that architecture (90: sm_90) that is not there: packages get kernels for it, or
// (`for_plans`) programs are planned for it. Nothing runs. UserError for an architecture without a
// description, and in a build without CUDA.
runtime::Device& described_gpu(int arch, bool for_plans = false);

}  // namespace megjit::api
