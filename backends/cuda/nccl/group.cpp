#include "backends/cuda/nccl/group.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "backends/cuda/nccl/watch.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/host_lock.h"
#include "runtime/host/interrupt.h"
#include "runtime/host/turn.h"

namespace megjit::cuda::nccl {

using runtime::cat;
using runtime::DeviceError;

namespace {

using Clock = Watch::Clock;

constexpr auto kFirstNap = std::chrono::microseconds(10);  // sleep while NCCL takes over its work
constexpr auto kLongestNap = std::chrono::milliseconds(5);
constexpr auto kLook = std::chrono::milliseconds(100);  // between two looks of a waiting thread

// NCCL's kernels run only on real cards; tests bring a library of their own for emulated ones.
const Library* library_for(const Gpu& gpu, std::string* why_not) {
    if (gpu.driver().emulation() && runtime::debug().nccl.empty()) {
        *why_not = "an emulated GPU does not run it";
        return nullptr;
    }
    return Library::find(why_not);
}

// The last work of any group: two operations of NCCL on one GPU at once could wait for each other.
struct Last {
    runtime::Turn turn{
        "an exchange by NCCL"};  // taken before the meeting: all members queue in one order
    CudaStream* stream = nullptr;
    CudaStream::Ticket ticket = 0;
};
Last& last() {
    static Last instance;
    return instance;
}

}  // namespace

const Library* Library::find(std::string* why_not) {
    return runtime::made_of<Library>(runtime::NvidiaLibrary::nccl, why_not);
}

Library::Library(const runtime::FoundLibrary& found) : version(found.version_text) {
#define MEGJIT_X(symbol, name, result, parameters) found.function(#symbol, name);
    MEGJIT_NCCL_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
}

std::string place_of(const Gpu& gpu, std::string* why_not) try {
    const Library* library = library_for(gpu, why_not);
    return library ? cat(library->version, " of ", gpu.identity()) : std::string();
} catch (const DeviceError& error) {
    *why_not = error.what();
    return {};
}

std::shared_ptr<Group> Group::of(Gpu& gpu, const std::string& key,
                                 const runtime::GroupClaims& claims) {
    static std::mutex mutex;
    static auto* groups = new std::map<std::string, std::shared_ptr<Group>>;  // as devices
    auto members = runtime::find_communicator(key, claims);
    const std::lock_guard lock(mutex);
    std::shared_ptr<Group>& group = (*groups)[key];
    if (group && group->members_ == members && &group->gpu_ == &gpu) return group;
    std::string why_not;
    const Library* library = library_for(gpu, &why_not);
    if (!library)
        runtime::user_error({.what = cat("processes cannot exchange tensors on gpu", gpu.ordinal()),
                             .why = cat("NCCL: ", why_not),
                             .fix = "exchange them through the host: x.to('cpu0')"},
                            runtime::ErrorKind::runtime);
    group = std::make_shared<Group>(gpu, *library, std::move(members));
    return group;
}

Group::Group(Gpu& gpu, const Library& library, std::shared_ptr<runtime::Communicator> members)
    : gpu_(gpu), library_(library), members_(std::move(members)) {}

Group::~Group() { end(nullptr); }

void Group::end(const std::exception_ptr& error) try {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    if (!comm_) return;
    const Entered entered = gpu_.enter();
    library_.abort(std::exchange(comm_, nullptr));
} catch (const DeviceError&) {}  // a child of fork() leaves it to the parent

std::unique_lock<std::mutex> Group::alive() const {
    std::unique_lock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return lock;
}

Status Group::state() const {
    const auto lock = alive();
    Status later = 0;
    const Status now = library_.state(comm_, &later);
    return now ? now : later;
}

std::string Group::text_of(Status status) const {
    const std::lock_guard lock(mutex_);
    const char* more = library_.last_error(comm_);
    return cat(library_.error_text(status), more && *more ? cat(": ", more) : "");
}

void Group::check(Status status, const char* what) const {
    if (status) throw DeviceError(cat(what, " failed: ", text_of(status)));
}

void Group::settle(Status status, const char* what, int peer) const {
    const auto begin = Clock::now();
    auto looked = begin;
    for (std::chrono::nanoseconds nap = kFirstNap; status == kInProgress || !status;) {
        status = state();
        if (!status) return;
        if (status != kInProgress) break;
        std::this_thread::sleep_for(nap);
        nap = std::min<std::chrono::nanoseconds>(2 * nap, kLongestNap);
        const auto now = Clock::now();
        if (now - looked < kLook) continue;
        looked = now;
        runtime::check_interrupt();
        if (const std::string lost = members_->lost(peer); !lost.empty()) throw DeviceError(lost);
        if (now - begin > std::chrono::duration<double>(members_->seconds()))
            throw DeviceError(cat(what, " has not ended for ", members_->seconds(), " s"));
    }
    check(status, what);
}

void Group::meet(const Call& call) {
    if (call.peer == runtime::Communicator::kAll) return runtime::meet(*members_, call);
    const runtime::OutgoingBytes send{call.peer};
    const runtime::IncomingBytes receive{call.peer};
    members_->exchange(call, {&send, 1}, {&receive, 1});
}

void Group::connect(const Call& call) {
    UniqueId id;
    const Entered entered = gpu_.enter();
    if (rank() == 0) check(library_.unique_id(&id), "ncclGetUniqueId");
    members_->broadcast({cat("the beginning of NCCL for ", call.what), call.where}, &id, &id,
                        sizeof id, 0);
    Config config;
    Status status = 0;
    {
        const auto lock = alive();
        status = library_.connect(&comm_, size(), id, rank(), &config);
    }
    settle(status, "ncclCommInitRank", call.peer);
    is_connected_ = true;
}

void Group::run(const Call& call, CudaStream& stream, CudaStream& results, const Queue& work) {
    const runtime::WithoutHostLock others_run;
    const runtime::Turn::Held turn = last().turn.take();
    meet(call);
    if (!work) return;
    try {
        if (!is_connected_) connect(call);
        queue(call, stream, results, work);
    } catch (const DeviceError& error) {
        end(std::current_exception());
        members_->give_up(call, error.what(), {});
    } catch (...) {  // such as an interrupt: NCCL's work is half done
        end(std::current_exception());
        try {
            members_->give_up(call, "an error came up", {});
        } catch (const runtime::UserError&) {}
        throw;
    }
}

void Group::queue(const Call& call, CudaStream& stream, CudaStream& results, const Queue& work) {
    Watch& watch = Watch::instance();
    Watch::Flight flight{.group = shared_from_this(), .call = call, .results = &results};
    if (last().stream && last().stream != &stream) stream.wait(*last().stream, last().ticket);
    const Functions& driver = gpu_.driver().call();
    const Entered entered = gpu_.enter();
    flight.begin = watch.event(gpu_), flight.end = watch.event(gpu_);
    stream.run_by([&](StreamHandle handle) {
        gpu_.driver().check(driver.record_event(flight.begin, handle), "cuEventRecord");
        Status status = 0;
        {
            const auto lock = alive();
            status = work(library_, comm_, handle);
        }
        settle(status, "NCCL", call.peer);
        gpu_.driver().check(driver.record_event(flight.end, handle), "cuEventRecord");
    });
    last().stream = &stream;
    last().ticket = stream.record();
    flight.first = &stream == &results ? last().ticket : results.record() + 1;
    watch.add(std::move(flight));
}

}  // namespace megjit::cuda::nccl
