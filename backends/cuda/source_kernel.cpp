#include "backends/cuda/source_kernel.h"

namespace megjit::cuda {

SourceKernel::SourceKernel(Gpu& gpu, std::string_view source, std::string_view entry,
                           std::initializer_list<Define> defines) {
    std::string text;
    for (const Define& define : defines)
        text += runtime::cat("#define ", define.name, " ", define.value, "\n");
    loaded_ = gpu.load_source(text + std::string(source), std::string(entry));
}

}  // namespace megjit::cuda
