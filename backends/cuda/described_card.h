// backends/cuda/described_card.h -- GPUs that are not there: their kernels are compiled, and
// programs planned for them, by the code that does it on a card. Nothing runs.
#pragma once

#include "backends/cuda/cuda_device.h"

namespace megjit::cuda {

// One card of the architecture (90: sm_90); emulated where MEGJIT_EMULATED_GPUS is set, so that it
// takes what the emulated card takes. `compiles`: kernels get their code, as packages need them;
// else the device is for plans (Device::is_for_plans). UserError that lists those that are
// described.
std::unique_ptr<runtime::Device> described_device(int arch, const Services& services,
                                                  bool compiles);

}  // namespace megjit::cuda
