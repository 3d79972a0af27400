// python/bindings/trace_report.h -- what a traced function tells of its programs, as Python reads
// it (python/megengine/jit/report.py). All but profiles_of wait for kernels that are being
// compiled.
#pragma once

#include <nanobind/nanobind.h>

#include "jit/trace/trace_function.h"

namespace megjit::python {

// These describe the version that ran last; UserError before the first call.
nanobind::list kernels_of(const jit::TraceFunction& function);
nanobind::list plans_of(const jit::TraceFunction& function);  // a dict a segment
// Gives the plans for a GPU that is described, with "costs", a dict for each step.
nanobind::list plans_on(const jit::TraceFunction& function, int arch);
nanobind::list graphs_of(const jit::TraceFunction& function, bool optimized, bool html);
// A dict a segment that has run as a program; measures nothing itself.
nanobind::list profiles_of(const jit::TraceFunction& function, bool of_all_versions);

}  // namespace megjit::python
