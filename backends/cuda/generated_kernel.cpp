#include "backends/cuda/generated_kernel.h"

#include <array>

#include "backends/cuda/cuda_stream.h"
#include "codegen/compiler.h"
#include "codegen/gpu_plan.h"
#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

using namespace codegen;
using runtime::Executable;

// One launch: its image, loaded, and the words of its parameters, in which addresses are missing.
struct Launch {
    std::shared_ptr<const CompiledKernel> code;
    std::shared_ptr<const LoadedKernel> loaded;
    LaunchSize size;
    std::vector<uint64_t> words;
};

class GeneratedKernel final : public Executable {
public:
    GeneratedKernel(Gpu& gpu, const KernelIR& kernel, std::vector<LaunchShape> launches, bool runs)
        : kernel_(kernel), shapes_(std::move(launches)), inputs_(memory_inputs(kernel)) {
        if (!runs) return;
        for (const LaunchShape& shape : shapes_) launches_.push_back(launch_of(gpu, shape));
    }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void*) const override {
        auto& queue = dynamic_cast<CudaStream&>(stream);
        for (size_t i = 0; i < launches_.size(); ++i)
            if (launches_[i].size.grid[0] > 0)
                enqueue_one(queue, launches_[i], inputs + i * inputs_,
                            outputs + i * kernel_.outputs.size());
    }

    bool may_alias(int out, int in) const override { return may_lie_on(kernel_, shapes_, out, in); }

private:
    Launch launch_of(Gpu& gpu, const LaunchShape& shape) const {
        Launch launch;
        launch.code = gpu.compiles() ? KernelService::instance().get({kernel_, gpu.target(), shape})
                                     : without_code(gpu, shape);
        const GpuImage& image = *launch.code->image;
        const Grid grid = grid_of(image, kernel_, shape);
        std::copy(grid.blocks, grid.blocks + 3, launch.size.grid);
        std::copy(image.block, image.block + 3, launch.size.block);
        launch.size.shared_bytes = image.shared_bytes;
        if (grid.blocks[0] == 0) return launch;
        launch.loaded = gpu.compiles() ? gpu.load(launch.code->image)
                                       : std::make_shared<const LoadedKernel>(gpu);
        const std::vector<uint64_t> in(inputs_), out(kernel_.outputs.size());
        launch.words =
            parameters_of(image, shape, in, out, std::vector<uint64_t>(image.parts > 1 ? 2 : 0));
        if (launch.words.size() > kMaxGpuParameters)
            throw runtime::InternalError("a kernel has more parameters than a GPU takes");
        return launch;
    }

    // With all that a launch needs, to be counted.
    std::shared_ptr<const CompiledKernel> without_code(Gpu& gpu, const LaunchShape& shape) const {
        auto made = std::make_shared<CompiledKernel>();
        made->image = std::make_shared<const GpuImage>(
            image_of(kernel_, gpu_plan_of(kernel_, shape, gpu.target())));
        return made;
    }

    void enqueue_one(CudaStream& stream, const Launch& launch, void* const* inputs,
                     void* const* outputs) const {
        std::array<uint64_t, kMaxGpuParameters> words;
        std::copy(launch.words.begin(), launch.words.end(), words.begin());
        const GpuImage& image = *launch.code->image;
        const auto address = [&](size_t k) {
            const auto at =
                reinterpret_cast<uint64_t>(k < inputs_ ? inputs[k] : outputs[k - inputs_]);
            if (at % image.alignment != 0)
                throw runtime::InternalError(runtime::cat(
                    "an operand of a GPU kernel is not aligned to ", image.alignment, " bytes"));
            return at;
        };
        if (image.parameters == Parameters::pointers) {
            for (size_t i = 0; i < image.pointers.size(); ++i)
                words[i] = address(static_cast<size_t>(image.pointers[i]));
        } else {
            for (size_t k = 0; k < inputs_ + kernel_.outputs.size(); ++k) words[k] = address(k);
        }
        if (image.parts > 1) {
            const size_t blocks = launch.size.grid[0];
            const CudaStream::Scratch scratch =
                stream.scratch(blocks * sizeof(uint32_t), blocks * image.parts * image.part_bytes);
            words[launch.words.size() - 2] = scratch.rest;
            words[launch.words.size() - 1] = scratch.zeros;
        }
        stream.launch(*launch.loaded, launch.size, words.data(),
                      launch.words.size() * sizeof(uint64_t));
    }

    KernelIR kernel_;
    std::vector<LaunchShape> shapes_;
    size_t inputs_ = 0;  // with memory, of one launch
    std::vector<Launch> launches_;
};

}  // namespace

std::shared_ptr<const Executable> generated_kernel(Gpu& gpu, const KernelIR& kernel,
                                                   std::vector<LaunchShape> launches, bool runs) {
    return std::make_shared<const GeneratedKernel>(gpu, kernel, std::move(launches), runs);
}

}  // namespace megjit::cuda
