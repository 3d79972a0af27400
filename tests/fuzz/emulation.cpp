#include "tests/fuzz/emulation.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "backends/nvrtc/compiler.h"
#include "backends/nvrtc/print_kernel.h"
#include "codegen/legalize.h"
#include "runtime/dispatch.h"
#include "runtime/error.h"
#include "tests/backends/fenced.h"

namespace megjit::fuzz {
namespace {

namespace fs = std::filesystem;
using codegen::KernelIR;
using codegen::LaunchShape;
using runtime::cat;

std::string key_of(const KernelIR& kernel, const LaunchShape& launch) {
    return cat(codegen::print(codegen::gpu_plan_of(kernel, launch)), "\n", codegen::print(kernel));
}

// The operands of each launch of a fused node.
template <class Visit>
void for_each_launch(const jit::Node& node, const Visit& visit) {
    const KernelIR kernel = codegen::legalize(node.kernel->kernel);
    size_t in = 0, out = 0;
    for (const LaunchShape& launch : launches_of(node)) {
        visit(kernel, launch, in, out);
        in += codegen::memory_inputs(kernel);
        out += kernel.outputs.size();
    }
}

}  // namespace

void Emulation::add(const Graph& graph) {
    for (const jit::Node& node : graph.nodes()) {
        if (node.kind != jit::NodeKind::fused) continue;
        for_each_launch(node,
                        [&](const KernelIR& kernel, const LaunchShape& launch, size_t, size_t) {
            const std::string entry = cat("kernel_", texts_.size());
            const auto [text, is_new] = texts_.try_emplace(key_of(kernel, launch));
            if (!is_new) return;
            text->second =
                cat(nvrtc::print_kernel(kernel, codegen::gpu_plan_of(kernel, launch), entry),
                    "extern \"C\" void launch_", texts_.size() - 1,
                    "(const unsigned* grid, unsigned threads, const uint64_t* words) { emulate(",
                    entry, ", grid, threads, words); }\n");
        });
    }
}

void Emulation::compile() {
    if (texts_.empty()) return;
    std::string folder = fs::temp_directory_path() / "megjit-cuda-XXXXXX";
    if (!mkdtemp(folder.data()))
        throw runtime::InternalError("cannot make a folder for the kernels");
    const std::string source = folder + "/kernels.cpp", library = folder + "/kernels.so";
    std::ofstream file(source);
    file << "#include \"tests/backends/cuda_emulation.h\"\n" << nvrtc::prelude();
    for (const auto& [key, text] : texts_) file << text;
    file.close();
    const std::string command = cat(
        MEGJIT_CXX,
        " -std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -U_FORTIFY_SOURCE -fPIC -shared -I" MEGJIT_SOURCE_DIR
        " -o ",
        library, " ", source);
    const int status = std::system(command.c_str());
    void* handle = status == 0 ? dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle) throw runtime::InternalError(cat("the host's compiler refused ", source));
    fs::remove_all(folder);
    for (const auto& [key, text] : texts_) {
        const size_t number = text.find("void launch_") + 5;
        launches_[key] = reinterpret_cast<Launch>(
            dlsym(handle, text.substr(number, text.find('(', number) - number).c_str()));
    }
}

void Emulation::launch(const KernelIR& kernel, const LaunchShape& shape,
                       std::span<const TensorRef> inputs,
                       std::span<const TensorRef> outputs) const {
    const codegen::GpuPlan plan = codegen::gpu_plan_of(kernel, shape);
    std::vector<Fenced> memory;
    std::vector<uint64_t> in, out;
    const auto place = [&](const TensorRef& tensor, std::vector<uint64_t>& to) {
        std::memcpy(memory.emplace_back(tensor->type().bytes()).data(), tensor->data(),
                    tensor->type().bytes());
        to.push_back(reinterpret_cast<uint64_t>(memory.back().data()));
    };
    for (const TensorRef& input : inputs) place(input, in);
    for (const TensorRef& output : outputs) place(output, out);
    const codegen::GpuImage image = nvrtc::image_of(kernel, plan);
    const codegen::Grid grid = grid_of(image, kernel, shape);
    std::vector<uint64_t> shared;
    if (image.parts > 1)
        for (size_t bytes :
             {size_t{grid.blocks[0]} * image.parts * image.part_bytes, size_t{grid.blocks[0]} * 4})
            shared.push_back(reinterpret_cast<uint64_t>(memory.emplace_back(bytes).data()));
    if (grid.blocks[0])
        launches_.at(key_of(kernel, shape))(grid.blocks, static_cast<unsigned>(plan.threads),
                                            parameters_of(image, shape, in, out, shared).data());
    for (size_t k = 0; k < outputs.size(); ++k)
        std::memcpy(outputs[k]->data(), reinterpret_cast<const void*>(out[k]),
                    outputs[k]->type().bytes());
}

std::vector<TensorRef> Emulation::run(const Graph& graph, std::span<const TensorRef> inputs) const {
    std::vector<TensorRef> values(graph.value_count());
    for (const jit::Node& node : graph.nodes()) {
        std::vector<TensorRef> operands, results;
        for (ValueId input : node.inputs) operands.push_back(values[jit::at(input)]);
        switch (node.kind) {
            case jit::NodeKind::input: results = {inputs[static_cast<size_t>(node.slot)]}; break;
            case jit::NodeKind::constant: results = {node.constant}; break;
            case jit::NodeKind::op:
                results = runtime::compute(*node.op, node.attrs, operands);
                break;
            case jit::NodeKind::fused:
                for (ValueId output : node.outputs)
                    results.push_back(
                        runtime::empty_tensor(runtime::host_device(), graph.type(output)));
                for_each_launch(node, [&](const KernelIR& kernel, const LaunchShape& shape,
                                          size_t in, size_t out) {
                    launch(kernel, shape,
                           std::span(operands).subspan(in, codegen::memory_inputs(kernel)),
                           std::span(results).subspan(out, kernel.outputs.size()));
                });
        }
        for (size_t k = 0; k < results.size(); ++k) values[jit::at(node.outputs[k])] = results[k];
    }
    std::vector<TensorRef> outputs;
    for (ValueId output : graph.outputs) outputs.push_back(values[jit::at(output)]);
    return outputs;
}

}  // namespace megjit::fuzz
