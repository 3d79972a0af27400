// runtime/eager/prepared_ops.h -- PreparedOps: ops that are ready to run, for eager calls, programs
// and plans alike. An op is prepared once for its attributes, types and device, however many
// layers, shapes or threads call it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/op.h"
#include "runtime/core/tensor.h"
#include "runtime/host/mutex.h"
#include "runtime/host/product_rules.h"

namespace megjit::runtime {

struct PreparedOp {
    size_t hash = 0;
    const OpDef* op = nullptr;
    Device* device = nullptr;
    // The number of threads that the executable was made for: oneDNN's also run with other numbers,
    // but in as many parts.
    int threads = 0;
    ProductRules rules = {};
    Attrs attrs = {};
    std::vector<Type> inputs = {}, outputs = {};
    std::shared_ptr<const Executable> executable = {};  // views have none
    bool takes_a_while = false;  // a run keeps the calling thread busy for a while
    bool is_ordered = false;  // other processes are told the user's line
};
using PreparedRef = std::shared_ptr<const PreparedOp>;

// While one is open in a thread, what of_program() gives to the thread stays ready: passes and
// plans of one program ask about the same ops several times.
class Planning {
public:
    Planning();
    ~Planning();
    Planning(const Planning&) = delete;
    Planning& operator=(const Planning&) = delete;

private:
    friend class PreparedOps;
    std::vector<PreparedRef> held_;
    const bool is_outermost_;
};

// Every call is safe from any thread. Errors of an op's preparation are not remembered.
class PreparedOps {
public:
    static PreparedOps& instance();

    // Looks an op up by the types of its tensors, in an eager call.
    PreparedRef get(const OpDef& op, const Attrs& attrs, std::span<const TensorRef> inputs,
                    Device& device);
    PreparedRef get(const OpCall& call, Device& device);
    // Prepares a graph's op, whose results may have another layout than infer() says.
    std::shared_ptr<const Executable> executable(const OpCall& call, std::span<const Type> outputs,
                                                 Device& device);
    // The same for a program, which holds what it runs: an op that no program holds and no eager
    // call has asked for goes, with a library's code for its sizes.
    std::shared_ptr<const Executable> of_program(const OpCall& call, std::span<const Type> outputs,
                                                 Device& device);

    uint64_t made() const;  // number of ops made so far

private:
    // Hashes of one residue share eight entries: a new one replaces the least recently used.
    static constexpr size_t kSets = 1024, kWays = 8;
    struct CachedOp {
        uint64_t used = 0;
        size_t hash = 0;
        PreparedRef kept;  // null: programs hold it
        std::weak_ptr<const PreparedOp> op;
    };
    template <class Inputs>
    PreparedRef find(size_t hash, const OpDef& op, const Attrs& attrs, const Inputs& inputs,
                     Device& device, bool keeps);
    template <class Inputs>
    PreparedRef find_or_make(size_t hash, const OpDef& op, const Attrs& attrs, const Inputs& inputs,
                             Device& device, bool keeps);
    template <class Inputs>
    PreparedRef kept(const OpDef& op, const Attrs& attrs, const Inputs& inputs, Device& device);
    void add(const PreparedRef& made, bool keeps);

    mutable Mutex mutex_{"the prepared ops"};
    std::vector<std::array<CachedOp, kWays>> sets_{kSets};
    uint64_t now_ = 0, made_ = 0;
};

}  // namespace megjit::runtime
