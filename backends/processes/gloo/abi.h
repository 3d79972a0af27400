// backends/processes/gloo/abi.h -- what the plug-in that links Gloo exports, as plain C: no
// exception and no type of Gloo's crosses the border.
#pragma once

#include <cstddef>

namespace megjit::processes::gloo {

constexpr size_t kAddressBytes = 256;  // size of the address of one end of a connection
constexpr size_t kErrorBytes = 512;

// A part of an exchange, as this process sees it.
struct Part {
    int peer;
    void* data;
    size_t bytes;
};

// out[i] = a[i] op b[i] for n elements; `out` may be `a` or `b`.
struct Reduction {
    void (*function)(const void* reduction, void* out, const void* a, const void* b, size_t n);
    size_t width;  // size of an element in bytes
};

// All of these return false if they fail, and write the reason to `error` (kErrorBytes).
struct Table {
    // Made once in a process; `address` is the one by which other processes reach it.
    bool (*open)(const char* address, void** device, char* error);
    // Connects the members of a group: each tells the others `addresses`, one of its own for each
    // of them (kAddressBytes each, by rank), then it connects to the addresses that they told it.
    // `seconds`: how long calls wait for others.
    bool (*create)(void* device, int rank, int size, double seconds, void** context,
                   char* addresses, char* error);
    bool (*connect)(void* context, const char* addresses, char* error);
    bool (*all_reduce)(void* context, const void* in, void* out, size_t count,
                       const Reduction* reduction, char* error);
    // `out` is written in all members.
    bool (*reduce)(void* context, const void* in, void* out, size_t count,
                   const Reduction* reduction, int root, char* error);
    bool (*all_gather)(void* context, const void* in, void* out, size_t bytes, char* error);
    bool (*broadcast)(void* context, void* data, size_t bytes, int root, char* error);
    bool (*exchange)(void* context, const Part* sends, size_t send_count, const Part* receives,
                     size_t receive_count, char* error);
    // Sets how long calls that begin later wait for others.
    void (*set_seconds)(void* context, double seconds);
    // May be called while another thread is in a call.
    void (*close)(void* context);
    void (*destroy)(void* context);
};

}  // namespace megjit::processes::gloo

// The one function of the plug-in.
extern "C" const megjit::processes::gloo::Table* megjit_gloo_table_2();
