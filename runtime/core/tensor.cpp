#include "runtime/core/tensor.h"

#include <cmath>

#include "runtime/core/block_pool.h"
#include "runtime/core/device.h"
#include "runtime/core/number_to_integer.h"
#include "runtime/core/rematerializer.h"
#include "runtime/host/error.h"
#include "runtime/host/half.h"
#include "runtime/host/user_line.h"

namespace megjit::runtime {
namespace {

// The header takes a cache line, and the inline data the next ones.
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(Storage) <= kHeaderBytes);

// One eager op on a small tensor takes and returns one of each.
using InlineBlocks = BlockPool<kHeaderBytes + Storage::kInlineBytes, 64>;
using TensorBlocks = BlockPool<sizeof(Tensor), 256>;  // a walked body holds one for each op

}  // namespace

Ref<Storage> Storage::make(Device& device, size_t bytes) {
    if (bytes <= kInlineBytes && device.is_host()) {
        auto* block = static_cast<std::byte*>(InlineBlocks::take());
        auto* storage = new (block) Storage(device, block + kHeaderBytes, bytes);
        return Ref<Storage>(storage);
    }
    void* data = allocate(device, bytes);
    auto* storage = new Storage(device, data, bytes);
    storage->owner_ = Owner::allocator;
    return Ref<Storage>(storage);
}

Ref<Storage> Storage::borrow(Device& device, void* data, size_t bytes, std::shared_ptr<void> keep,
                             bool is_writable) {
    auto* storage = new Storage(device, data, bytes);
    storage->owner_ = is_writable ? Owner::borrowed_to_write : Owner::borrowed;
    storage->keep_ = std::move(keep);
    return Ref<Storage>(storage);
}

void Storage::list(std::string_view op, const Type& type, const std::string& where) {
    device_->live().add(data_, {.bytes = bytes_,
                                .what = cat(op, " ", to_string(type)),
                                .where = where.empty() ? user_line() : where});
    is_listed_ = true;
}

Ref<Storage> Storage::elsewhere(Device& device, size_t bytes, std::shared_ptr<Backing> backing) {
    auto* storage = new Storage(device, nullptr, bytes);
    storage->owner_ = Owner::elsewhere;
    storage->keep_ = std::shared_ptr<void>(backing, backing.get());
    return Ref<Storage>(storage);
}

namespace {

struct Zeros final : Backing {
    explicit Zeros(const Type& t) : type(t) {}
    void read(void* to) const override { std::memset(to, 0, type.bytes()); }
    bool stays() const override { return false; }
    Type type;
    std::string where = user_line();
};

}  // namespace

Ref<Storage> Storage::zeros(Device& device, const Type& type) {
    return elsewhere(device, type.bytes(), std::make_shared<Zeros>(type));
}

void Storage::leave_to(std::shared_ptr<Backing> backing) {
    release_memory();
    is_listed_ = false;
    owner_ = Owner::elsewhere;
    keep_ = std::shared_ptr<void>(backing, backing.get());
    data_.store(nullptr, std::memory_order_release);
}

void Storage::leave() {
    if (owner_ != Owner::elsewhere || !RefCounted::unique()) return;
    release_memory();
    data_.store(nullptr, std::memory_order_release);
}

// Threads that ask at the same time each read the value; the memory of the first one stays.
void* Storage::read_back() {
    auto* const from = static_cast<Backing*>(keep_.get());
    void* fresh = allocate(*device_, bytes_);
    try {
        from->read(fresh);
    } catch (...) {
        device_->allocator().release(fresh, bytes_);
        throw;
    }
    void* present = nullptr;
    if (!data_.compare_exchange_strong(present, fresh)) {
        device_->allocator().release(fresh, bytes_);
        return present;
    }
    if (!from->stays()) {
        owner_ = Owner::allocator;
        const auto& zeros = static_cast<Zeros&>(*from);
        if (is_worth_listing()) list("zeros", zeros.type, zeros.where);
    }
    return fresh;
}

void* Storage::bring_back() const {
    auto& self = const_cast<Storage&>(*this);
    if (owner_ == Owner::elsewhere) return self.read_back();
    if (lineage()) return Rematerializer::instance().bring_back(self);
    return data_.load(std::memory_order_acquire);  // which another thread may have brought back
}

bool Storage::is_needed_again() const { return Rematerializer::instance().is_needed_again(*this); }

void Storage::release_memory() const {
    if (is_listed_) device_->live().remove(data_);
    device_->allocator().release(data_, bytes_);
}

void Storage::drop() const {
    if (!release()) return;
    if (lineage()) {
        Rematerializer::instance().on_drop(const_cast<Storage&>(*this));
        delete this;
        return;
    }
    switch (owner_) {
        case Owner::inline_:
            this->~Storage();
            InlineBlocks::give_back(const_cast<Storage*>(this));
            return;
        case Owner::allocator:
        case Owner::elsewhere: release_memory(); break;
        case Owner::borrowed:
        case Owner::borrowed_to_write: break;
    }
    delete this;
}

