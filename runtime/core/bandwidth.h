// runtime/core/bandwidth.h -- how fast a device's memory is: the measure of every kernel that
// streams.
#pragma once

namespace megjit::runtime {

class Device;

// Bytes per second that a copy between two arrays reads and writes, on all threads of a host: the
// best of a few runs. No cache holds the arrays. Takes some 0.2 s, and 256 MiB of the device's
// memory.
double copy_bandwidth(Device& device);

}  // namespace megjit::runtime
