#include "runtime/core/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <mutex>

#include "runtime/core/idle_memory.h"
#include "runtime/core/rematerializer.h"
#include "runtime/host/mutex.h"
#include "runtime/host/size_text.h"

namespace megjit::runtime {
namespace {

struct DeviceRegistry {
    Mutex mutex{"the devices"};
    std::vector<std::unique_ptr<Device>> devices;
    std::function<std::string()> discover;
    std::string why_none;
    std::once_flag discovered;
};
DeviceRegistry& device_registry() {
    // Never destroyed: tensors that outlive main() still return their memory.
    static auto* made = new DeviceRegistry;
    return *made;
}

// The three parts of a name like "gpu1:2".
struct PlaceName {
    std::string kind;
    int number = 0, stream = 0;
    std::string written;  // the program's text without the stream: "xpux", "cpu1"
    std::string text() const { return cat(kind, number, ":", stream); }
    bool is_host() const { return kind == "cpu" || kind == "multithread"; }
    // The device's name. CPUs that the program names differently are different.
    std::string device() const { return is_host() ? cat(written, ":", stream) : text(); }
};

// Removes a number, "x" or "default" from the front of `rest`. The words, and no number at all,
// count as 0.
std::optional<int> take_number(std::string_view& rest) {
    for (std::string_view word : {"default", "x"})
        if (rest.starts_with(word)) {
            rest.remove_prefix(word.size());
            return 0;
        }
    if (rest.empty() || rest.front() == ':') return 0;
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || number < 0) return {};
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    return number;
}

bool has_gpu(const std::vector<std::unique_ptr<Device>>& devices) {
    return std::ranges::any_of(
        devices, [](const auto& device) { return device->name().starts_with("gpu"); });
}

PlaceName parse(std::string_view name, const std::vector<std::unique_ptr<Device>>& devices) {
    constexpr std::string_view kKinds[] = {"cpu",  "gpu",       "xpu",   "cuda",
                                           "rocm", "cambricon", "atlas", "multithread"};
    for (std::string_view kind : kKinds) {
        if (!name.starts_with(kind)) continue;
        std::string_view rest = name.substr(kind.size());
        std::vector<std::optional<int>> numbers{take_number(rest)};
        while (numbers.back() && rest.starts_with(':') && numbers.size() < 3) {
            rest.remove_prefix(1);
            numbers.push_back(rest.empty() ? std::nullopt : take_number(rest));
        }
        if (!numbers.back() || !rest.empty()) break;
        const bool is_gpu = kind == "cuda" || (kind == "xpu" && has_gpu(devices));
        const bool is_first = name.substr(kind.size()).starts_with('x');
        return {.kind = std::string(is_gpu          ? "gpu"
                                    : kind == "xpu" ? "cpu"
                                                    : kind),
                .number = *numbers[0],
                .stream = numbers.size() > 1 ? *numbers[1] : 0,
                .written = cat(kind, is_first ? "x" : std::to_string(*numbers[0]))};
    }
    user_error({.what = cat("device: '", name, "' is not a device name"),
                .fix = "write for example 'cpu0', 'gpu0', 'xpux'"},
               ErrorKind::value);
}

// Names of guests end with a library's name. Needs the registry's mutex.
Device* guest_named(std::string_view name) {
    if (name.empty() || !std::isalpha(static_cast<unsigned char>(name.back()))) return nullptr;
    for (const auto& device : device_registry().devices)
        if (device->name() == name) return device.get();
    return nullptr;
}

bool names_host(std::string_view name) {
    return name.starts_with("cpu") || name.starts_with("multithread");
}

[[noreturn]] void refuse_missing(const PlaceName& place, std::string_view name,
                                 const std::vector<std::unique_ptr<Device>>& devices) {
    if (place.kind != "gpu")
        user_error({.what = cat("device: ", name, " is not supported by this build"),
                    .fix = "use a cpu or a gpu"},
                   ErrorKind::runtime);
    const auto gpus = std::ranges::count_if(devices, [](const auto& device) {
        return device->name().starts_with("gpu") && device->name().ends_with(":0");
    });
    user_error({.what = cat("device: ", name, " does not exist; this machine has ", gpus,
                            gpus == 1 ? " GPU" : " GPUs"),
                .why = device_registry().why_none},
               ErrorKind::runtime);
}

}  // namespace

