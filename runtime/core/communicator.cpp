#include "runtime/core/communicator.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/core/op.h"
#include "runtime/host/error.h"
#include "runtime/host/host_lock.h"
#include "runtime/host/mutex.h"

namespace megjit::runtime {
namespace {

struct Groups {
    Mutex mutex{"the groups of processes"};
    std::map<std::string, std::shared_ptr<Communicator>> by_key;
};
Groups& groups() {
    static Groups instance;
    return instance;
}

std::atomic<const Device*> the_exchanging_device{nullptr};
std::atomic<size_t> first_bucket{BucketSizes{}.first}, other_buckets{BucketSizes{}.others};

}  // namespace

void meet(Communicator& members, const CommunicatorCall& call) {
    std::vector<OutgoingBytes> sends;
    std::vector<IncomingBytes> receives;
    for (int peer = 0; peer < members.size(); ++peer)
        if (peer != members.rank()) {
            sends.push_back({peer});
            receives.push_back({peer});
        }
    const WithoutHostLock others_run;
    members.exchange(call, sends, receives);
}

void set_exchanging_device(const Device* device) { the_exchanging_device = device; }

const Device* exchanging_device() { return the_exchanging_device; }

void set_bucket_sizes(BucketSizes sizes) {
    first_bucket = sizes.first;
    other_buckets = sizes.others;
}
BucketSizes bucket_sizes() { return {first_bucket, other_buckets}; }

void set_communicator(const std::string& group, std::shared_ptr<Communicator> communicator) {
    const std::lock_guard lock(groups().mutex);
    if (communicator) groups().by_key[group] = std::move(communicator);
    else groups().by_key.erase(group);
}

GroupClaims claims_of(const OpCall& call) {
    const auto claimed = [&](std::string_view name) -> std::optional<int64_t> {
        for (size_t i = 0; i < call.op.attrs.size(); ++i)
            if (call.op.attrs[i].name == name) return std::get<int64_t>(call.attrs[i]);
        return {};
    };
    return {claimed("size"), claimed("peer"), claimed("is_root")};
}

namespace {

void check(const Communicator& group, const std::string& key, const GroupClaims& claims) {
    const auto refuse = [&](std::string claim) {
        user_error({.what = cat("the group of the ranks ", key, " has ", group.size(),
                                " processes, and this is number ", group.rank()),
                    .why = cat("the operation is for ", claim),
                    .fix = "use the functions of megengine.distributed.functional"});
    };
    if (claims.size && *claims.size != group.size()) refuse(cat("a group of ", *claims.size));
    if (claims.peer &&
        (*claims.peer < 0 || *claims.peer >= group.size() || *claims.peer == group.rank()))
        refuse(cat("a message with number ", *claims.peer));
    if (claims.is_root && (*claims.is_root != 0) != (group.rank() == 0))
        refuse(*claims.is_root ? "number 0, the root" : "another one than number 0, the root");
}

}  // namespace

std::shared_ptr<Communicator> find_communicator(const std::string& group,
                                                const GroupClaims& claims) {
    std::shared_ptr<Communicator> found;
    {
        const std::lock_guard lock(groups().mutex);
        if (const auto there = groups().by_key.find(group); there != groups().by_key.end())
            found = there->second;
    }
    if (!found)
        user_error({.what = cat("this process has no group of the ranks ", group),
                    .fix = "call distributed.init_process_group first, and distributed.new_group "
                           "for a part of the world"},
                   ErrorKind::runtime);
    check(*found, group, claims);
    return found;
}

}  // namespace megjit::runtime
