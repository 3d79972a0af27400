// runtime/bandwidth.h -- what the memory of this machine can do: the measure of every kernel that
// streams.
#pragma once

namespace megjit::runtime {

// Bytes read and written in a second by a copy between two arrays that no cache holds, on all
// threads: the best of a few runs. Takes some 0.2 s.
double copy_bandwidth();

}  // namespace megjit::runtime
