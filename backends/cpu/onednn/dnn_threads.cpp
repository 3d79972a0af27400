#include "backends/cpu/onednn/dnn_threads.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include "runtime/host/mutex.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu::dnn {
namespace {

// An arena for one caller at a time. All its slots are "reserved for masters": oneTBB sends no
// workers there.
struct Crew {
    explicit Crew(int places) : places(places), arena(places, static_cast<unsigned>(places)) {}

    bool take() {
        return !is_taken.load(std::memory_order_relaxed) &&
               !is_taken.exchange(true, std::memory_order_acquire);
    }

    // Runs tasks that the caller's body spawns until the group is released. A helper without a slot
    // would wait for one, and leaves.
    void help() {
        if (helpers.fetch_add(1, std::memory_order_relaxed) + 1 < places)
            arena.execute([this] { group.wait(); });
        helpers.fetch_sub(1, std::memory_order_release);
    }

    const int places;
    tbb::task_arena arena;
    tbb::task_group group;
    std::atomic<int> helpers{0};
    std::atomic<bool> is_taken{false};
};

// Crews stay for ever, for a helper may come late. For each number of threads there are as many as
// there were callers at once.
Crew& find_crew(int places) {
    static auto* const lock = new runtime::Mutex("the crews");
    static auto* const crews = new std::vector<std::unique_ptr<Crew>>;
    const std::lock_guard held(*lock);
    for (const auto& crew : *crews)
        if (crew->places == places && crew->take()) return *crew;
    Crew& made = *crews->emplace_back(std::make_unique<Crew>(places));
    made.take();
    return made;
}

class Lease {
public:
    explicit Lease(int places) {
        if (!last_ || last_->places != places || !last_->take()) last_ = &find_crew(places);
        crew_ = last_;
    }
    ~Lease() { crew_->is_taken.store(false, std::memory_order_release); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Crew& operator*() const { return *crew_; }
    Crew* operator->() const { return crew_; }

private:
    static thread_local Crew* last_;  // the last crew of this thread
    Crew* crew_ = nullptr;
};
thread_local Crew* Lease::last_ = nullptr;

}  // namespace

void with_threads(int threads, const std::function<void()>& body) {
    Lease(threads)->arena.execute(body);
}

void with_helpers(int threads, const std::function<void()>& body) {
    const Lease crew(threads);
    const tbb::task_handle held = crew->group.defer([] {});  // while it lives, helpers stay
    const runtime::HelpScope scope(std::min(threads, runtime::thread_count()),
                                   [](const void* context, int64_t) {
        static_cast<Crew*>(const_cast<void*>(context))->help();
    }, &*crew);
    crew->arena.execute(body);
}

}  // namespace megjit::cpu::dnn
