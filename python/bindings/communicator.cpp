// This process's connections with the others of its world, and the groups that use them
// (runtime/core/communicator.h).
#include "runtime/core/communicator.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "python/bindings/handle.h"
#include "runtime/eager/autodiff.h"
#include "runtime/eager/gradient_sums.h"
#include "runtime/host/error.h"
#include "runtime/host/host_lock.h"
#include "runtime/host/mutex.h"
#include "runtime/host/user_line.h"
#ifdef MEGJIT_WITH_CUDA
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/kernels/collective.h"
#include "backends/cuda/nccl/group.h"
#endif
#ifdef MEGJIT_WITH_PROCESSES
#include "backends/processes/gloo/gloo_communicator.h"
#include "backends/processes/hierarchical.h"
#include "backends/processes/mpi/mpi_communicator.h"
#endif

namespace megjit::python {

namespace {

#ifdef MEGJIT_WITH_PROCESSES
class PyWorld {
public:
    PyWorld(int rank, std::vector<int> sockets, double seconds, nb::callable on_failure,
            bool reads) {
        if (rank < 0 || static_cast<size_t>(rank) >= sockets.size())
            runtime::user_error({.what = runtime::cat("rank ", rank, " in a world of ",
                                                      sockets.size(), " processes")});
        // The last holder of the world may be a thread of ours.
        const std::shared_ptr<nb::callable> tell(new nb::callable(std::move(on_failure)),
                                                 [](nb::callable* callable) {
            if (!nb::is_alive()) return;
            const nb::gil_scoped_acquire lock;
            delete callable;
        });
        world_ = std::make_shared<processes::World>(
            rank, std::move(sockets),
            processes::WorldOptions{seconds, reads, [tell](const std::string& why) -> std::string {
            if (!PyGILState_Check()) runtime::Mutex::refuse_wait("the host's lock");
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
        for (const int member : members)
            if (member < 0 || member >= world_->size())
                runtime::user_error(
                    {.what = runtime::cat("a group with rank ", member, " in a world of ",
                                          world_->size(), " processes")});
        if (std::ranges::find(members, world_->rank()) == members.end())
            runtime::user_error(
                {.what = runtime::cat("rank ", world_->rank(), " is not in the group ", key)});
        runtime::set_communicator(key, made(members));
        groups_.push_back(key);
    }
    void use_gloo(const std::string& plugin) {
        gloo_ = std::make_shared<processes::gloo::Engine>(plugin, world_->address());
    }
    void use_machines(std::vector<int> machines) { machines_ = std::move(machines); }
    void use_mpi(const std::string& library, processes::mpi::Handle world,
                 std::map<std::string, processes::mpi::Handle> constants) {
        mpi_ = std::make_shared<processes::mpi::Engine>(library, world, std::move(constants));
    }
    // What each process says of itself, by rank.
    std::vector<std::string> gather(const std::string& text) {
        constexpr size_t kMost = 512;
        const auto size = static_cast<size_t>(world_->size());
        std::vector<int> members(size);
        std::iota(members.begin(), members.end(), 0);
        processes::SocketCommunicator all(world_, std::move(members));
        std::string own = text, texts(size * kMost, '\0');
        own.resize(kMost);
        const runtime::WithoutHostLock others_run;
        all.all_gather({"the exchange of places", runtime::user_line()}, own.data(), texts.data(),
                       kMost);
        std::vector<std::string> by_rank;
        for (size_t rank = 0; rank < size; ++rank)
            by_rank.emplace_back(texts.substr(rank * kMost, kMost).c_str());
        return by_rank;
    }
    void set_seconds(double seconds) { world_->set_seconds(seconds); }
    void hold_sends(bool is_on, const std::vector<int>& peers) {
        const runtime::WithoutHostLock others_run;
        processes::hold_sends(*world_, is_on, peers);
    }
    void close() { world_->close(); }
    void end() { world_->end(); }

private:
    std::shared_ptr<runtime::Communicator> made(const std::vector<int>& members) const {
        using namespace processes;
        if (mpi_) return std::make_shared<mpi::MpiCommunicator>(mpi_, world_, members);
        if (gloo_) return flat_or_not<gloo::GlooCommunicator>(members, gloo_);
        return flat_or_not<SocketCommunicator>(members);
    }
    template <class Flat, class... More>
    std::shared_ptr<runtime::Communicator> flat_or_not(const std::vector<int>& members,
                                                       const More&... more) const {
        std::set<int> machines;
        if (!machines_.empty())
            for (const int rank : members) machines.insert(machines_[static_cast<size_t>(rank)]);
        if (machines.size() < 2 || machines.size() == members.size())
            return std::make_shared<Flat>(world_, members, more...);
        return std::make_shared<processes::Hierarchical<Flat>>(machines_, world_, members, more...);
    }

    std::shared_ptr<processes::World> world_;
    std::shared_ptr<processes::mpi::Engine> mpi_;
    std::shared_ptr<processes::gloo::Engine> gloo_;
    std::vector<int> machines_;  // by rank; empty: groups are flat
    std::vector<std::string> groups_;
};
#endif

// Nobody goes on before all of the group are here.
void barrier(const std::string& group) {
    runtime::meet(*runtime::find_communicator(group), {"group_barrier", runtime::user_line()});
}

// What this process needs for NCCL on its GPU, or why it cannot use NCCL: one of the two is empty.
std::pair<std::string, std::string> nccl_place([[maybe_unused]] const std::string& device) {
    std::string place, why_not = "this build has no GPUs";
#ifdef MEGJIT_WITH_CUDA
    if (auto* gpu = dynamic_cast<cuda::CudaDevice*>(&device_named(device)))
        place = cuda::nccl::place_of(gpu->gpu(), &why_not);
    else why_not = "it is no GPU";
#endif
    return {place, place.empty() ? why_not : ""};
}

bool exchanged_by_nccl([[maybe_unused]] const std::string& op,
                       [[maybe_unused]] const std::string& dtype) {
#ifdef MEGJIT_WITH_CUDA
    return cuda::exchanged_by_nccl(op, runtime::dtype_from_name(dtype));
#else
    return false;
#endif
}

}  // namespace

void bind_communicator(nb::module_& m) {
#ifdef MEGJIT_WITH_PROCESSES
    nb::class_<PyWorld>(m, "World", "Connected sockets to the other processes, by rank.")
        .def(nb::init<int, std::vector<int>, double, nb::callable, bool>(), nb::arg("rank"),
             nb::arg("sockets"), nb::arg("seconds"), nb::arg("on_failure"), nb::arg("reads"))
        .def(
            "use_mpi", &PyWorld::use_mpi, nb::arg("library"), nb::arg("world"),
            nb::arg("constants"),
            "Groups that are made from here on move tensors by MPI: by the file that has it, and handles of it.")
        .def(
            "use_gloo", &PyWorld::use_gloo, nb::arg("plugin"),
            "Groups that are made from here on move tensors by Gloo: by the file of the plug-in that links it.")
        .def(
            "use_machines", &PyWorld::use_machines, nb::arg("machines"),
            "Groups that are made from here on add up within a machine first; a number for that of each rank.")
        .def("add_group", &PyWorld::add_group, nb::arg("key"), nb::arg("members"))
        .def("gather", &PyWorld::gather, nb::arg("text"), "What each process gave, by rank.")
        .def("set_seconds", &PyWorld::set_seconds, nb::arg("seconds"))
        .def(
            "hold_sends", &PyWorld::hold_sends, nb::arg("is_on"), nb::arg("peers"),
            "Whether sends wait for the next message that is received, to go beside it. Those that wait for `peers`, or all, are sent.")
        .def("close", &PyWorld::close, "Of a forked child too, whose parent goes on.")
        .def("end", &PyWorld::end, "Also while another thread exchanges.");
#endif
    m.def("set_bucket_sizes", [](size_t first, size_t others) {
        runtime::set_bucket_sizes({first, others});
    }, nb::arg("first"), nb::arg("others"), "Bytes of the buckets of gradients.");
    m.def("bucket_sizes", [] {
        const runtime::BucketSizes sizes = runtime::bucket_sizes();
        return std::pair(sizes.first, sizes.others);
    }, "(first, others), as they were set.");
    m.def("gradient_buckets",
          [](const std::vector<int64_t>& bytes, size_t first, size_t others) {
        std::vector<runtime::WantedSum> wanted;
        for (const int64_t each : bytes)
            wanted.push_back({.type = {DType::u8, {each}}, .group = "any"});
        std::vector<std::vector<size_t>> members;
        for (const auto& bucket : runtime::gradient_buckets(wanted, {first, others}))
            members.push_back(bucket.members);
        return members;
    }, nb::arg("bytes"), nb::arg("first"), nb::arg("others"),
          "Which gradients travel together, in the order in which backward has them.");
    m.def("set_exchanging_device",
          [](const std::optional<std::string>& device) {
        runtime::set_exchanging_device(device ? &device_named(*device) : nullptr);
    }, nb::arg("device").none(),
          "The GPU whose tensors go by NCCL; None: all go through the host.");
    m.def("group_barrier", &barrier, nb::arg("group"),
          "Waits until all processes of the group are here.");
    m.def("nccl_place", &nccl_place, nb::arg("device"),
          "(version and GPU, why not): what all processes of a group must have for NCCL.");
    m.def("exchanged_by_nccl", &exchanged_by_nccl, nb::arg("op"), nb::arg("dtype"),
          "Whether NCCL serves the op on tensors of the dtype.");
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