void register_device(std::unique_ptr<Device> device) {
    const std::lock_guard lock(device_registry().mutex);
    device_registry().devices.push_back(std::move(device));
}

Device& host_device() {
    static Device& host = *[] {
        const std::lock_guard lock(device_registry().mutex);
        if (device_registry().devices.empty()) throw InternalError("no device is registered");
        return device_registry().devices.front().get();
    }();
    return host;
}

std::vector<Device*> all_devices() {
    const std::lock_guard lock(device_registry().mutex);
    std::vector<Device*> list;
    for (const auto& device : device_registry().devices) list.push_back(device.get());
    return list;
}

void discover_later(std::function<std::string()> discover) {
    device_registry().discover = std::move(discover);
}

void discover_devices() {
    std::call_once(device_registry().discovered, [] {
        if (device_registry().discover) device_registry().why_none = device_registry().discover();
    });
}

std::string physical_name(std::string_view name) {
    if (!names_host(name)) discover_devices();
    const std::lock_guard lock(device_registry().mutex);
    if (guest_named(name)) return std::string(name);
    return parse(name, device_registry().devices).text();
}

Device& find_device(std::string_view name) {
    if (!names_host(name)) discover_devices();
    std::unique_ptr<Device> made;  // made without the lock; the device is then looked for again
    for (;;) {
        Device* sibling = nullptr;
        PlaceName place;
        {
            const std::lock_guard lock(device_registry().mutex);
            auto& devices = device_registry().devices;
            if (Device* guest = guest_named(name)) return *guest;
            place = parse(name, devices);
            for (const auto& device : devices) {
                if (device->name() == place.device()) return *device;
                if (place.is_host() ? device->is_host()
                                    : device->name() == cat(place.kind, place.number, ":0"))
                    sibling = device.get();
            }
            if (!sibling) refuse_missing(place, name, devices);
            if (made) return *devices.emplace_back(std::move(made));
        }
        made = sibling->sibling(place.device());
    }
}

namespace {

struct IdleMemories {
    Mutex mutex{"idle memory"};
    std::vector<std::weak_ptr<IdleMemory>> list;
};
IdleMemories& idle_memories() {
    static auto* made = new IdleMemories;  // never destroyed: as devices
    return *made;
}

}  // namespace

void register_idle_memory(const std::shared_ptr<IdleMemory>& memory) {
    IdleMemories& all = idle_memories();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.list, [](const auto& each) { return each.expired(); });
    all.list.push_back(memory);
}

// A line has two blocks, for a message has at most six lines.
std::string largest_holders(Device& device) {
    constexpr size_t kTold = 5;
    const std::vector<LiveBlock> blocks = device.live().largest(kTold);
    std::string text;
    for (size_t i = 0; i < blocks.size(); ++i) {
        const LiveBlock& block = blocks[i];
        text += i == 0 ? "" : i % 2 ? "; " : ";\n       ";
        text += cat(size_text(block.bytes), " ", block.what);
        if (!block.where.empty()) text += " " + block.where;
    }
    return text;
}

bool give_up_idle_memory() noexcept try {
    std::vector<std::shared_ptr<IdleMemory>> all;  // the lock is not held while these are asked
    {
        const std::lock_guard lock(idle_memories().mutex);
        for (const auto& each : idle_memories().list)
            if (auto memory = each.lock()) all.push_back(std::move(memory));
    }
    return std::ranges::count_if(all, [](const auto& memory) { return memory->give_up(); }) > 0;
} catch (const std::bad_alloc&) { return false; }

void* allocate(Device& device, size_t bytes) {
    const auto allocate = [&] {
        if (Rematerializer::is_on()) [[unlikely]]
            return Rematerializer::instance().allocate(device, bytes);
        return device.allocator().allocate(bytes);
    };
    try {
        try {
            return allocate();
        } catch (const OutOfMemory& error) {
            if (error.is_final || !give_up_idle_memory()) throw;
            return allocate();
        }
    } catch (OutOfMemory& error) {
        error.say_who_holds(largest_holders(device));
        throw;
    }
}

}  // namespace megjit::runtime
