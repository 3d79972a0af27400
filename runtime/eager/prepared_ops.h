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

    uint64_t made() const;  // number of ops made so far

private:
    // Hashes of one residue share eight entries: a new one replaces the least recently used.
    static constexpr size_t kSets = 1024, kWays = 8;
    struct CachedOp {
        uint64_t used = 0;
        PreparedRef op;
    };
    template <class Inputs>
    PreparedRef find_or_make(const OpDef& op, const Attrs& attrs, const Inputs& inputs,
                             Device& device);
    template <class Inputs>
    PreparedRef find(size_t hash, const OpDef& op, const Attrs& attrs, const Inputs& inputs,
                     Device& device);
    void add(PreparedRef made);

    mutable Mutex mutex_{"the prepared ops"};
    std::vector<std::array<CachedOp, kWays>> sets_{kSets};
    uint64_t now_ = 0, made_ = 0;
};

}  // namespace megjit::runtime
