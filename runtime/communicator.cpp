#include "runtime/communicator.h"

#include <map>
#include <mutex>

#include "runtime/error.h"
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

}  // namespace

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
