// tests/card/emulator/ -- an emulated NVIDIA card: a shared library with the C ABI of the CUDA
// driver that executes PTX on the host. In: calls of libcuda, PTX. Out: the same results as a card,
// later, from threads of its own, or an error that names what was wrong. Includes and links nothing
// of ours.
//
// Environment: MEGJIT_EMULATED_GPUS (number of cards, default 1), MEGJIT_CARD_ARCH (80, 90 or 100:
// what the cards say of themselves; default 90), MEGJIT_CARD_DRIVER (the driver's version of CUDA,
// such as 12.4), MEGJIT_CARD_FAIL (a function and which of its calls finds no memory, such as
// cuMemAlloc_v2:3), MEGJIT_CARD_HMM (1: pageable memory is read when the copy runs, as some systems
// do it).
//
// What it does on purpose, to find what is wrong in a caller:
// - Device memory cannot be touched by the host: its addresses lie in a reservation.
// - Fresh memory holds 0xff bytes: NaN in every floating type, -1 in every integer type.
// - Addresses are handed out anew as late as possible, with gaps, so that accesses after a free and
//   beyond an end are noticed by kernels and copies.
// - Work on a stream starts after a small random delay. Only copies *from* pageable host memory are
//   staged when they are queued; copies to the host are always late. Both wait for what the stream
//   has queued before, as the driver does, and count as "a pageable copy" (megjit_card_calls).
// - When the process ends, calls give CUDA_ERROR_DEINITIALIZED to threads that were there before
// cuInit.
// - Nodes of a graph that do not depend on each other run in a random order.
// - Blocks run in another order in each launch, warps in a random one between barriers.
// - Two warps that touch a byte of shared memory, one of them writing, without a barrier between
//   them, are a fault that names kernel, instruction, warps and byte.
// Faults are sticky, as on a card: every later call returns the fault's result, until
// cuDevicePrimaryCtxReset.
//
// tests/card/emulator/card.h -- what this library exports beside the driver's functions.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {

// 1: an emulated card, which takes PTX only. Real drivers lack this symbol.
int megjit_card_version();

// The last fault of any card, or load error of a module, as text: kernel, instruction, PTX line,
// thread, block, address, nearest allocation. Empty when there was none. Valid until this thread's
// next call.
const char* megjit_card_last_fault();

// The stand-ins for NVIDIA's libraries (tests/card/libraries) call this: it queues a kernel that
// the host computes, or records it in a capture. `run` gets where the host finds the operands, in
// their order, and returns null, or what was wrong; an operand that no live allocation holds by
// then is a fault of the card. `drop` is called when neither a stream nor a graph needs `data` any
// more, also where this fails. The driver's result.
struct megjit_card_operand {
    uint64_t address;
    size_t bytes;
};
int megjit_card_library_work(void* stream, const char* name, const megjit_card_operand* operands,
                             size_t count, double flops,
                             const char* (*run)(void* data, void* const* places),
                             void (*drop)(void* data), void* data);

// Allocations of the driver's user that were not freed, over all cards; their bytes.
size_t megjit_card_live_allocations(size_t* bytes);

// Calls of a function of the driver since the start, by its name in the ABI; "": of all functions.
uint64_t megjit_card_calls(const char* function);

// `times` calls of that function, from the nth from now on, do nothing and return `result`. One
// function at a time; "": none.
void megjit_card_fail(const char* function, uint64_t nth, uint64_t times, int result);

// Since the last call: launches of kernels and graphs, over all cards. A graph's kernels are none.
uint64_t megjit_card_launches();

// Since the last call: how many instructions of threads all kernels ran, over all cards.
uint64_t megjit_card_thread_instructions();
}
#pragma GCC visibility pop
