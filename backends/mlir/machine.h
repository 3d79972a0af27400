// backends/mlir/machine.h -- the CPU we run on: LLVM IR to object code, object code to an address.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/isa.h"

namespace llvm {
class Module;
}

namespace megjit::mlir_backend {

struct VectorTarget;

// Not thread-safe.
class Machine {
public:
    explicit Machine(runtime::Isa isa = runtime::isa());
    ~Machine();
    const VectorTarget& vectors() const;
    std::string version() const;  // LLVM's version, CPU, hash of its features
    void optimize(llvm::Module& module);
    std::string to_object(llvm::Module& module);
    std::string to_assembly(llvm::Module& module);  // the same code in readable form
    void* load(const std::string& object);  // the address of kKernelSymbol; throws DeviceError

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace megjit::mlir_backend
