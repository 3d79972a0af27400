// backends/processes/gloo/abi.h -- what the plug-in that links Gloo gives, as plain C: no exception
// and no type of Gloo's crosses it.
#pragma once

#include <cstddef>

namespace megjit::processes::gloo {

constexpr size_t kAddressBytes = 256;  // of one member's end of a connection with another one
constexpr size_t kErrorBytes = 512;

// A part of an exchange, on this side.
struct Part {
    int peer;
    void* data;
    size_t bytes;
};

// out[i] = a[i] op b[i] for n elements; `out` may be `a` or `b`.
struct Reduction {
    void (*function)(const void* reduction, void* out, const void* a, const void* b, size_t n);
    size_t width;  // bytes of an element
};

// All give false where they failed, and say why in `error` (kErrorBytes).
struct Table {
    // One for a process: its address, by which others reach it.
    bool (*open)(const char* address, void** device, char* error);
    // The members of a group: first each tells the others `addresses`, its own end for each of them
    // (kAddressBytes each, by rank), then it connects with what they told it. `seconds`: how long
    // calls wait for others.
    bool (*create)(void* device, int rank, int size, double seconds, void** context,
                   char* addresses, char* error);
    bool (*connect)(void* context, const char* addresses, char* error);
    bool (*all_reduce)(void* context, const void* in, void* out, size_t count,
                       const Reduction* reduction, char* error);
    // `out` is written to in all members.
    bool (*reduce)(void* context, const void* in, void* out, size_t count,
                   const Reduction* reduction, int root, char* error);
    bool (*all_gather)(void* context, const void* in, void* out, size_t bytes, char* error);
    bool (*broadcast)(void* context, void* data, size_t bytes, int root, char* error);
    bool (*exchange)(void* context, const Part* sends, size_t send_count, const Part* receives,
                     size_t receive_count, char* error);
    // How long calls that begin from here on wait for others.
    void (*set_seconds)(void* context, double seconds);
    // Also while another thread is in a call.
    void (*close)(void* context);
    void (*destroy)(void* context);
};

}  // namespace megjit::processes::gloo

// The one function of the plug-in.
extern "C" const megjit::processes::gloo::Table* megjit_gloo_table_2();
