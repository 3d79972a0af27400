// backends/processes/gloo/ -- Gloo as the engine of a World's groups, for worlds that no mpiexec
// has started. In: a plug-in that links libgloo, which is opened where Gloo is asked for.
//
// backends/processes/gloo/engine.h -- Engine: the plug-in and this process's address; Context: the
// connections of one group.
#pragma once

#include <functional>
#include <string>

#include "backends/processes/gloo/abi.h"

namespace megjit::processes::gloo {

class Engine {
public:
    // `plugin` is its file; `address` is the one by which other processes reach this one.
    // DeviceError where the plug-in cannot be opened.
    Engine(const std::string& plugin, const std::string& address);
    const Table& table() const { return *table_; }
    void* device() const { return device_; }

private:
    const Table* table_ = nullptr;
    void* device_ = nullptr;
};

// DeviceError, with Gloo's words, where body(error) returns false.
void check(const std::function<bool(char* error)>& body);

}  // namespace megjit::processes::gloo
