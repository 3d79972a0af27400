// runtime/core/tensor.h -- Tensor: an immutable, dense value with a type. In-place writes of the
// Python API rebind a handle to a new Tensor, so that no Tensor ever changes under a reader.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/core/allocator.h"
#include "runtime/core/live_blocks.h"
#include "runtime/core/stream.h"
#include "runtime/core/type.h"

namespace megjit::runtime {

class Device;
class Lineage;

// Intrusive reference: one word, no control block; a chain of eager ops spends its time here.
template <class T>
class Ref {
public:
    Ref() = default;
    Ref(std::nullptr_t) {}
    explicit Ref(T* owned) : p_(owned) {}  // takes over the reference that `new` made
    Ref(const Ref& o) : p_(o.p_) {
        if (p_) p_->retain();
    }
    Ref(Ref&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
    Ref& operator=(Ref o) noexcept {
        std::swap(p_, o.p_);
        return *this;
    }
    ~Ref() {
        if (p_) p_->drop();
    }
    static Ref share(T* p) {
        if (p) p->retain();
        return Ref(p);
    }
    // A second reference to an object that no other thread knows yet.
    Ref share_new() const {
        p_->retain_new();
        return Ref(p_);
    }

    T* get() const { return p_; }
    T* give_up() { return std::exchange(p_, nullptr); }  // the reference is the caller's
    T* operator->() const { return p_; }
    T& operator*() const { return *p_; }
    explicit operator bool() const { return p_ != nullptr; }
    bool operator==(const Ref&) const = default;

private:
    T* p_ = nullptr;
};

class RefCounted {
public:
    void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
    void retain_new() const {
        count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    bool unique() const { return count_.load(std::memory_order_acquire) == 1; }
    uint32_t use_count() const { return count_.load(std::memory_order_relaxed); }

protected:
    // The only reference goes without an atomic exchange, which takes some 20 cycles.
    bool release() const { return unique() || count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

private:
    mutable std::atomic<uint32_t> count_{1};
};

// Where a value lies while it is not in memory.
class Backing {
public:
    virtual ~Backing() = default;
    virtual void read(void* to) const = 0;  // the whole value
    // The value stays there while it is in memory, and comes from there again. Else it is in memory
    // alone once it has been read.
    virtual bool stays() const { return true; }
};

// A block of memory on one device. Blocks of up to kInlineBytes follow the header itself.
class Storage : public RefCounted {
public:
    static constexpr size_t kInlineBytes = 192;

    static Ref<Storage> make(Device& device, size_t bytes);
    // Memory that somebody else owns (NumPy, DLPack) and may write to; `keep` is destroyed with the
    // storage. `is_writable`: the owner allows the only holder to write over it.
    static Ref<Storage> borrow(Device& device, void* data, size_t bytes, std::shared_ptr<void> keep,
                               bool is_writable = false);

    // A value that lies elsewhere, and is read into memory when somebody asks for its address.
    static Ref<Storage> elsewhere(Device& device, size_t bytes, std::shared_ptr<Backing> backing);
    // Zeros on the host, which take memory only when somebody asks for their address. So the states
    // of an optimizer cost nothing before the first step, and less than all where it moves them to
    // a file one by one.
    static Ref<Storage> zeros(Device& device, const Type& type);
    // From now on the value lies in `backing`, too. The caller is the only holder of the storage,
    // whose memory is given back.
    void leave_to(std::shared_ptr<Backing> backing);
    Backing* backing() const {
        return owner_ == Owner::elsewhere ? static_cast<Backing*>(keep_.get()) : nullptr;
    }
    // Gives back the memory of a value that lies elsewhere, if nobody else holds it.
    void leave();

    // Null only where a value was evicted and is not yet computed again: see rematerializer.h.
    // A caller that keeps the address while it asks for memory pins the value.
    void* data() const {
        void* const data = data_.load(std::memory_order_acquire);
        return data ? data : bring_back();
    }
    // May the holder of this reference overwrite the data? Not if the memory is borrowed for
    // reading, if other values are computed again from this one, or if the value lies elsewhere,
    // too.
    bool unique() const {
        return RefCounted::unique() && owner_ != Owner::borrowed &&
               (owner_ != Owner::elsewhere || !backing()->stays()) &&
               (!lineage() || !is_needed_again());
    }
    size_t bytes() const { return bytes_; }
    Device& device() const { return *device_; }
    bool is_owned() const {
        return owner_ != Owner::borrowed && owner_ != Owner::borrowed_to_write;
    }
    bool is_borrowed_to_write() const { return owner_ == Owner::borrowed_to_write; }
    // A ticket of the device's stream: past when the last queued write of the data has run.
    Ticket ready() const { return ready_.load(std::memory_order_acquire); }
    void set_ready(Ticket ticket) { ready_.store(ticket, std::memory_order_release); }
    // Lets out-of-memory errors name what a large block holds. `where`: the user's line; the
    // present one if empty.
    void list(std::string_view op, const Type& type, const std::string& where = {});
    bool is_worth_listing() const {
        return bytes_ >= LiveBlocks::kLeastBytes && owner_ == Owner::allocator;
    }
    void drop() const;

private:
    friend class Rematerializer;
    friend class Pins;
    Storage(Device& device, void* data, size_t bytes)
        : device_(&device), data_(data), bytes_(bytes) {}
    Lineage* lineage() const { return lineage_.load(std::memory_order_acquire); }
    void* bring_back() const;
    void* read_back();
    void release_memory() const;
    bool is_needed_again() const;
    enum class Owner : uint8_t { inline_, allocator, borrowed, borrowed_to_write, elsewhere };
    // Atomic, as the three below are: threads read them while another brings the value back.
    std::atomic<Owner> owner_ = Owner::inline_;
    bool is_listed_ = false;  // it is among the device's live blocks
    Device* device_ = nullptr;
    std::atomic<void*> data_ = nullptr;
    std::atomic<Ticket> ready_ = 0;
    std::atomic<Lineage*> lineage_ = nullptr;  // owns the memory, when there is one
    size_t bytes_ = 0;
    std::shared_ptr<void> keep_;  // for a value that lies elsewhere its Backing
};

// The place of a placeholder in the record of a running trace, in a graph that is edited, or in the
// body of a loop that is recorded.
struct TraceLink {
    static constexpr uint64_t kEdited = uint64_t{1} << 63, kBody = uint64_t{1} << 62;
    uint64_t session = 0;  // 0: an ordinary tensor; kEdited + n: the n-th edited graph
    uint32_t value = 0;  // id in that session's record
    bool is_edited() const { return session & kEdited; }
    bool is_of_body() const { return session & kBody; }
};

class Tensor : public RefCounted {
public:
    Tensor(const Type& type, Device& device, Ref<Storage> storage)
        : type_(type), device_(&device), storage_(std::move(storage)), id_(next_id()) {}

    const Type& type() const { return type_; }
    const Shape& shape() const { return type_.shape; }
    DType dtype() const { return type_.dtype; }
    uint64_t id() const { return id_; }  // never reused: tapes and traces use it as a key

    Device& device() const { return *device_; }  // where the data are, or will be
    // A key for values computed from the data: equal keys mean equal data.
    // For borrowed memory each call returns another one.
    uint64_t data_id() const { return storage_ && !storage_->is_owned() ? next_id() : id_; }
    bool has_data() const { return static_cast<bool>(storage_); }
    const Ref<Storage>& storage() const { return storage_; }
    void* data() const { return storage_ ? storage_->data() : nullptr; }  // address on its device
    template <class T>  // the tensor lies on the host
    T* as() const {
        return static_cast<T*>(data());
    }

    TraceLink trace;  // only the running trace, or the edited graph, writes it
    bool is_constant = false;  // a Python number or array: a trace treats it as a constant
    // A placeholder receives its data once, when its program has run, and what is kept beside them.
    void materialize(Tensor& made) {
        storage_ = made.storage_;
        if (Ref<Tensor> copy = made.take_copy()) keep_copy(std::move(copy));
    }

    // A copy of the value in another form, which the program that made both has left for the next
    // one that reads it so. It belongs to this value alone: another one has none.
    void keep_copy(Ref<Tensor> copy);
    Ref<Tensor> take_copy() {  // hardly any tensor has one: no atomic exchange for the others
        return Ref<Tensor>(copy_.load(std::memory_order_relaxed) ? copy_.exchange(nullptr)
                                                                 : nullptr);
    }

    void drop() const {
        if (release()) delete this;
    }
    ~Tensor() {
        if (const Tensor* const copy = copy_.load(std::memory_order_relaxed)) copy->drop();
    }
    static void* operator new(size_t);
    static void operator delete(void* block);

private:
    static uint64_t next_id();
    Type type_;
    Device* device_;
    Ref<Storage> storage_;
    uint64_t id_ = 0;
    std::atomic<Tensor*> copy_ = nullptr;  // owned
};

using TensorRef = Ref<Tensor>;

TensorRef make_tensor(const Type& type, Ref<Storage> storage);  // on the storage's device
TensorRef make_placeholder(const Type& type, Device& device);
TensorRef empty_tensor(Device& device, const Type& type);  // its memory is uninitialised
// A copy of `type.bytes()` bytes of the host.
TensorRef tensor_from_host(Device& device, const Type& type, const void* data);
TensorRef scalar_tensor(double value, DType dtype);  // 0-d, on the host; recent ones are cached
double item_as_double(const Tensor& tensor, int64_t index = 0);  // on the host; not c64
double item_as_double(DType dtype, const void* elements, int64_t index);
int64_t item_as_integer(const Tensor& tensor, int64_t index = 0);  // exact, for integers
// Does item_as_double give the exact value? An int64 can have digits that a double has not.
bool is_exact_as_double(const Tensor& tensor, int64_t index = 0);

}  // namespace megjit::runtime
