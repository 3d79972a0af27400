/* megjit/custom_op.h -- what a library of custom ops shows megjit: plain C data, so that any
 * compiler of any age may make it.
 *
 * megjit opens the library, calls `megjit_custom_ops` once and keeps the pointers as long as the
 * process lives. In C++, megbrain/custom/custom.h fills all of this in. */
#ifndef MEGJIT_CUSTOM_OP_H
#define MEGJIT_CUSTOM_OP_H

#include <stddef.h>
#include <stdint.h>

/* The library says which version it was made for; megjit refuses any other. */
#define MEGJIT_CUSTOM_OP_ABI 1
#define MEGJIT_MAX_RANK 8

#ifdef __cplusplus
extern "C" {
#endif

typedef struct megjit_type {
    const char* dtype; /* NumPy's name; what infer writes stays valid after it */
    int32_t rank;
    int64_t shape[MEGJIT_MAX_RANK];
} megjit_type;

typedef struct megjit_buffer {
    megjit_type type;
    void* data; /* row-major, on the host; inputs are not to be written */
} megjit_buffer;

typedef enum megjit_param_kind {
    MEGJIT_INTEGER,
    MEGJIT_REAL,
    MEGJIT_TEXT,
    MEGJIT_INTEGERS,
    MEGJIT_REALS
} megjit_param_kind;

typedef struct megjit_param { /* one of the five values, as `kind` says */
    const char* name;
    int32_t kind;
    int64_t integer;
    double real;
    const char* text;
    const int64_t* integers;
    const double* reals;
    size_t count; /* of integers or reals */
} megjit_param;

typedef struct megjit_operand {
    const char* name;
    const char* dtypes; /* those that are taken, between spaces */
    int32_t rank; /* below 0: any */
} megjit_operand;

typedef struct megjit_op {
    const char* name; /* an identifier */
    const char* doc;
    const megjit_operand* inputs;
    const megjit_operand* outputs;
    const megjit_param* params; /* with their defaults */
    uint32_t input_count, output_count, param_count;
    /* The op that computes the gradients of the inputs: from those of the outputs and the inputs,
     * and if it takes so many operands the outputs, in this order. NULL: the op has none. */
    const char* gradient;
    void* self;
    /* Both return 0, or write what is wrong to `error` (of `size` bytes, ended by 0). They may run
     * in any thread, and always give the same for the same operands and parameters; `params` are in
     * the op's order. */
    int (*infer)(void* self, const megjit_type* inputs, const megjit_param* params,
                 megjit_type* outputs, char* error, size_t size);
    int (*compute)(void* self, const megjit_buffer* inputs, const megjit_param* params,
                   const megjit_buffer* outputs, char* error, size_t size);
} megjit_op;

typedef struct megjit_library {
    uint32_t abi; /* MEGJIT_CUSTOM_OP_ABI */
    uint32_t op_count;
    const megjit_op* ops;
} megjit_library;

/* The one symbol that a library exports. */
const megjit_library* megjit_custom_ops(void);

#ifdef __cplusplus
}
#endif
#endif
