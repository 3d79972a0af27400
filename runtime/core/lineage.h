// runtime/core/lineage.h -- how values came to be: the rematerializer's books. The rematerializer's
// lock guards all of them.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/core/device.h"
#include "runtime/core/eviction.h"
#include "runtime/core/rematerializer.h"

namespace megjit::runtime {

class Lineage;

// How a value was computed. The lineages of its results own this record.
struct LineageCall : RefCounted {
    struct Operand {
        Ref<Lineage> lineage;
        Ref<Storage> small;  // a small operand is kept whole, and has no lineage
    };
    const OpDef* op = nullptr;
    Attrs attrs;
    std::vector<Type> inputs, outputs;
    std::shared_ptr<const Executable> executable;
    std::vector<Operand> operands;
    std::vector<Lineage*> results;  // null: small, or never computed again

    ~LineageCall();
    void drop() const {
        if (release()) delete this;
    }
    void forget(const Lineage& result);
};

// A value that can be computed again, or from which others are computed. Its storage and the calls
// that read it own this record.
class Lineage : public RefCounted {
public:
    Storage* storage = nullptr;  // null when no tensor holds the value any more
    Device* device = nullptr;
    void* data = nullptr;  // null when evicted
    size_t bytes = 0;
    Ref<LineageCall> call;  // null: a source
    std::vector<const LineageCall*> readers;
    EvictionPolicy::Id id = 0;
    int pins = 0;
    int depth = 0;  // length of the longest chain of calls that leads to the value
    uint64_t orphaned = 0;  // its key among the orphans
    LiveBlock listing;  // what the device's list said of the value when it was evicted
    Lineage* next_unused = nullptr;

    void drop() const {
        if (release()) Rematerializer::instance().on_unused(const_cast<Lineage&>(*this));
    }
};

inline LineageCall::~LineageCall() {
    for (const Operand& operand : operands) {
        if (!operand.lineage) continue;
        std::vector<const LineageCall*>& readers = operand.lineage->readers;
        *std::find(readers.begin(), readers.end(), this) = readers.back();
        readers.pop_back();
    }
}

inline void LineageCall::forget(const Lineage& result) {
    std::replace(results.begin(), results.end(), const_cast<Lineage*>(&result),
                 static_cast<Lineage*>(nullptr));
}

}  // namespace megjit::runtime
