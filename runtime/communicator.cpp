#include "runtime/communicator.h"

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/error.h"
#include "runtime/host_lock.h"
#include "runtime/leaf_mutex.h"

namespace megjit::runtime {
namespace {

struct Groups {
    LeafMutex mutex;
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

std::shared_ptr<Communicator> find_communicator(const std::string& group) {
    {
        const std::lock_guard lock(groups().mutex);
        const auto found = groups().by_key.find(group);
        if (found != groups().by_key.end()) return found->second;
    }
    user_error({.what = cat("this process has no group of the ranks ", group),
                .fix = "call distributed.init_process_group first, and distributed.new_group for a "
                       "part of the world"},
               ErrorKind::runtime);
}

}  // namespace megjit::runtime