void Tensor::keep_copy(Ref<Tensor> copy) {
    if (Tensor* const old = copy_.exchange(copy.give_up())) old->drop();
}

void* Tensor::operator new(size_t) { return TensorBlocks::take(); }
void Tensor::operator delete(void* block) { TensorBlocks::give_back(block); }

uint64_t Tensor::next_id() {
    // Each thread takes ids from a block of its own, so that making a tensor shares no cache line.
    static std::atomic<uint64_t> blocks{0};
    constexpr uint64_t kBlock = 4096;
    thread_local uint64_t next = 0;
    if (next % kBlock == 0) next = blocks.fetch_add(1, std::memory_order_relaxed) * kBlock + 1;
    return next++;
}

TensorRef make_tensor(const Type& type, Ref<Storage> storage) {
    Device& device = storage->device();
    return TensorRef(new Tensor(type, device, std::move(storage)));
}

TensorRef make_placeholder(const Type& type, Device& device) {
    return TensorRef(new Tensor(type, device, {}));
}

TensorRef empty_tensor(Device& device, const Type& type) {
    return TensorRef(new Tensor(type, device, Storage::make(device, type.bytes())));
}

TensorRef tensor_from_host(Device& device, const Type& type, const void* data) {
    TensorRef tensor = empty_tensor(device, type);
    if (type.bytes()) device.stream().upload(tensor->data(), data, type.bytes());
    return tensor;  // work queued later finds it ready; an upload is never lost
}

TensorRef scalar_tensor(double value, DType dtype) {
    struct Slot {
        uint64_t bits = 0;
        TensorRef tensor;
    };
    constexpr size_t kSlots = 64;  // `x * 0.5` in a loop must not make a tensor each time
    thread_local Slot cache[kSlots];
    const auto bits = std::bit_cast<uint64_t>(value);
    Slot& slot = cache[(bits * 0x9E3779B97F4A7C15ull >> 58) ^ static_cast<size_t>(dtype)];
    if (slot.tensor && slot.bits == bits && slot.tensor->dtype() == dtype) return slot.tensor;
    TensorRef tensor = empty_tensor(host_device(), {.dtype = dtype});
    void* to = tensor->data();
    const auto store = [to](auto v) { std::memcpy(to, &v, sizeof v); };
    switch (dtype) {
        case DType::f32: store(static_cast<float>(value)); break;
        case DType::f16: store(float_to_half(static_cast<float>(value))); break;
        case DType::bf16: store(float_to_bfloat(static_cast<float>(value))); break;
        case DType::f64: store(value); break;
        case DType::i64: store(number_to_integer<int64_t>(value)); break;
        case DType::i32: store(number_to_integer(value)); break;
        case DType::i16: store(static_cast<int16_t>(number_to_integer(value))); break;
        case DType::i8: store(static_cast<int8_t>(number_to_integer(value))); break;
        case DType::u8: store(static_cast<uint8_t>(number_to_integer(value))); break;
        case DType::u16: store(static_cast<uint16_t>(number_to_integer(value))); break;
        case DType::b8: store(static_cast<uint8_t>(value != 0)); break;
        case DType::c64: {
            const float pair[2] = {static_cast<float>(value), 0};
            std::memcpy(to, pair, 8);
            break;
        }
    }
    tensor->is_constant = true;
    slot = {bits, tensor};
    return tensor;
}

double item_as_double(DType dtype, const void* elements, int64_t index) {
    const auto element = [&]<class T>(T) { return static_cast<const T*>(elements)[index]; };
    switch (dtype) {
        case DType::f32: return element(float{});
        case DType::f16: return half_to_float(element(uint16_t{}));
        case DType::bf16: return bfloat_to_float(element(uint16_t{}));
        case DType::f64: return element(double{});
        case DType::i64: return static_cast<double>(element(int64_t{}));
        case DType::i32: return element(int32_t{});
        case DType::i16: return element(int16_t{});
        case DType::i8: return element(int8_t{});
        case DType::u8: return element(uint8_t{});
        case DType::u16: return element(uint16_t{});
        case DType::b8: return element(uint8_t{}) != 0;
        case DType::c64: break;
    }
    user_error({.what = "a complex64 element is not a real number", .fix = "take F.real first"},
               ErrorKind::type);
}

double item_as_double(const Tensor& tensor, int64_t index) {
    return item_as_double(tensor.dtype(), tensor.as<char>(), index);
}

int64_t item_as_integer(const Tensor& tensor, int64_t index) {
    return tensor.dtype() == DType::i64 ? tensor.as<int64_t>()[index]
                                        : static_cast<int64_t>(item_as_double(tensor, index));
}

bool is_exact_as_double(const Tensor& tensor, int64_t index) {
    constexpr int64_t kExact = int64_t{1} << 53;
    return tensor.dtype() != DType::i64 ||
           (tensor.as<int64_t>()[index] >= -kExact && tensor.as<int64_t>()[index] <= kExact);
}

}  // namespace megjit::runtime
