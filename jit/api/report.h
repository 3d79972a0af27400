// jit/api/report.h -- reports of programs as JSON. The fields are those of fn.memory_plan(),
// fn.kernels() and fn.get_profile() in Python.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "jit/run/program.h"

namespace megjit::api {

std::string json_of(const jit::MemoryPlan& plan);
std::string json_of(std::span<const jit::KernelUse> kernels);
std::string profiles_json(std::span<const std::shared_ptr<jit::Program>> programs);

}  // namespace megjit::api
