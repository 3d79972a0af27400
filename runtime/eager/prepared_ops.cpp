#include "runtime/eager/prepared_ops.h"

#include <algorithm>
#include <mutex>

#include "runtime/host/parallel.h"
#include "runtime/ops/ordered.h"

namespace megjit::runtime {
namespace {

// Longer kernels run without the host language's lock, beside its other threads: giving the lock up
// and taking it back costs 0.1 us, and up to 5 ms where another thread wants it all the time.
constexpr double kLongSeconds = 1e-4;

const Type& type_of(const Type& type) { return type; }
const Type& type_of(const TensorRef& tensor) { return tensor->type(); }

template <class Inputs>
bool describes(const PreparedOp& prepared, size_t hash, const OpDef& op, const Attrs& attrs,
               const Inputs& inputs, const Device& device) {
    if (prepared.hash != hash || prepared.op != &op || prepared.device != &device ||
        prepared.threads != thread_count() || !(prepared.rules == product_rules()) ||
        !same(prepared.attrs, attrs) || prepared.inputs.size() != inputs.size())
        return false;
    for (size_t i = 0; i < inputs.size(); ++i)
        if (!(prepared.inputs[i] == type_of(inputs[i]))) return false;
    return true;
}

PreparedRef prepared(size_t hash, const OpCall& given, Device& device) {
    PreparedOp made{.hash = hash,
                    .op = &given.op,
                    .device = &device,
                    .threads = thread_count(),
                    .rules = product_rules(),
                    .attrs = given.attrs,
                    .inputs = {given.inputs.begin(), given.inputs.end()}};
    const OpCall call{given.op, made.attrs, made.inputs};
    made.outputs = infer(call);
    if (!given.op.is_view) made.executable = device.prepare(call, made.outputs);
    made.takes_a_while =
        device.stream().is_inline() && device.speeds().seconds(call, made.outputs) > kLongSeconds;
    made.is_ordered = is_ordered(given.op);
    return std::make_shared<const PreparedOp>(std::move(made));
}

}  // namespace

PreparedOps& PreparedOps::instance() {
    static auto* one = new PreparedOps;  // never destroyed: as devices
    return *one;
}

PreparedRef PreparedOps::get(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                             Device& device) {
    return find_or_make(op, attrs, inputs, device);
}

PreparedRef PreparedOps::get(const OpCall& call, Device& device) {
    return find_or_make(call.op, call.attrs, call.inputs, device);
}

std::shared_ptr<const Executable> PreparedOps::executable(const OpCall& call,
                                                          std::span<const Type> outputs,
                                                          Device& device) {
    const bool is_usual = std::ranges::equal(infer(call), outputs);
    return is_usual ? get(call, device)->executable : device.prepare(call, outputs);
}

template <class Inputs>
PreparedRef PreparedOps::find_or_make(const OpDef& op, const Attrs& attrs, const Inputs& inputs,
                                      Device& device) {
    size_t hash = reinterpret_cast<size_t>(&op) >> 4 ^ reinterpret_cast<size_t>(&device);
    for (const auto& input : inputs) hash = hash_value(type_of(input), hash);
    if (!attrs.empty()) hash = hash_value(attrs, hash);
    // What this thread has found here lately, to be read without the lock.
    constexpr size_t kRecent = 512;
    thread_local std::array<PreparedRef, kRecent> recent;
    PreparedRef& slot = recent[hash % kRecent];
    if (slot && describes(*slot, hash, op, attrs, inputs, device)) return slot;
    PreparedRef found = find(hash, op, attrs, inputs, device);
    if (!found) {
        std::vector<Type> types;
        for (const auto& input : inputs) types.push_back(type_of(input));
        found = prepared(hash, {op, attrs, types}, device);
        add(found);
    }
    slot = found;
    return found;
}

template <class Inputs>
PreparedRef PreparedOps::find(size_t hash, const OpDef& op, const Attrs& attrs,
                              const Inputs& inputs, Device& device) {
    const std::lock_guard lock(mutex_);
    for (CachedOp& entry : sets_[hash % kSets]) {
        if (!entry.op || !describes(*entry.op, hash, op, attrs, inputs, device)) continue;
        entry.used = ++now_;
        return entry.op;
    }
    return nullptr;
}

void PreparedOps::add(PreparedRef made) {
    const std::lock_guard lock(mutex_);
    auto& set = sets_[made->hash % kSets];
    CachedOp& oldest = *std::ranges::min_element(set, {}, &CachedOp::used);
    oldest.used = ++now_;
    ++made_;
    oldest.op.swap(made);  // the old one is destroyed after the lock is released
}

uint64_t PreparedOps::made() const {
    const std::lock_guard lock(mutex_);
    return made_;
}

}  // namespace megjit::runtime
