// backends/cuda/described_card.h -- GPUs that do not exist here: the code that compiles kernels and
// plans programs for a real card does the same for them. Nothing runs.
#pragma once

#include "backends/cuda/cuda_device.h"

namespace megjit::cuda {

// A device for one card of the architecture (90: sm_90); where MEGJIT_EMULATED_GPUS is set it
// accepts what the emulated card accepts. `compiles`: kernels get their code, as packages need
// them; else the device is for plans (Device::is_for_plans). UserError that lists the described
// architectures.
std::unique_ptr<runtime::Device> described_device(int arch, const Services& services,
                                                  bool compiles);

}  // namespace megjit::cuda
