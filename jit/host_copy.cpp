#include "jit/host_copy.h"

namespace megjit::jit {
namespace {

OpDef copy_op(std::string name, std::string doc) {
    return {.name = std::move(name),
            .doc = std::move(doc),
            .inputs = {"x"},
            .infer = [](const runtime::OpCall& call) { return std::vector<Type>{call.inputs[0]}; },
            .cost = [](const runtime::OpCall&, std::span<const Type> outputs) {
        return runtime::Cost{.bytes = static_cast<double>(outputs[0].bytes())};
    }};
}

class HostCopy final : public runtime::Executable {
public:
    HostCopy(bool is_to_host, runtime::Device& device, size_t bytes)
        : is_to_host_(is_to_host), device_(device), bytes_(bytes) {}
    void run(void* const* inputs, void* const* outputs, void*) const override {
        if (is_to_host_) device_.copy_to_host(outputs[0], inputs[0], bytes_);
        else device_.copy_from_host(outputs[0], inputs[0], bytes_);
    }

private:
    bool is_to_host_;
    runtime::Device& device_;
    size_t bytes_;
};

}  // namespace

const OpDef& to_host() {
    static const OpDef op = copy_op("to_host", "x in the host's memory.");
    return op;
}

const OpDef& from_host() {
    static const OpDef op =
        copy_op("from_host", "x, which to_host has stored, in the device's memory again.");
    return op;
}

std::shared_ptr<const runtime::Executable> host_copy(const OpDef& op, runtime::Device& device,
                                                     size_t bytes) {
    return std::make_shared<HostCopy>(&op == &to_host(), device, bytes);
}

}  // namespace megjit::jit
