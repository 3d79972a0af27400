// tests/card/emulator/module.h -- what cuModuleLoadData and cuLibraryLoadData make.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/card/emulator/device.h"
#include "tests/card/emulator/ptx/program.h"

namespace megjit::card {

class Module;

struct Function {
    Module* module;
    std::string name;
    const ptx::Kernel* kernel;  // null in a CUBIN, which is not executed
    int dynamic_shared_limit = kSharedBytes;
};

// One image on one card. A CUBIN is loaded for its names alone.
class Module {
public:
    // Throws Fault: invalid_image, invalid_ptx with the log as text.
    Module(Card& card, const void* image);

    Card& card;
    Function* function(const std::string& name);  // null when there is none
    const std::map<std::string, std::unique_ptr<Function>>& functions() const { return functions_; }
    // Throws not_found.
    ptx::Variable variable(const std::string& name) const;

private:
    std::unique_ptr<ptx::Program> program_;
    bool any_name_ = false;  // of a fat binary, whose compressed contents are not read
    std::map<std::string, std::unique_ptr<Function>> functions_;
};

// An image for every card; modules are made when a card needs them.
struct Library;
struct LibraryKernel {
    Library* library;
    std::string name;
};
struct Library {
    std::string image;
    std::map<Card*, std::unique_ptr<Module>> modules;
    std::map<std::string, std::unique_ptr<LibraryKernel>> kernels;

    explicit Library(const void* data);
    Module& on(Card& card);
};

// The bytes of an image, whose size only its format tells.
std::string copy_of_image(const void* image);

// A launch, checked against the kernel and the card; throws Fault.
struct LaunchRequest {
    Function* function = nullptr;
    Dim3 grid, block;
    uint32_t shared_bytes = 0;
    std::vector<std::byte> parameters;
};
void check_launch(const LaunchRequest& launch);
// From cuLaunchKernel's two ways to pass them.
std::vector<std::byte> gather_parameters(const Function& function, void** pointers, void** extra);

class KernelWork : public Work {
public:
    explicit KernelWork(LaunchRequest launch) : launch(std::move(launch)) {}
    double run(Card& card) override;

    LaunchRequest launch;
};

}  // namespace megjit::card
