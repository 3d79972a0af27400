// Products of matrices by a warp: ldmatrix.
#include "tests/card/emulator/ptx/memory.h"

namespace megjit::card::ptx {

void add_matrix_operations(Operations& ops) {
    for (const char* name :
         {"mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "tcgen05", "tensormap"})
        ops[name] = [](Decoder& d, const Statement&, Inst&) {
            d.refuse("instructions of tensor cores are not executed by the emulated card");
        };
}

}  // namespace megjit::card::ptx
