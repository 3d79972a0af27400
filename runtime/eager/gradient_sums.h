// runtime/eager/gradient_sums.h -- GradientSums: what a backward pass does with gradients that are
// to be added up over the processes of a group: it exchanges them in buckets, each while the rest
// of backward goes on.
//
// Which gradients share a bucket follows from the types of what is differentiated and from the
// order in which the tape completes them, and from nothing else. All processes run one program:
// they make the same buckets, whether they run the pass, record it or replay it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/core/communicator.h"
#include "runtime/core/side_stream.h"
#include "runtime/eager/dispatch.h"

namespace megjit::runtime {

struct WantedSum {
    Type type = {};
    Device* device = nullptr;
    std::string group = {};  // the group's key; "": the gradient stays as it is
    size_t left = 0;  // entries that the tape has not run yet when the gradient is complete
};

// Positions in the list of wanted gradients, and `left` of the one that completes last.
struct GradientBucket {
    std::vector<size_t> members = {};
    size_t left = 0;
};
// Buckets in the order in which they travel.
std::vector<GradientBucket> gradient_buckets(std::span<const WantedSum> wanted, BucketSizes sizes);

class GradientSums {
public:
    explicit GradientSums(std::vector<WantedSum> wanted);
    ~GradientSums();
    GradientSums(const GradientSums&) = delete;

    // Takes the gradient at this position, or null where there is none. Called once for each.
    using Take = std::function<TensorRef(size_t)>;
    // The tape has `left` entries left: begins the buckets that are complete.
    void begin(size_t left, const Take& take);
    // All buckets are begun: waits for them, and puts the sums in their places.
    void finish(Tensors& gradients);

private:
    struct WaitingGradient {
        size_t position = 0;
        TensorRef gradient = {};
        Shape shape = {};
    };
    struct Exchange {
        std::vector<WaitingGradient> parts = {};
        Device* device = nullptr;
        std::shared_ptr<BesideWork> work = {};
        Tensors results = {};  // the sums side by side, and the operand that orders exchanges
    };
    void exchange(std::vector<WaitingGradient> parts);
    static void put(Exchange& exchange, Tensors& gradients);

    const std::vector<WantedSum> wanted_;
    const std::vector<GradientBucket> buckets_;
    size_t begun_ = 0;
    std::vector<Exchange> exchanges_;
};

}  // namespace megjit::runtime
