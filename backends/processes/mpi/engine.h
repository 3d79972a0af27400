// backends/processes/mpi/ -- MPI as the engine of a World's groups. In: the library that mpi4py has
// opened, and its handles as numbers. Knows no mpi.h: MPICH's handles are ints and Open MPI's are
// pointers, and either travels in one register.
//
// backends/processes/mpi/engine.h -- Engine: functions of the library, types, operations, and a
// communicator for each group.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/communicator.h"

namespace megjit::processes::mpi {

using Handle = uint64_t;  // where a handle is an int, the upper half is ignored

// (member, name, parameters); all return an error code, 0 for success.
#define MEGJIT_MPI_FUNCTIONS(X) \
    X(test, "MPI_Test", (Handle * request, int* is_done, void* status)) \
    X(error_text, "MPI_Error_string", (int code, char* text, int* length)) \
    X(group_of, "MPI_Comm_group", (Handle comm, Handle * group)) \
    X(part_of, "MPI_Group_incl", (Handle group, int count, const int* ranks, Handle* part)) \
    X(free_group, "MPI_Group_free", (Handle * group)) \
    X(create, "MPI_Comm_create_group", (Handle comm, Handle group, int tag, Handle* created)) \
    X(create_op, "MPI_Op_create", \
      (void (*function)(void*, void*, int*, Handle*), int is_commutative, Handle* op)) \
    X(all_reduce, "MPI_Iallreduce", \
      (const void* in, void* out, int count, Handle type, Handle op, Handle comm, \
       Handle* request)) \
    X(reduce, "MPI_Ireduce", \
      (const void* in, void* out, int count, Handle type, Handle op, int root, Handle comm, \
       Handle* request)) \
    X(reduce_scatter, "MPI_Ireduce_scatter_block", \
      (const void* in, void* out, int count, Handle type, Handle op, Handle comm, \
       Handle* request)) \
    X(all_gather, "MPI_Iallgather", \
      (const void* in, int sends, Handle sent, void* out, int receives, Handle received, \
       Handle comm, Handle* request)) \
    X(broadcast, "MPI_Ibcast", \
      (void* data, int count, Handle type, int root, Handle comm, Handle* request)) \
    X(send, "MPI_Isend", \
      (const void* data, int count, Handle type, int to, int tag, Handle comm, Handle* request)) \
    X(receive, "MPI_Irecv", \
      (void* data, int count, Handle type, int from, int tag, Handle comm, Handle* request))

class Engine {
public:
    // `library`: a file that is open already, which has MPI's functions or needs libraries that
    // have them. `world`: a communicator of all processes in the order of our ranks. `constants`:
    // handles by their names in MPI, "FLOAT", "SUM", and the number "IN_PLACE". DeviceError where
    // one is missing.
    Engine(const std::string& library, Handle world, std::map<std::string, Handle> constants);

    // Returns the communicator of these ranks of the world; the first time, all of them must ask at
    // once.
    Handle communicator(const std::vector<int>& ranks);
    Handle type_of(runtime::DType dtype) const;
    // MPI's own operation where it has the meaning of ours for this type, else ours.
    Handle op_of(runtime::DType dtype, runtime::Combine combine);
    Handle bytes() const { return constants_.at("BYTE"); }
    const void* in_place() const {
        return reinterpret_cast<const void*>(constants_.at("IN_PLACE"));
    }

    bool is_done(Handle& request) const;
    // DeviceError, with MPI's words, unless the code is 0.
    void check(int code) const;

#define MEGJIT_X(member, name, parameters) int(*member) parameters = nullptr;
    MEGJIT_MPI_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X

private:
    const Handle world_;
    const std::map<std::string, Handle> constants_;
    std::map<std::vector<int>, Handle> communicators_;
    std::map<std::pair<runtime::DType, runtime::Combine>, Handle> ops_;
};

}  // namespace megjit::processes::mpi
