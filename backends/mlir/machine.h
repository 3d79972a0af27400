// backends/mlir/machine.h -- CPUs: LLVM IR to object code and, for the one we run on, object code
// to an address.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/isa.h"

namespace llvm {
class Module;
}

namespace megjit::mlir_backend {

struct VectorTarget;

// Makes code for a CPU. Not thread-safe.
class CodeMaker {
public:
    // A plain CPU of that level, of either architecture.
    explicit CodeMaker(runtime::Isa isa);
    ~CodeMaker();
    const VectorTarget& vectors() const;
    std::string version() const;  // LLVM's version, CPU, hash of its features
    void optimize(llvm::Module& module);
    std::string to_object(llvm::Module& module);
    std::string to_assembly(llvm::Module& module);  // the same code in readable form

protected:
    struct State;
    explicit CodeMaker(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// The CPU that we run on, up to a level. Not thread-safe.
class Machine : public CodeMaker {
public:
    explicit Machine(runtime::Isa isa = runtime::isa());
    ~Machine();
    void* load(const std::string& object);  // the address of kKernelSymbol; throws DeviceError

private:
    struct Linker;
    std::unique_ptr<Linker> linker_;
};

}  // namespace megjit::mlir_backend
