/* Runs the function that static.py dumped, as C, and compares its results with Python's. */
#include <math.h>
#include <stdio.h>

#include "small.h"
#include "values.h"

int main(void) {
    float y[sizeof wanted / sizeof *wanted], worst = 0;
    _Alignas(small_arena_align) static char arena[small_arena_bytes];
    const small_inputs inputs = {given};
    const small_outputs outputs = {y};
    const int status = small_run(&inputs, &outputs, arena);
    for (unsigned i = 0; i < sizeof y / sizeof *y; ++i) worst = fmaxf(worst, fabsf(y[i] - wanted[i]));
    printf("status %d, largest difference %g\n", status, worst);
    return status != 0 || !(worst < 1e-6f);
}
