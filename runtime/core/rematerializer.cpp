#include "runtime/core/rematerializer.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <unordered_set>

#include "runtime/core/lineage.h"

namespace megjit::runtime {
namespace {

// Longer chains are cut off, so that a loop does not remember its whole past.
constexpr int kMaxDepth = 4096;

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

std::atomic<bool> Rematerializer::is_on_{false};

Rematerializer& Rematerializer::instance() {
    static auto* one = new Rematerializer;  // never destroyed: tensors may outlive main()
    return *one;
}

void Rematerializer::configure(const Settings& settings) {
    const std::lock_guard lock(mutex_);
    settings_ = settings;
    orphan_limit_ = 0;
    if (policy_) policy_->use_sqrt_sampling(settings.samples);
    is_on_.store(settings.is_on && policy_, std::memory_order_relaxed);
}

Rematerializer::Stats Rematerializer::stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
}

// ---- recording

void Rematerializer::note_call(const OpCall& seen, std::span<const TensorRef> inputs,
                               std::span<const TensorRef> outputs,
                               const std::shared_ptr<const Executable>& executable,
                               double seconds) {
    const std::lock_guard lock(mutex_);
    // Smaller values are kept inside their Storage.
    const auto has_memory = [](const Storage& storage) {
        return storage.owner_ == Storage::Owner::allocator;
    };
    if (std::none_of(outputs.begin(), outputs.end(),
                     [&](const TensorRef& output) { return has_memory(*output->storage()); }))
        return;
    // The owner may write to borrowed memory.
    if (std::any_of(inputs.begin(), inputs.end(),
                    [](const TensorRef& input) { return !input->storage()->is_owned(); }))
        return;

    Ref<LineageCall> call(new LineageCall);
    call->op = &seen.op;
    call->attrs = seen.attrs;
    call->inputs.assign(seen.inputs.begin(), seen.inputs.end());
    call->executable = executable;
    call->operands.reserve(inputs.size());
    std::vector<EvictionPolicy::Id> parents;
    int depth = 1;
    for (const TensorRef& input : inputs) {
        Storage& storage = *input->storage();
        if (!has_memory(storage)) {
            call->operands.push_back({.lineage = {}, .small = input->storage()});
            continue;
        }
        Lineage& lineage = lineage_of(storage);
        if (lineage.depth == kMaxDepth) make_source(lineage);
        lineage.readers.push_back(call.get());
        call->operands.push_back({.lineage = Ref<Lineage>::share(&lineage), .small = {}});
        parents.push_back(lineage.id);
        depth = std::max(depth, lineage.depth + 1);
    }
    for (const TensorRef& output : outputs) {
        call->outputs.push_back(output->type());
        call->results.push_back(nullptr);
        if (!has_memory(*output->storage())) continue;
        Lineage& lineage = add_lineage(*output->storage(), seconds, parents);
        lineage.call = call;
        lineage.depth = depth;
        call->results.back() = &lineage;
        offer_or_withdraw(lineage);
    }
}

Lineage& Rematerializer::lineage_of(Storage& storage) {
    return storage.lineage() ? *storage.lineage() : add_lineage(storage, 0, {});
}

Lineage& Rematerializer::add_lineage(Storage& storage, double cost,
                                     std::span<const EvictionPolicy::Id> parents) {
    auto* lineage = new Lineage;  // the storage holds the first reference
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

void Rematerializer::offer_or_withdraw(Lineage& lineage) {
    // A value without a storage was computed again only for others, and is not worth its room,
    // however small it is.
    const bool is_large = lineage.bytes >= settings_.least_bytes || !lineage.storage;
    if (lineage.data && lineage.call && lineage.pins == 0 && is_large) policy_->offer(lineage.id);
    else policy_->withdraw(lineage.id);
}

// ---- evicting

void* Rematerializer::allocate(Device& device, size_t bytes) {
    const std::lock_guard lock(mutex_);
    make_room(device, bytes);
    for (;;) {
        try {
            return device.allocator().allocate(bytes);
        } catch (const OutOfMemory&) {
            if (!evict_one()) throw;
        }
    }
}

void Rematerializer::make_room(Device& device, size_t bytes) {
    const auto is_too_much = [&] {
        return device.allocator().stats().in_use + bytes > settings_.threshold;
    };
    if (settings_.threshold == 0 || !is_too_much()) return;
    while (is_too_much()) {
        if (evict_one()) continue;
        OutOfMemory error(bytes, device.allocator().stats().in_use, settings_.threshold);
        error.is_threshold = true;
        throw error;
    }
}

bool Rematerializer::evict_one() {
    const std::optional<EvictionPolicy::Id> id = policy_->choose(seconds_now());
    if (!id) return cut_off_orphans(0);
    free_data(*by_id_[*id]);
    ++stats_.evictions;
    return true;
}

void Rematerializer::free_data(Lineage& lineage) {
    lineage.listing = lineage.device->live().take(lineage.data);
    lineage.device->allocator().release(std::exchange(lineage.data, nullptr), lineage.bytes);
    if (lineage.storage) lineage.storage->data_ = nullptr;
    policy_->withdraw(lineage.id);
    policy_->evicted(lineage.id);
}

// ---- computing again

void* Rematerializer::bring_back(Storage& storage) {
    const std::lock_guard lock(mutex_);
    Lineage& lineage = *storage.lineage();
    restore(lineage);
    return lineage.data;
}

// Depth first, on a stack of its own: chains are longer than a thread's stack is deep.
void Rematerializer::restore(Lineage& target) {
    if (target.data) return;
    if (target.storage) target.device->stream().refuse_lost(target.storage->ready());
    struct Open {
        Lineage* target = nullptr;
        Ref<LineageCall> call;
        Pins pins = {};  // operands must not be evicted again while the others come back
        size_t next = 0;
    };
    std::deque<Open> open;
    open.emplace_back(&target, target.call);
    while (!open.empty()) {
        Open& top = open.back();
        Lineage* missing = nullptr;
        for (; top.next < top.call->operands.size() && !missing; ++top.next) {
            Lineage* operand = top.call->operands[top.next].lineage.get();
            if (operand && !operand->data) missing = operand;
            else if (operand) top.pins.add(*operand);
        }
        if (missing) {
            --top.next;  // the operand is pinned when it is back
            open.emplace_back(missing, missing->call);
        } else {
            recompute(*top.target, *top.call);
            open.pop_back();
        }
    }
}

void Rematerializer::recompute(Lineage& target, LineageCall& call) {
    std::vector<void*> in, out;
    for (const LineageCall::Operand& operand : call.operands)
        in.push_back(operand.lineage ? operand.lineage->data : operand.small->data());
    std::vector<Ref<Storage>> fresh;
    for (const Type& type : call.outputs) {
        fresh.push_back(Storage::make(*target.device, type.bytes()));
        out.push_back(fresh.back()->data());
    }
    Ref<Storage> workspace;
    if (const size_t bytes = call.executable->workspace_bytes())
        workspace = Storage::make(*target.device, bytes);
    const double begin = seconds_now();
    Stream& stream = target.device->stream();
    stream.name_next(call.op->name, "");
    call.executable->enqueue(stream, in.data(), out.data(),
                             workspace ? workspace->data() : nullptr);
    for (const Ref<Storage>& storage : fresh) storage->set_ready(stream.record());
    stats_.recompute_seconds += seconds_now() - begin;
    ++stats_.recomputations;
    for (size_t i = 0; i < fresh.size(); ++i) {
        Lineage* result = call.results[i];
        const bool is_wanted = result && !result->data && (result->storage || result == &target);
        if (is_wanted) adopt(*result, *fresh[i]);
    }
}

void Rematerializer::adopt(Lineage& lineage, Storage& fresh) {
    lineage.data = fresh.data_;
    fresh.owner_ = Storage::Owner::borrowed;
    if (lineage.storage) {
        lineage.storage->set_ready(fresh.ready());  // set first: readers of the data need it
        lineage.storage->data_ = lineage.data;
        if (lineage.listing.bytes)
            lineage.device->live().add(lineage.data, std::move(lineage.listing));
    }
    policy_->restored(lineage.id);
    policy_->touch(lineage.id, seconds_now());
    offer_or_withdraw(lineage);
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
    Lineage* lineage = tensor.storage()->lineage();
    if (!lineage) return;  // no later call will be noted as its maker
    restore(*lineage);
    make_source(*lineage);
}

bool Rematerializer::is_needed_again(const Storage& storage) {
    const std::lock_guard lock(mutex_);
    const Lineage& lineage = *storage.lineage();
    return lineage.call || !lineage.readers.empty();
}

// ---- the end of values

void Rematerializer::make_source(Lineage& lineage) {
    if (!lineage.call) return;
    lineage.call->forget(lineage);
    policy_->withdraw(lineage.id);
    policy_->cut(lineage.id);
    lineage.depth = 0;
    const Ref<LineageCall> call =
        std::exchange(lineage.call, {});  // released last: its end may end values before this one
}

void Rematerializer::on_drop(Storage& storage) {
    const std::lock_guard lock(mutex_);
    Lineage& lineage = *storage.lineage();
    lineage.storage = nullptr;
    const Ref<Lineage> held(&lineage);  // takes over the storage's reference
    if (lineage.readers.empty()) return;
    if (!lineage.call) {
        if (is_worth_keeping(lineage) || !cut_off(lineage)) add_orphan(lineage);
    } else if (lineage.data && lineage.pins == 0) {
        free_data(lineage);
    }
}

// The end of one lineage may end all lineages that it was made of. They are destroyed one after the
// other, not recursively.
void Rematerializer::on_unused(Lineage& lineage) {
    const std::lock_guard lock(mutex_);
    lineage.next_unused = std::exchange(unused_, &lineage);
    if (std::exchange(is_destroying_, true)) return;
    while (unused_) {
        Lineage& next = *unused_;
        unused_ = next.next_unused;
        destroy(next);
    }
    is_destroying_ = false;
}

void Rematerializer::destroy(Lineage& lineage) {
    remove_orphan(lineage);
    if (lineage.data) {
        lineage.device->live().remove(lineage.data);
        lineage.device->allocator().release(lineage.data, lineage.bytes);
    }
    if (lineage.call) lineage.call->forget(lineage);
    policy_->remove(lineage.id);
    by_id_[lineage.id] = nullptr;
    --stats_.values;
    delete &lineage;
}

// ---- orphans

// A source that no tensor holds is worth keeping if that makes at least its own size evictable: the
// first state of a recurrent net, a mask.
bool Rematerializer::is_worth_keeping(const Lineage& source) {
    size_t made = 0;
    for (const LineageCall* reader : source.readers)
        for (const Lineage* result : reader->results) made += result ? result->bytes : 0;
    return made >= source.bytes;
}

// Orphans are counted, and the oldest cut off: a long program must not pile up its past batches.
void Rematerializer::add_orphan(Lineage& lineage) {
    lineage.orphaned = next_orphan_++;
    orphans_.emplace(lineage.orphaned, &lineage);
    orphan_bytes_ += lineage.bytes;
    const size_t most = std::max(16 * settings_.least_bytes, settings_.threshold / 8);
    if (orphan_bytes_ <= std::max(orphan_limit_, most)) return;
    cut_off_orphans(orphan_bytes_ / 2);
    orphan_limit_ = 2 * orphan_bytes_;
}

void Rematerializer::remove_orphan(Lineage& lineage) {
    if (orphans_.erase(lineage.orphaned)) orphan_bytes_ -= lineage.bytes;
}

// Frees a source that no tensor holds, unless an evicted value of a tensor needs it. Values made of
// it that are in memory become sources instead; those that no tensor holds either are forgotten.
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

// Cuts off the oldest orphans, until `enough_bytes` are left. Returns whether there were any.
bool Rematerializer::cut_off_orphans(size_t enough_bytes) {
    std::vector<Ref<Lineage>> orphans;
    for (const auto& [age, orphan] : orphans_) orphans.push_back(Ref<Lineage>::share(orphan));
    bool has_cut = false;
    for (const Ref<Lineage>& orphan : orphans) {
        if (orphan_bytes_ <= enough_bytes) break;
        if (!cut_off(*orphan)) continue;
        remove_orphan(*orphan);
        has_cut = true;
    }
    return has_cut;
}

// ---- Pins

void Pins::add(std::span<const TensorRef> tensors) {
    Rematerializer& here = Rematerializer::instance();
    const std::lock_guard lock(here.mutex_);
    for (const TensorRef& tensor : tensors)
        if (tensor && tensor->storage() && tensor->storage()->lineage())
            add(*tensor->storage()->lineage());
}

void Pins::add(Lineage& lineage) {
    pinned_.reserve(pinned_.size() + 1);
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
