#include "runtime/rematerializer.h"

#include <algorithm>
#include <chrono>

#include "runtime/parallel.h"

namespace megjit::runtime {

// How a value was computed. It is owned by its results' lineages.
struct LineageCall : RefCounted {
    struct Operand {
        Ref<Lineage> lineage;
        Ref<Storage> small;  // in place of a lineage
    };
    const OpDef* op = nullptr;
    Attrs attrs;
    std::vector<Type> inputs, outputs;
    std::shared_ptr<const Executable> executable;
    int threads = 0;  // that the executable was made for: a forked child has fewer
    std::vector<Operand> operands;
    std::vector<Lineage*> results;  // null: small, or gone

    ~LineageCall();
    void drop() const { if (release()) delete this; }
};

class Lineage : public RefCounted {
public:
    Storage* storage = nullptr;  // null when no tensor holds the value any more
    Device* device = nullptr;
    void* data = nullptr;  // null when evicted
    size_t bytes = 0;
    Ref<LineageCall> call;  // null: a source
    std::vector<LineageCall*> readers;
    EvictionPolicy::Id id = 0;
    int pins = 0;
    int depth = 0;  // longest chain of calls behind it
    LiveBlock listing;  // what the device's list said of it when it was evicted

    void drop() const {
        if (release()) Rematerializer::instance().on_unused(const_cast<Lineage&>(*this));
    }
};

LineageCall::~LineageCall() {
    for (const Operand& operand : operands) {
        if (!operand.lineage) continue;
        std::vector<LineageCall*>& readers = operand.lineage->readers;
        *std::find(readers.begin(), readers.end(), this) = readers.back();
        readers.pop_back();
    }
}

namespace {

// Longer chains are cut, so that restoring a value, which goes back along them, fits every stack.
constexpr int kMaxDepth = 4096;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::atomic<bool> Rematerializer::is_on_{false};

Rematerializer& Rematerializer::instance() {
    static auto* one = new Rematerializer;  // never destroyed: tensors may outlive main()
    return *one;
}

void Rematerializer::configure(const Settings& settings) {
    const std::lock_guard lock(mutex_);
    settings_ = settings;
    if (policy_) policy_->use_sqrt_sampling(settings.samples);
    is_on_.store(settings.is_on && policy_, std::memory_order_relaxed);
}

Rematerializer::Settings Rematerializer::settings() {
    const std::lock_guard lock(mutex_);
    return settings_;
}

Rematerializer::Stats Rematerializer::stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
}

// ---- recording

void Rematerializer::note_call(const OpCall& seen, std::span<const TensorRef> inputs, std::span<const TensorRef> outputs,
                               const std::shared_ptr<const Executable>& executable, double seconds) {
    const std::lock_guard lock(mutex_);
    const auto is_large = [&](const Storage& storage) { return storage.owner_ == Storage::Owner::allocator && storage.bytes() >= settings_.least_bytes; };
    if (std::none_of(outputs.begin(), outputs.end(), [&](const TensorRef& output) { return is_large(*output->storage()); })) return;

    Ref<LineageCall> call(new LineageCall);
    std::vector<EvictionPolicy::Id> parents;
    int depth = 1;
    for (const TensorRef& input : inputs) {
        Storage& storage = *input->storage();
        if (!storage.is_owned()) return;  // somebody else may write to it
        call->inputs.push_back(input->type());
        if (!storage.lineage_ && !is_large(storage)) {
            call->operands.push_back({.lineage = {}, .small = input->storage()});
            continue;
        }
        Lineage& lineage = lineage_of(storage);
        lineage.readers.push_back(call.get());
        call->operands.push_back({.lineage = Ref<Lineage>::share(&lineage), .small = {}});
        parents.push_back(lineage.id);
        depth = std::max(depth, lineage.depth + 1);
    }
    if (depth > kMaxDepth) return;  // the results are sources
    call->op = &seen.op;
    call->attrs = seen.attrs;
    call->executable = executable;
    call->threads = thread_count();
    for (const TensorRef& output : outputs) {
        call->outputs.push_back(output->type());
        call->results.push_back(nullptr);
        if (!is_large(*output->storage())) continue;
        Lineage& lineage = add_lineage(*output->storage(), seconds, parents);
        lineage.call = call;
        lineage.depth = depth;
        call->results.back() = &lineage;
        offer_or_withdraw(lineage);
    }
}

Lineage& Rematerializer::lineage_of(Storage& storage) { return storage.lineage_ ? *storage.lineage_ : add_lineage(storage, 0, {}); }

Lineage& Rematerializer::add_lineage(Storage& storage, double cost, std::span<const EvictionPolicy::Id> parents) {
    auto* lineage = new Lineage;  // its first reference is the storage's
    lineage->storage = &storage;
    lineage->device = storage.device_;
    lineage->data = storage.data_;
    lineage->bytes = storage.bytes_;
    lineage->id = policy_->add(storage.bytes_, cost, parents, seconds_now());
    if (lineage->id >= by_id_.size()) by_id_.resize(lineage->id + 1);
    by_id_[lineage->id] = lineage;
    storage.lineage_ = lineage;
    ++stats_.values;
    return *lineage;
}

// ---- dropping and computing again

void Rematerializer::make_room(Device& device, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (settings_.threshold == 0) return;
    const auto used = [&] { return device.allocator().stats().in_use; };
    if (used() + bytes <= settings_.threshold) return;
    cut_off_orphans();
    while (used() + bytes > settings_.threshold) {
        const std::optional<EvictionPolicy::Id> id = policy_->choose(seconds_now());
        if (!id) {
            OutOfMemory error(bytes, used(), settings_.threshold);
            error.is_threshold = true;
            throw error;
        }
        evict(*by_id_[*id]);
    }
}

void Rematerializer::evict(Lineage& lineage) {
    free_data(lineage);
    ++stats_.evictions;
}

void Rematerializer::free_data(Lineage& lineage) {
    lineage.listing = lineage.device->live().take(lineage.data);
    lineage.device->allocator().release(std::exchange(lineage.data, nullptr), lineage.bytes);
    if (lineage.storage) lineage.storage->data_ = nullptr;
    policy_->withdraw(lineage.id);
    policy_->evicted(lineage.id);
}

void Rematerializer::bring_back(Storage& storage) {
    const std::lock_guard lock(mutex_);
    restore(*storage.lineage_);
}

void Rematerializer::restore(Lineage& target) {
    if (target.data) return;
    const Ref<LineageCall> call = target.call;
    Pins pins;  // an operand must not go again while the others come back
    std::vector<void*> in, out;
    for (const LineageCall::Operand& operand : call->operands) {
        if (operand.lineage) pins.add(*operand.lineage);
        in.push_back(operand.lineage ? operand.lineage->data : operand.small->data());
    }
    std::vector<Ref<Storage>> fresh;
    for (const Type& type : call->outputs) {
        fresh.push_back(Storage::make(*target.device, type.bytes()));
        out.push_back(fresh.back()->data());
    }
    if (call->threads != thread_count()) {
        call->executable = target.device->prepare({*call->op, call->attrs, call->inputs}, call->outputs);
        call->threads = thread_count();
    }
    Ref<Storage> workspace;
    if (const size_t bytes = call->executable->workspace_bytes()) workspace = Storage::make(*target.device, bytes);
    const double begin = seconds_now();
    call->executable->run(in.data(), out.data(), workspace ? workspace->data() : nullptr);
    stats_.recompute_seconds += seconds_now() - begin;
    ++stats_.recomputations;
    for (size_t i = 0; i < fresh.size(); ++i) {
        Lineage* result = call->results[i];
        const bool is_wanted = result && !result->data && (result->storage || result == &target);
        if (is_wanted) adopt(*result, *fresh[i]);
    }
}

void Rematerializer::adopt(Lineage& lineage, Storage& fresh) {
    lineage.data = fresh.data_;
    fresh.owner_ = Storage::Owner::borrowed;
    if (lineage.storage) {
        lineage.storage->data_ = lineage.data;
        if (lineage.listing.bytes) lineage.device->live().add(lineage.data, std::move(lineage.listing));
    }
    policy_->restored(lineage.id);
    policy_->touch(lineage.id, seconds_now());
    offer_or_withdraw(lineage);
}

void Rematerializer::offer_or_withdraw(Lineage& lineage) {
    if (lineage.data && lineage.call && lineage.pins == 0) policy_->offer(lineage.id);
    else policy_->withdraw(lineage.id);
}

void Rematerializer::pin(Lineage& lineage) {
    restore(lineage);
    ++lineage.pins;
    policy_->touch(lineage.id, seconds_now());
    offer_or_withdraw(lineage);
}

void Rematerializer::unpin(Lineage& lineage) {
    --lineage.pins;
    offer_or_withdraw(lineage);
}

void Rematerializer::keep(const Tensor& tensor) {
    if (!tensor.storage()) return;
    const std::lock_guard lock(mutex_);
    Lineage* lineage = tensor.storage()->lineage_;
    if (!lineage) return;  // no call will ever be noted as its maker
    restore(*lineage);
    make_source(*lineage);
}

// ---- the end of values

void Rematerializer::make_source(Lineage& lineage) {
    if (!lineage.call) return;
    std::replace(lineage.call->results.begin(), lineage.call->results.end(), &lineage, static_cast<Lineage*>(nullptr));
    policy_->withdraw(lineage.id);
    policy_->cut(lineage.id);
    lineage.depth = 0;
    const Ref<LineageCall> call = std::exchange(lineage.call, {});  // goes last: values before this one may end with it
}

void Rematerializer::on_drop(Storage& storage) {
    const std::lock_guard lock(mutex_);
    Lineage& lineage = *storage.lineage_;
    lineage.storage = nullptr;
    const Ref<Lineage> held(&lineage);  // takes over the storage's reference
    if (lineage.readers.empty()) return;
    if (!lineage.call) {
        if (!cut_off(lineage)) orphans_.insert(&lineage);
    } else if (lineage.data && lineage.pins == 0) {
        free_data(lineage);
    }
}

void Rematerializer::on_unused(Lineage& lineage) {
    const std::lock_guard lock(mutex_);
    orphans_.erase(&lineage);
    if (lineage.data) {
        lineage.device->live().remove(lineage.data);
        lineage.device->allocator().release(lineage.data, lineage.bytes);
    }
    if (lineage.call) std::replace(lineage.call->results.begin(), lineage.call->results.end(), &lineage, static_cast<Lineage*>(nullptr));
    policy_->remove(lineage.id);
    by_id_[lineage.id] = nullptr;
    --stats_.values;
    delete &lineage;
}

// A source that no tensor holds is freed, unless an evicted value of a tensor needs it. What was made of it and is in
// memory becomes a source instead; what was made of it and has no tensor either is forgotten.
bool Rematerializer::cut_off(Lineage& orphan) {
    std::vector<Ref<Lineage>> made, unheld;
    std::unordered_set<Lineage*> seen{&orphan};
    std::vector<Lineage*> open{&orphan};
    while (!open.empty()) {
        Lineage& next = *open.back();
        open.pop_back();
        for (const LineageCall* reader : next.readers)
            for (Lineage* result : reader->results) {
                if (!result || !seen.insert(result).second) continue;
                if (result->storage && !result->data) return false;
                if (!result->storage && result->pins > 0) return false;
                (result->storage ? made : unheld).push_back(Ref<Lineage>::share(result));
                if (!result->storage) open.push_back(result);
            }
    }
    for (const Ref<Lineage>& value : unheld)
        if (value->data) free_data(*value);
    for (const Ref<Lineage>& value : made) make_source(*value);
    return true;
}

void Rematerializer::cut_off_orphans() {
    std::vector<Ref<Lineage>> orphans;
    for (Lineage* orphan : orphans_) orphans.push_back(Ref<Lineage>::share(orphan));
    for (const Ref<Lineage>& orphan : orphans)
        if (cut_off(*orphan)) orphans_.erase(orphan.get());
}

// ---- Pins

void Pins::add(std::span<const TensorRef> tensors) {
    Rematerializer& here = Rematerializer::instance();
    const std::lock_guard lock(here.mutex_);
    for (const TensorRef& tensor : tensors)
        if (tensor && tensor->storage() && tensor->storage()->lineage_) add(*tensor->storage()->lineage_);
}

void Pins::add(Lineage& lineage) {
    Rematerializer::instance().pin(lineage);
    lineage.retain();
    pinned_.push_back(&lineage);
}

void Pins::release() {
    Rematerializer& here = Rematerializer::instance();
    const std::lock_guard lock(here.mutex_);
    for (Lineage* lineage : pinned_) {
        here.unpin(*lineage);
        lineage->drop();
    }
}

}  // namespace megjit::runtime
