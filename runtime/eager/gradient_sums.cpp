#include "runtime/eager/gradient_sums.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/core/rematerializer.h"
#include "runtime/host/error.h"
#include "runtime/host/host_lock.h"
#include "runtime/ops/builders.h"
#include "runtime/ops/known.h"

namespace megjit::runtime {
namespace {

// Parts of a bucket begin at multiples of this, so that their makers can write them there
// (memory/parts.h).
constexpr size_t kAlign = 64;

using Positions = std::vector<size_t>;

// Where the last bucket begins. It is as small as the first, for no work is left to run beside it.
size_t short_tail(std::span<const WantedSum> wanted, const Positions& run, size_t room) {
    size_t begin = run.size();
    while (begin > 0 && wanted[run[begin - 1]].type.bytes() <= room)
        room -= wanted[run[--begin]].type.bytes();
    return begin;
}

// Divides a run of gradients of one kind: each bucket ends with the gradient that fills it.
void divide(std::span<const WantedSum> wanted, const Positions& run, BucketSizes sizes,
            std::vector<GradientBucket>& buckets) {
    const size_t tail = short_tail(wanted, run, sizes.first);
    size_t room = sizes.first;
    Positions members;
    for (size_t i = 0; i < run.size(); ++i) {
        members.push_back(run[i]);
        room -= std::min(room, wanted[run[i]].type.bytes());
        if (room > 0 && i + 1 != tail && i + 1 < run.size()) continue;
        // Gradients of odd sizes come last: those after them would have to be copied.
        std::stable_partition(members.begin(), members.end(), [&](size_t position) {
            return wanted[position].type.bytes() % kAlign == 0;
        });
        buckets.push_back({std::exchange(members, {}), wanted[run[i]].left});
        room = sizes.others;
    }
}

TensorRef on(Device& device, const TensorRef& tensor) {
    if (&tensor->device() == &device) return tensor;
    return apply(ops::copy_to(), {std::string(device.name())}, {&tensor, 1})[0];
}

// Waits for the work on the side stream, and throws its error.
void wait_beside() {
    const WithoutHostLock others_run;  // errors of peers need the host language
    side_stream().synchronize();
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(std::span<const WantedSum> wanted, BucketSizes sizes) {
    std::vector<Positions> runs;  // each of one group, dtype and device
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (wanted[i].group.empty()) continue;
        const auto is_alike = [&](const Positions& run) {
            const WantedSum& other = wanted[run[0]];
            return other.group == wanted[i].group && other.device == wanted[i].device &&
                   other.type.dtype == wanted[i].type.dtype;
        };
        const auto run = std::find_if(runs.begin(), runs.end(), is_alike);
        if (run == runs.end()) runs.push_back({i});
        else run->push_back(i);
    }
    std::vector<GradientBucket> buckets;
    for (Positions& run : runs) {
        std::stable_sort(run.begin(), run.end(),
                         [&](size_t a, size_t b) { return wanted[a].left > wanted[b].left; });
        divide(wanted, run, sizes, buckets);
    }
    std::stable_sort(
        buckets.begin(), buckets.end(),
        [](const GradientBucket& a, const GradientBucket& b) { return a.left > b.left; });
    return buckets;
}

GradientSums::GradientSums(std::vector<WantedSum> wanted)
    : wanted_(std::move(wanted)), buckets_(gradient_buckets(wanted_, bucket_sizes())) {}

// A pass that failed waits, too: work on the side stream writes into memory that is freed here.
GradientSums::~GradientSums() {
    if (!exchanges_.empty()) try {
            wait_beside();
        } catch (...) {}
}

void GradientSums::begin(size_t left, const Take& take) {
    for (; begun_ < buckets_.size() && buckets_[begun_].left >= left; ++begun_) {
        std::vector<WaitingGradient> parts;
        for (const size_t position : buckets_[begun_].members)
            if (TensorRef gradient = take(position))
                parts.push_back({position, gradient, gradient->shape()});
        // A gradient defined by hand may have another dtype than its tensor.
        while (!parts.empty()) {
            const DType dtype = parts[0].gradient->dtype();
            const auto others = std::stable_partition(
                parts.begin(), parts.end(),
                [&](const WaitingGradient& part) { return part.gradient->dtype() == dtype; });
            exchange({std::make_move_iterator(parts.begin()), std::make_move_iterator(others)});
            parts.erase(parts.begin(), others);
        }
    }
}

void GradientSums::exchange(std::vector<WaitingGradient> parts) {
    const std::string& group = wanted_[parts[0].position].group;
    Device& device = parts[0].gradient->device();
    Tensors flat;
    for (WaitingGradient& part : parts)
        flat.push_back(build::reshape(std::exchange(part.gradient, {}), {part.shape.numel()}));
    TensorRef block = flat.size() > 1 ? apply(ops::concat(), {int64_t{0}}, flat)[0] : flat[0];
    flat.clear();
    if (!device.is_host() && &device != exchanging_device()) block = on(host_device(), block);
    Rematerializer::instance().keep(*block);
    const auto work = std::make_shared<BesideWork>(std::make_shared<TensorRef>(block));
    exchanges_.push_back({std::move(parts), &device, work});
    const RunsBeside beside(work);
    exchanges_.back().results = apply(ops::all_reduce_sum(), {group}, {&block, 1});
}

void GradientSums::finish(Tensors& gradients) {
    if (exchanges_.empty()) return;
    wait_beside();
    for (const Exchange& exchange : exchanges_)
        if (exchange.work->is_queued && !exchange.work->has_run)
            user_error({.what = "gradients were not added up over the processes",
                        .why = "an exchange had failed; somebody else was told, and went on"},
                       ErrorKind::runtime);
    for (Exchange& exchange : exchanges_) put(exchange, gradients);
    exchanges_.clear();
}

void GradientSums::put(Exchange& exchange, Tensors& gradients) {
    const TensorRef sums = on(*exchange.device, exchange.results[0]);
    exchange.results.clear();
    int64_t begin = 0;
    for (const WaitingGradient& part : exchange.parts) {
        const build::Axes from{begin}, to{begin + part.shape.numel()}, step{1};
        const bool is_alone = exchange.parts.size() == 1;
        const TensorRef flat =
            is_alone ? sums : apply(ops::slice(), {from, to, step}, {&sums, 1})[0];
        gradients[part.position] = build::reshape(flat, part.shape);
        begin = to[0];
    }
}

}  // namespace megjit::runtime
