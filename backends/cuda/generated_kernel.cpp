#include "backends/cuda/generated_kernel.h"

#include <algorithm>
#include <array>

#include "backends/cuda/cuda_stream.h"
#include "codegen/compiler.h"
#include "codegen/gpu_plan.h"
#include "runtime/host/error.h"

namespace megjit::cuda {
namespace {

using namespace codegen;
using runtime::Executable;

// A place among the words of the parameters that takes the address of an operand, counted over all
// launches.
struct Hole {
    size_t word = 0, operand = 0;
    bool is_output = false;
};

// One launch for the driver: a loaded image, and the words of its parameters, in which addresses
// are missing.
struct Launch {
    std::shared_ptr<const CompiledKernel> code;
    std::shared_ptr<const LoadedKernel> loaded;
    LaunchSize size;
    std::vector<uint64_t> words;
    std::vector<Hole> holes;
    int joined = 0;  // for Parameters::table: how many launches of the kernel it joins
};

bool have_same_code(const Launch& a, const Launch& b) {
    return a.code->image == b.code->image || *a.code->image == *b.code->image;
}

class GeneratedKernel final : public Executable {
public:
    GeneratedKernel(Gpu& gpu, const KernelIR& kernel, std::vector<LaunchShape> launches, bool runs)
        : kernel_(kernel),
          shapes_(std::move(launches)),
          inputs_(memory_inputs(kernel)),
          table_(launch_table_of(kernel)) {
        if (!runs) return;
        for (LaunchShape& shape : shapes_) shape.joins = shapes_.size() > 1;
        for (size_t number = 0; number < shapes_.size(); ++number) add(gpu, number);
        for (Launch& launch : launches_)
            launch.loaded = gpu.compiles() ? gpu.load(launch.code->image)
                                           : std::make_shared<const LoadedKernel>(gpu);
    }

    void enqueue(runtime::Stream& stream, void* const* inputs, void* const* outputs,
                 void*) const override {
        auto& queue = dynamic_cast<CudaStream&>(stream);
        for (const Launch& launch : launches_) enqueue_one(queue, launch, inputs, outputs);
    }

    bool may_alias(int out, int in) const override { return may_lie_on(kernel_, shapes_, out, in); }

private:
    // Adds launch `number` of the kernel, on its own or to a table that has room for it.
    void add(Gpu& gpu, size_t number) {
        const LaunchShape& shape = shapes_[number];
        Launch launch;
        launch.code = gpu.compiles() ? KernelService::instance().get({kernel_, gpu.target(), shape})
                                     : without_code(gpu, shape);
        const GpuImage& image = *launch.code->image;
        const Grid grid = grid_of(image, kernel_, shape);
        if (grid.blocks[0] == 0) return;
        std::copy(grid.blocks, grid.blocks + 3, launch.size.grid);
        std::copy(image.block, image.block + 3, launch.size.block);
        launch.size.shared_bytes = image.shared_bytes;
        const std::vector<uint64_t> in(inputs_), out(kernel_.outputs.size());
        const std::vector<uint64_t> words =
            parameters_of(image, shape, in, out, std::vector<uint64_t>(image.parts > 1 ? 2 : 0));
        if (image.parameters == Parameters::table) return join(std::move(launch), words, number);
        launch.words = words;
        if (words.size() > kMaxGpuParameters)
            throw runtime::InternalError("a kernel has more parameters than a GPU takes");
        const bool is_list = image.parameters == Parameters::pointers;
        const size_t addresses = is_list ? image.pointers.size() : inputs_ + kernel_.outputs.size();
        for (size_t word = 0; word < addresses; ++word)
            launch.holes.push_back(
                hole(word, is_list ? static_cast<size_t>(image.pointers[word]) : word, number));
        launches_.push_back(std::move(launch));
    }

    // `words`: all parameters that the launch would have on its own.
    void join(Launch&& launch, const std::vector<uint64_t>& words, size_t number) {
        const auto has_room = [&](const Launch& other) {
            return other.joined > 0 && other.joined < table_.most && have_same_code(other, launch);
        };
        auto joint = std::ranges::find_if(launches_, has_room);
        const uint32_t blocks = launch.size.grid[0];
        if (joint == launches_.end()) {
            launch.words.resize(static_cast<size_t>(table_.size()));
            launch.size.grid[0] = 0;
            joint = launches_.insert(joint, std::move(launch));
        }
        const auto place = static_cast<size_t>(table_.place_of(joint->joined++));
        joint->size.grid[0] += blocks;
        std::fill(joint->words.begin() + joint->joined, joint->words.begin() + table_.starts(),
                  joint->size.grid[0]);
        for (size_t n = 0; n < table_.words.size(); ++n) {
            const auto word = static_cast<size_t>(table_.words[n]);
            joint->words[place + n] = words[word];
            if (word < inputs_ + kernel_.outputs.size())
                joint->holes.push_back(hole(place + n, word, number));
        }
    }

    // The hole for operand k of launch `number`, counted over inputs, then outputs.
    Hole hole(size_t word, size_t k, size_t number) const {
        if (k < inputs_) return {word, number * inputs_ + k, false};
        return {word, number * kernel_.outputs.size() + k - inputs_, true};
    }

    // An image with all that a launch needs but code, to be counted.
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
        for (const Hole& hole : launch.holes) {
            const void* operand = (hole.is_output ? outputs : inputs)[hole.operand];
            const auto at = reinterpret_cast<uint64_t>(operand);
            if (at % image.alignment != 0)
                throw runtime::InternalError(runtime::cat(
                    "an operand of a GPU kernel is not aligned to ", image.alignment, " bytes"));
            words[hole.word] = at;
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
    size_t inputs_ = 0;  // inputs of one launch that are in memory
    LaunchTable table_;
    std::vector<Launch> launches_;
};

}  // namespace

std::shared_ptr<const Executable> generated_kernel(Gpu& gpu, const KernelIR& kernel,
                                                   std::vector<LaunchShape> launches, bool runs) {
    return std::make_shared<const GeneratedKernel>(gpu, kernel, std::move(launches), runs);
}

}  // namespace megjit::cuda
