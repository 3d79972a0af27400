// This process's connections with the others of its world, and the groups that use them
// (runtime/communicator.h).
#include "runtime/communicator.h"

#include <nanobind/stl/vector.h>

#include "python/bindings/handle.h"
#include "runtime/autodiff.h"
#include "runtime/user_line.h"
#ifdef MEGJIT_WITH_SOCKETS
#include "backends/sockets/socket_communicator.h"
#endif

namespace megjit::python {

namespace {

#ifdef MEGJIT_WITH_SOCKETS
class PyWorld {
public:
    PyWorld(int rank, std::vector<int> sockets, double seconds, nb::callable on_failure) {
        const auto tell = std::make_shared<nb::callable>(std::move(on_failure));
        world_ = std::make_shared<sockets::World>(
            rank, std::move(sockets),
            sockets::WorldOptions{seconds, [tell](const std::string& why) -> std::string {
            const nb::gil_scoped_acquire lock;
            try {
                return nb::cast<std::string>((*tell)(why));
            } catch (const std::exception&) { return {}; }  // the failure itself is told
        }});
    }
    ~PyWorld() {
        for (const std::string& key : groups_) runtime::set_communicator(key, nullptr);
    }
    PyWorld(const PyWorld&) = delete;

    void add_group(const std::string& key, std::vector<int> members) {
        runtime::set_communicator(
            key, std::make_shared<sockets::SocketCommunicator>(world_, std::move(members)));
        groups_.push_back(key);
    }
    void set_seconds(double seconds) { world_->set_seconds(seconds); }
    void close() { world_->close(); }

private:
    std::shared_ptr<sockets::World> world_;
    std::vector<std::string> groups_;
};
#endif

// Nobody goes on before all of the group are here.
void barrier(const std::string& group) {
    const auto members = runtime::find_communicator(group);
    const runtime::CommunicatorCall call{"group_barrier", runtime::user_line()};
    std::vector<runtime::OutgoingBytes> sends;
    std::vector<runtime::IncomingBytes> receives;
    for (int peer = 0; peer < members->size(); ++peer)
        if (peer != members->rank()) {
            sends.push_back({peer});
            receives.push_back({peer});
        }
    const runtime::WithoutHostLock others_run;
    members->exchange(call, sends, receives);
}

}  // namespace

void bind_communicator(nb::module_& m) {
#ifdef MEGJIT_WITH_SOCKETS
    nb::class_<PyWorld>(m, "World", "Connected sockets to the other processes, by rank.")
        .def(nb::init<int, std::vector<int>, double, nb::callable>(), nb::arg("rank"),
             nb::arg("sockets"), nb::arg("seconds"), nb::arg("on_failure"))
        .def("add_group", &PyWorld::add_group, nb::arg("key"), nb::arg("members"))
        .def("set_seconds", &PyWorld::set_seconds, nb::arg("seconds"))
        .def("close", &PyWorld::close);
#endif
    m.def("group_barrier", &barrier, nb::arg("group"),
          "Waits until all processes of the group are here.");
    m.def("is_tracked", [](const Handle& tensor) {
        for (const runtime::TapeRef& tape : runtime::context().tapes)
            if (tape->tracks(*tensor.value())) return true;
        return false;
    }, nb::arg("tensor"), "Whether an open tape differentiates what is computed from it.");
    m.def("track", [](const Handle& tensor) {
        for (const runtime::TapeRef& tape : runtime::context().tapes) tape->watch(tensor.value());
    }, nb::arg("tensor"), "Lets all open tapes differentiate what is computed from it.");
}

}  // namespace megjit::python
