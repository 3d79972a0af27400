#include "runtime/eager/prepared_ops.h"

#include <algorithm>
#include <mutex>
#include <utility>

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
    // Apart from its counts, for those outlive it where programs alone held it.
    return PreparedRef(new PreparedOp(std::move(made)));
}

template <class Inputs>
size_t hash_of(const OpDef& op, const Attrs& attrs, const Inputs& inputs, const Device& device) {
    size_t hash = reinterpret_cast<size_t>(&op) >> 4 ^ reinterpret_cast<size_t>(&device);
    for (const auto& input : inputs) hash = hash_value(type_of(input), hash);
    return attrs.empty() ? hash : hash_value(attrs, hash);
}

thread_local Planning* open_planning = nullptr;

}  // namespace

Planning::Planning() : is_outermost_(!open_planning) {
    if (is_outermost_) open_planning = this;
}

Planning::~Planning() {
    if (is_outermost_) open_planning = nullptr;
}

PreparedOps& PreparedOps::instance() {
    static auto* one = new PreparedOps;  // never destroyed: as devices
    return *one;
}

PreparedRef PreparedOps::get(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                             Device& device) {
    return kept(op, attrs, inputs, device);
}

PreparedRef PreparedOps::get(const OpCall& call, Device& device) {
    return kept(call.op, call.attrs, call.inputs, device);
}

std::shared_ptr<const Executable> PreparedOps::executable(const OpCall& call,
                                                          std::span<const Type> outputs,
                                                          Device& device) {
    const bool is_usual = std::ranges::equal(infer(call), outputs);
    return is_usual ? get(call, device)->executable : device.prepare(call, outputs);
}

std::shared_ptr<const Executable> PreparedOps::of_program(const OpCall& call,
                                                          std::span<const Type> outputs,
                                                          Device& device) {
    if (!std::ranges::equal(infer(call), outputs)) return device.prepare(call, outputs);
    const size_t hash = hash_of(call.op, call.attrs, call.inputs, device);
    PreparedRef found = find_or_make(hash, call.op, call.attrs, call.inputs, device, false);
    if (open_planning) open_planning->held_.push_back(found);
    const Executable* const executable = found->executable.get();
    return {std::move(found), executable};
}

template <class Inputs>
PreparedRef PreparedOps::kept(const OpDef& op, const Attrs& attrs, const Inputs& inputs,
                              Device& device) {
    const size_t hash = hash_of(op, attrs, inputs, device);
    // What this thread has found here lately, to be read without the lock.
    constexpr size_t kRecent = 512;
    thread_local std::array<PreparedRef, kRecent> recent;
    PreparedRef& slot = recent[hash % kRecent];
    if (!slot || !describes(*slot, hash, op, attrs, inputs, device))
        slot = find_or_make(hash, op, attrs, inputs, device, true);
    return slot;
}

template <class Inputs>
PreparedRef PreparedOps::find_or_make(size_t hash, const OpDef& op, const Attrs& attrs,
                                      const Inputs& inputs, Device& device, bool keeps) {
    PreparedRef found = find(hash, op, attrs, inputs, device, keeps);
    if (found) return found;
    std::vector<Type> types;
    for (const auto& input : inputs) types.push_back(type_of(input));
    found = prepared(hash, {op, attrs, types}, device);
    add(found, keeps);
    return found;
}

template <class Inputs>
PreparedRef PreparedOps::find(size_t hash, const OpDef& op, const Attrs& attrs,
                              const Inputs& inputs, Device& device, bool keeps) {
    const std::lock_guard lock(mutex_);
    for (CachedOp& entry : sets_[hash % kSets]) {
        if (entry.hash != hash) continue;
        PreparedRef found = entry.op.lock();
        if (!found || !describes(*found, hash, op, attrs, inputs, device)) continue;
        entry.used = ++now_;
        if (keeps) entry.kept = found;
        return found;
    }
    return nullptr;
}

void PreparedOps::add(const PreparedRef& made, bool keeps) {
    PreparedRef old;  // goes after the lock
    const std::lock_guard lock(mutex_);
    auto& set = sets_[made->hash % kSets];
    CachedOp& place = *std::ranges::min_element(
        set, {}, [](const CachedOp& entry) { return entry.op.expired() ? 0 : entry.used; });
    old = std::exchange(place.kept, keeps ? made : nullptr);
    place.used = ++now_;
    place.hash = made->hash;
    place.op = made;
    ++made_;
}

uint64_t PreparedOps::made() const {
    const std::lock_guard lock(mutex_);
    return made_;
}

}  // namespace megjit::runtime
