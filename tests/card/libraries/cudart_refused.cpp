// Functions that PyTorch's libraries import, and that tests do not need. CUDA's headers would
// declare them otherwise, so they are not included here.
extern "C" __attribute__((visibility("default"))) int megjit_cudart_refused() {
    return 801;  // cudaErrorNotSupported
}
#define MEGJIT_X(name) \
    extern "C" __attribute__((visibility("default"), alias("megjit_cudart_refused"))) int name();
#include "tests/card/libraries/cudart_refused.inl"
#undef MEGJIT_X
