// tests/card/emulator/ptx/memory.h -- addresses of lanes, checked.
#pragma once

#include "tests/card/emulator/ptx/decode.h"

namespace megjit::card::ptx {

// Where the lanes' addresses lie on the host. Stops the kernel for a lane of `m` whose address is
// not a live place for `bytes`, or not a multiple of `alignment`. Of other lanes nothing is said.
struct Places {
    std::byte* at[kLanes];
};
void locate(Warp& w, const Inst& in, uint32_t m, uint32_t bytes, uint32_t alignment,
            Places& places);

// Notes a use of shared memory, and stops the kernel where a barrier is missing between this and
// what another warp does there.
void note_shared(Warp& w, const Inst& in, uint32_t m, uint32_t bytes, SharedLog::Kind kind,
                 const Places& places);

// Decodes [register or symbol + offset] into in.a, in.imm, in.e (bytes of the address), in.mode
// (its space), in.extent.
void decode_address(Decoder& d, const Statement& s, const Operand& operand, Inst& in);

}  // namespace megjit::card::ptx
