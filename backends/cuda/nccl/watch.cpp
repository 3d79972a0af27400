#include "backends/cuda/nccl/watch.h"

#include <future>
#include <set>
#include <utility>

#include "runtime/host/error.h"
#include "runtime/host/quiet_thread.h"

namespace megjit::cuda::nccl {

using runtime::cat;

namespace {

constexpr auto kNap = std::chrono::milliseconds(20);
// A member that has done its part may leave while our operation still runs.
constexpr auto kFarewell = std::chrono::seconds(1);
// How long the others may take to hear of a failure, and to say what they know, before the GPU is
// freed: they may need Python's lock, whose holder may be waiting for the GPU.
constexpr auto kTold = std::chrono::seconds(2);
constexpr unsigned kWithoutTiming = 2;

std::exception_ptr told(const std::shared_ptr<runtime::Communicator>& members, const Call& call,
                        const std::string& what, const std::string& why) {
    auto answer = std::make_shared<std::promise<std::exception_ptr>>();
    std::future<std::exception_ptr> error = answer->get_future();
    runtime::quiet_thread([=] {
        try {
            members->give_up(call, what, why);
        } catch (...) { answer->set_value(std::current_exception()); }
    }).detach();
    if (error.wait_for(kTold) == std::future_status::ready) return error.get();
    return std::make_exception_ptr(
        runtime::UserError(runtime::ErrorKind::runtime,
                           {.what = cat(what, " in ", call.what), .why = why, .at = call.where}));
}

}  // namespace

Watch& Watch::instance() {
    static auto* one = new Watch;  // never destroyed, as devices
    return *one;
}

Event Watch::event(const Gpu& gpu) {
    {
        const std::lock_guard lock(mutex_);
        std::vector<Event>& spare = spare_[&gpu];
        if (!spare.empty()) {
            const Event event = spare.back();
            spare.pop_back();
            return event;
        }
    }
    Event event = nullptr;
    gpu.driver().check(gpu.driver().call().create_event(&event, kWithoutTiming), "cuEventCreate");
    return event;
}

void Watch::add(Flight flight) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = runtime::quiet_thread([this] { run(); });
    flights_.push_back(std::move(flight));
    added_.notify_one();
}

void Watch::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        added_.wait(lock, [&] { return !flights_.empty(); });
        Flight& first = flights_.front();
        if (is_past(first, first.end)) {
            std::vector<Event>& spare = spare_[&first.group->gpu_];
            spare.insert(spare.end(), {first.begin, first.end});
            flights_.pop_front();
            continue;
        }
        std::string why;
        if (std::string what = fault_of(first, &why); !what.empty()) {
            std::deque<Flight> lost = std::exchange(flights_, {});
            lock.unlock();
            fail(std::move(lost), std::move(what), std::move(why));
            lock.lock();
            continue;
        }
        lock.unlock();
        std::this_thread::sleep_for(kNap);
        lock.lock();
    }
}

// True also for a GPU that does no more work: its stream reports that. At exit the driver may shut
// down before this thread ends.
bool Watch::is_past(const Flight& flight, Event event) const try {
    constexpr Result kNotReady = 600;
    const Entered entered = flight.group->gpu_.enter();
    return flight.group->gpu_.driver().call().query_event(event) != kNotReady;
} catch (const runtime::DeviceError&) { return true; }

std::string Watch::fault_of(Flight& flight, std::string* why) const {
    const Group& group = *flight.group;
    const auto now = Clock::now();
    try {
        if (const Status status = group.state(); status && status != kInProgress)
            return cat("NCCL failed: ", group.text_of(status));
    } catch (const std::exception& error) {  // a later call has ended the group
        *why = error.what();
        return "NCCL was ended";
    }
    if (const std::string lost = group.members_->lost(flight.call.peer); !lost.empty()) {
        if (flight.lost_since == Clock::time_point()) flight.lost_since = now;
        if (now - flight.lost_since > kFarewell) return lost;
    }
    if (!is_past(flight, flight.begin)) return {};
    if (flight.runs_since == Clock::time_point()) flight.runs_since = now;
    const double seconds = group.members_->seconds();
    if (now - flight.runs_since <= std::chrono::duration<double>(seconds)) return {};
    *why = "all members have begun it";
    return cat("NCCL has not ended for ", seconds, " s");
}

void Watch::fail(std::deque<Flight> flights, std::string what, std::string why) {
    const Flight& first = flights.front();
    const std::exception_ptr error = told(first.group->members_, first.call, what, why);
    std::set<CudaStream*> streams;
    for (const Flight& flight : flights)
        if (streams.insert(flight.results).second) flight.results->lose(flight.first, error);
    std::set<Group*> groups;
    for (const Flight& flight : flights)
        if (groups.insert(flight.group.get()).second) flight.group->end(error);
}

}  // namespace megjit::cuda::nccl
