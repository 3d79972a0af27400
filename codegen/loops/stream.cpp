// Stores past the caches. A store of part of a line reads the line first; a whole line that is
// stored past the caches is not read: a copy moves a third less. But a kernel that reads it soon
// finds it in no cache, so only launches do so that write more than a cache keeps.
#include "codegen/loops/frame.h"

namespace megjit::codegen::loops {
namespace {

constexpr int64_t kLine = 64;  // bytes

}  // namespace

// An output that lies on an input is in the cache when it is written.
void Frame::decide_to_stream() {
    const size_t inputs = kernel.inputs.size();
    int64_t bytes = 0;  // written for each element of the space
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        if (!kernel.outputs[k].per_row && is_dense(k))
            bytes += static_cast<int64_t>(runtime::size_of(kernel.outputs[k].dtype));
    if (bytes == 0 || !target.streams) return;
    streams = b.less(b.index(target.schedule.streamed_bytes / bytes), product(0, kernel.rank));
    for (size_t k = 0; k < kernel.outputs.size(); ++k)
        for (size_t i = 0; i < inputs; ++i)
            if (!kernel.inputs[i].is_offset)
                streams = b.both(streams, b.compute(ScalarOp::ne, {b.address(bases[inputs + k]),
                                                                   b.address(bases[i])}));
}

Value Frame::passes_caches(std::span<const size_t> outputs, const Values& at, Value from) {
    if (!streams) return {};
    Value places = b.index(0);
    for (const size_t k : outputs) {
        if (!is_dense(k)) return {};
        places = b.any(places, b.address(b.at(at[kernel.inputs.size() + k], from)));
    }
    return b.both(streams, b.equal(b.mod(places, b.index(kLine)), b.index(0)));
}

void Frame::end_streams() {
    if (streams) b.branch(streams, [&] { b.publish(); });
}

}  // namespace megjit::codegen::loops
