#include "backends/cuda/gpu.h"

#include <unistd.h>

#include "codegen/card_figures.h"
#include "codegen/compiler.h"
#include "runtime/core/idle_memory.h"
#include "runtime/host/error.h"
#include "runtime/host/product_rules.h"
#include "runtime/host/turn.h"

namespace megjit::cuda {
namespace {

using runtime::cat;
using runtime::DeviceError;

// Numbers of the driver's interface.
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // options of cuModuleLoadDataEx
constexpr int kMaxDynamicSharedBytes = 8;  // an attribute of functions
constexpr uint32_t kSharedBytesForAll = 48 << 10;  // more must be asked for
constexpr Result kOutOfMemory = 2;
constexpr int kMemoryType = 2, kDeviceOrdinal = 9;  // attributes of addresses
constexpr unsigned kOfDevice = 2;  // a type of memory
constexpr size_t kKernelsKept = 1024;  // images, of some 10 to 100 KB each
// Bytes per second over 16 lanes of PCIe 4 or 5: the generation of the architecture's cards.
constexpr double kLinkBytes = 2.5e10, kLinkBytesOfHopper = 5e10;

Module load_module(const Gpu& gpu, const std::string& code) {
    const Entered entered = gpu.enter();
    std::string log(8192, '\0');
    int options[] = {kErrorLog, kErrorLogBytes};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    Module module = nullptr;
    // PTX must end with a zero, as every std::string does.
    const Result result = gpu.with_room([&] {
        return gpu.driver().call().load_module(&module, code.c_str(), 2, options, values);
    }, code.size(), "a kernel's code");
    if (result == 0) return module;
    try {
        gpu.driver().check(result, "cuModuleLoadDataEx");
    } catch (const DeviceError& error) {
        throw DeviceError(cat(error.what(), "\n  ", gpu.name(), " (sm_", gpu.target().gpu_arch,
                              ") does not load a kernel: ", log.c_str()));
    }
    return nullptr;
}

}  // namespace

LoadedKernel::LoadedKernel(const Gpu& gpu, const std::string& code, const std::string& entry,
                           uint32_t shared_bytes)
    : gpu_(gpu), module_(load_module(gpu, code)) {
    const CudaDriver& driver = gpu.driver();
    const Entered entered = gpu.enter();
    try {
        driver.check(driver.call().function(&function_, module_, entry.c_str()),
                     "cuModuleGetFunction");
        if (shared_bytes > kSharedBytesForAll)
            driver.check(driver.call().set_function_attribute(function_, kMaxDynamicSharedBytes,
                                                              static_cast<int>(shared_bytes)),
                         "cuFuncSetAttribute");
    } catch (const DeviceError&) {
        driver.call().unload_module(module_);
        throw;
    }
}

LoadedKernel::~LoadedKernel() {
    if (!module_) return;
    try {
        const Entered entered = gpu_.enter();
        gpu_.driver().call().unload_module(module_);
    } catch (const DeviceError&) {}  // a child of fork() leaves it to the parent
}

Gpu::Gpu(const CudaDriver& driver, int ordinal)
    : driver_(driver),
      ordinal_(ordinal),
      is_there_(true),
      forks_(runtime::forks()),
      description_(describe_card(driver, ordinal)) {
    driver.check(driver.call().device(&device_, ordinal), "cuDeviceGet");
}

Gpu::Gpu(const CudaDriver& driver, CardDescription description, bool compiles)
    : driver_(driver),
      ordinal_(0),
      is_there_(false),
      compiles_(compiles),
      forks_(runtime::forks()),
      description_(std::move(description)) {}

std::string Gpu::identity() const {
    constexpr char kDigits[] = "0123456789abcdef";
    char bytes[16] = {};
    driver_.check(driver_.call().device_uuid(bytes, device_), "cuDeviceGetUuid");
    std::string text = "GPU-";
    for (const char byte : bytes)
        text += {kDigits[static_cast<uint8_t>(byte) >> 4], kDigits[byte & 15]};
    return driver_.emulation() ? cat(text, " of process ", getpid()) : text;
}

runtime::Speeds Gpu::speeds() const {
    constexpr double kLarge = 1 << 29;  // in bytes
    const CardDescription& card = description_;
    const auto& figures = codegen::CardFigures::of(card.arch);
    const bool tf32 = runtime::product_rules().tf32;
    return {.flops = figures.flops_per_second("float32"),
            .bytes = figures.memory_bytes_per_second(kLarge),
            .link_bytes = card.arch >= 90 ? kLinkBytesOfHopper : kLinkBytes,
            .product_flops = figures.flops_per_second(tf32 ? "tf32" : "float32"),
            .half_product_flops = figures.flops_per_second("float16")};
}

void Gpu::refuse_child() const {
    if (forks_ != runtime::forks())
        throw DeviceError(
            cat("gpu", ordinal_, " was in use before fork(), and a child cannot use it",
                "\n  fix: start processes with multiprocessing's method \"spawn\", or "
                "use the device in children only"));
}

Context Gpu::context() const {
    refuse_child();
    const std::lock_guard lock(context_mutex_);
    if (!context_)
        driver_.check(driver_.call().retain_context(&context_, device_),
                      "cuDevicePrimaryCtxRetain");
    return context_;
}

Entered Gpu::enter() const {
    const Context ours = context();
    if (Entered::is_inside(ours)) return {};
    std::optional<Context> before = nullptr;
    driver_.check(driver_.call().current_context(&*before), "cuCtxGetCurrent");
    if (*before != ours) driver_.check(driver_.call().set_context(ours), "cuCtxSetCurrent");
    // A thread without a context keeps that of gpu0, as the CUDA runtime would give it.
    if (*before == ours || (!*before && ordinal_ == 0)) before.reset();
    return {driver_.call(), ours, before};
}

Gpu::Memory Gpu::memory() const {
    const Entered entered = enter();
    Memory memory;
    driver_.check(driver_.call().memory_info(&memory.free, &memory.total), "cuMemGetInfo");
    return memory;
}

void Gpu::reach(const Gpu& other) const {
    const Context theirs = other.context();
    const Entered entered = enter();
    const std::lock_guard lock(context_mutex_);
    if (&other == this || !reached_.insert(other.ordinal()).second) return;
    int can = 0;
    // A refusal (because another library asked already, say) costs speed at most.
    if (driver_.call().can_access_peer(&can, device_, other.device_) == 0 && can)
        driver_.call().enable_peer_access(theirs, 0);
}

bool Gpu::holds(const void* address) const {
    const Entered entered = enter();
    const auto place = reinterpret_cast<Address>(address);
    unsigned type = 0;
    int ordinal = -1;
    return driver_.call().pointer_attribute(&type, kMemoryType, place) == 0 && type == kOfDevice &&
           driver_.call().pointer_attribute(&ordinal, kDeviceOrdinal, place) == 0 &&
           ordinal == ordinal_;
}

Address Gpu::allocate(size_t bytes) const {
    const Entered entered = enter();
    Address address = 0;
    const Result result = driver_.call().allocate(&address, bytes);
    if (result == kOutOfMemory) return 0;
    driver_.check(result, "cuMemAlloc");
    return address;
}

void Gpu::free(Address address) const noexcept try {
    const Entered entered = enter();
    driver_.call().free(address);  // the call that caused a failure reports it
} catch (const DeviceError&) {}

Result Gpu::with_room(const std::function<Result()>& call, size_t bytes,
                      const std::string& what_for) const {
    if (const Result result = call(); result != kOutOfMemory) return result;
    runtime::give_up_idle_memory();
    std::string holders;
    for (runtime::Device* device : runtime::all_devices()) {
        if (device->is_host()) continue;
        device->allocator().trim();
        holders += runtime::largest_holders(*device);
    }
    if (const Result result = call(); result != kOutOfMemory) return result;
    const Memory now = memory();
    runtime::OutOfMemory error(bytes, now.total - now.free, runtime::kNoCap);
    error.say_what_for(what_for);
    error.say_who_holds(std::move(holders));
    throw error;
}

void* Gpu::pinned(size_t bytes) const {
    const Entered entered = enter();
    void* memory = nullptr;
    const auto allocate = [&] { return driver_.call().allocate_host(&memory, bytes, 0); };
    driver_.check(with_room(allocate, bytes, "pinned memory of the host"), "cuMemHostAlloc");
    return memory;
}

std::shared_ptr<std::byte[]> Gpu::host_memory(size_t bytes) const {
    return {static_cast<std::byte*>(pinned(bytes)), [this](std::byte* p) {
        try {
            const Entered entered = enter();
            driver_.call().free_host(p);
        } catch (const DeviceError&) {}  // a child of fork() leaves it to the parent
    }};
}

// Holds the image, so that its address is not reused.
struct Gpu::OfImage : LoadedKernel {
    OfImage(const Gpu& gpu, std::shared_ptr<const codegen::GpuImage> from)
        : LoadedKernel(gpu, from->code, from->entry, from->shared_bytes), image(std::move(from)) {}
    const std::shared_ptr<const codegen::GpuImage> image;
};

std::shared_ptr<const LoadedKernel> Gpu::load(
    const std::shared_ptr<const codegen::GpuImage>& image) {
    refuse_child();
    const auto known = [&]() -> std::shared_ptr<const OfImage> {
        const auto found = images_.find(image.get());
        if (found == images_.end()) return nullptr;
        recent_.splice(recent_.begin(), recent_, found->second);
        return recent_.front();
    };
    {
        const std::lock_guard lock(mutex_);
        if (auto loaded = known()) return loaded;
    }
    auto loaded = std::make_shared<const OfImage>(*this, image);
    std::shared_ptr<const OfImage> oldest;  // unloaded without the lock
    const std::lock_guard lock(mutex_);
    if (auto of_another_thread = known()) {
        oldest = std::exchange(loaded, std::move(of_another_thread));
        return loaded;
    }
    recent_.push_front(loaded);
    images_[image.get()] = recent_.begin();
    if (recent_.size() > kKernelsKept) {
        oldest = std::move(recent_.back());
        recent_.pop_back();
        images_.erase(oldest->image.get());
    }
    return loaded;
}

std::shared_ptr<const LoadedKernel> Gpu::load_source(const std::string& text,
                                                     const std::string& entry) {
    refuse_child();
    if (!compiles_) return std::make_shared<const LoadedKernel>(*this);
    const std::string key = cat(entry, "\n", text);
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = sources_.find(key); found != sources_.end()) return found->second;
    }
    auto loaded = std::make_shared<const LoadedKernel>(
        *this, codegen::KernelService::instance().compile_cuda(text, target()), entry, 0);
    const std::lock_guard lock(mutex_);
    return sources_.try_emplace(key, std::move(loaded)).first->second;
}

}  // namespace megjit::cuda
