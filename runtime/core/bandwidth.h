// runtime/core/bandwidth.h -- what the memory of this machine can do: the measure of every kernel
// that streams.
#pragma once

namespace megjit::runtime {

class Device;

// Bytes read and written in a second by a copy between two arrays that no cache holds, on all
// threads of a host: the best of a few runs. Takes some 0.2 s, and 256 MiB of the device's memory.
double copy_bandwidth(Device& device);

}  // namespace megjit::runtime
