// runtime/core/recorded.h -- Recorded: what a stream that follows another library's tells of graphs
// that the library makes of its stream's work.
#pragma once

namespace megjit::runtime {

class Recorded {
public:
    // Is the stream captured that this one follows? What is queued then becomes a part of a graph
    // of the library's, runs when that is launched, as often as it is, and keeps the memory that it
    // has now.
    virtual bool is_recorded() const = 0;

protected:
    ~Recorded() = default;
};

}  // namespace megjit::runtime
