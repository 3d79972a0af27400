/**
 * @file megjit.h
 * @brief Runs models that `trace.dump` and `jit.dump_functions` wrote, without Python. C11; the ABI
 * is stable.
 *
 * **Errors.** Every function returns a ::megjit_status; when it is not ::MEGJIT_OK, nothing was
 * made or changed, except that outputs given to a run may have been written in part, and
 * megjit_error_text() says what was wrong, why, and what to do. No C++ exception leaves the
 * library, and no argument that is checked here ends the process.
 *
 * **Ownership.** What a function stores through a `**` parameter belongs to the caller, who frees
 * it by the function named after its type (`megjit_model_free` and so on; NULL is ignored). A
 * context keeps its model alive, so that handles may be freed in any order. Texts and shapes in a
 * ::megjit_tensor_info live as long as the handle that was asked.
 *
 * **State.** What a dumped function updates (parameters, buffers, states of an optimizer, random
 * generators), and its learning rate, is the model's state: a run reads it and puts new values in
 * its place. It is read, written and saved by name. All functions of a file have one state; it
 * lives as long as one of their handles.
 *
 * **Threads.** A model may be used by any number of threads at once. A context runs one call at a
 * time: a second thread waits for the first. Threads that shall run side by side use a context
 * each; runs that change the state still go one after the other, and a reader sees it between two
 * runs. A tensor that one thread writes to (as an output, or through its data) must not be used
 * by another meanwhile. Freeing a handle that another thread uses is an error of the program.
 *
 * **Option structs** begin with their size in bytes. Start from the macro,
 * MEGJIT_MODEL_OPTIONS_DEFAULT or MEGJIT_PROCESS_OPTIONS_DEFAULT, so that a program stays correct
 * with later versions, which may append fields.
 */
#ifndef MEGJIT_MEGJIT_H
#define MEGJIT_MEGJIT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MEGJIT_EXPORT __attribute__((visibility("default")))
#else
#define MEGJIT_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Version of this interface: grows when functions or fields are added; none is ever removed or
 * changed. */
#define MEGJIT_API_VERSION 3

/** The library's MEGJIT_API_VERSION. Below the header's, functions may be missing. Never fails. */
MEGJIT_EXPORT int32_t megjit_api_version(void);

/** What became of a call. Further values may be added. */
typedef enum megjit_status {
    MEGJIT_OK = 0,
    MEGJIT_INVALID_ARGUMENT = 1, /**< a NULL, a wrong name, dtype, shape, stride or option */
    MEGJIT_BAD_FILE = 2, /**< the model's file is missing, truncated or damaged */
    MEGJIT_OVER_LIMIT = 3, /**< the model does not fit into its memory limit */
    MEGJIT_OUT_OF_MEMORY = 4, /**< of the host or the device */
    MEGJIT_DEVICE_ERROR = 5, /**< of a driver or its work */
    MEGJIT_INTERNAL_ERROR = 6 /**< a bug of megjit */
} megjit_status;

/**
 * The text of the last call in this thread that failed: what was wrong, and lines that begin with "
 * why: " and "  fix: ".
 * "" before the first. Valid until the thread's next call that fails. Never NULL, never fails.
 */
MEGJIT_EXPORT const char* megjit_error_text(void);

/** Type of a tensor's elements. */
typedef enum megjit_dtype {
    MEGJIT_FLOAT32 = 1,
    MEGJIT_FLOAT16 = 2, /**< IEEE binary16 */
    MEGJIT_BFLOAT16 = 3, /**< the upper half of a float32 */
    MEGJIT_INT32 = 4,
    MEGJIT_INT16 = 5,
    MEGJIT_INT8 = 6,
    MEGJIT_UINT8 = 7,
    MEGJIT_UINT16 = 8,
    MEGJIT_BOOL = 9, /**< one byte, 0 or 1 */
    MEGJIT_COMPLEX64 = 10, /**< two float32: real, imaginary */
    MEGJIT_FLOAT64 = 11,
    MEGJIT_INT64 = 12
} megjit_dtype;

/** The most axes that a tensor has. */
#define MEGJIT_MAX_RANK 8

typedef struct megjit_model megjit_model; /**< A loaded file and its compiled program. */
typedef struct megjit_context
    megjit_context; /**< What one run at a time needs; weights are the model's. */
typedef struct megjit_tensor megjit_tensor; /**< Numbers in the host's memory. */

/* ---- the process */

/**
 * Gets the warnings of the library, one line without its end, for example that no compiler serves.
 * Called from any thread, perhaps from several at once; must not call the library.
 */
typedef void (*megjit_log_callback)(void* data, const char* text);

/** What holds for the whole process. */
typedef struct megjit_process_options {
    size_t size; /**< sizeof(megjit_process_options) */
    const char* isa; /**< highest instruction set: "avx2", "avx512", "avx512_vnni", "amx"; NULL:
                        MEGJIT_ISA, or the machine's */
    const char* cache_folder; /**< of compiled kernels; "": none; NULL: MEGJIT_CACHE_DIR, or the
                                 user's cache */
    const char* plugin_folder; /**< of the kernel compilers; NULL: MEGJIT_PLUGIN_DIR, or the folder
                                  of this library */
    megjit_log_callback log; /**< NULL: warnings go to stderr */
    void* log_data; /**< first argument of `log` */
    int32_t threads; /**< that compute; 0: what the process is granted (cores, quota,
                        OMP_NUM_THREADS) */
    int32_t reserved; /**< 0 */
} megjit_process_options;

#define MEGJIT_PROCESS_OPTIONS_DEFAULT \
    {sizeof(megjit_process_options), NULL, NULL, NULL, NULL, NULL, 0, 0}

/**
 * Sets the options of the process: before the first model is loaded, while no other thread uses the
 * library. Without this call all have their defaults. Texts are copied.
 *
 * @return ::MEGJIT_INVALID_ARGUMENT for a wrong value, and when a model was loaded, or a tensor
 * made, before
 */
MEGJIT_EXPORT megjit_status megjit_configure(const megjit_process_options* options);

/* ---- models */

/** How a model is compiled. */
typedef struct megjit_model_options {
    size_t size; /**< sizeof(megjit_model_options) */
    const char* device; /**< "cpu0", "gpu0", "xpux" (a GPU where there is one); NULL: the CPU */
    uint64_t memory_limit; /**< bytes of a run: inputs, outputs and what lies between; 0: that with
                              which the file was packaged, or none */
    const char* numerics; /**< "exact": only passes that keep every bit; "fast": all of the level;
                             NULL: as the function was traced */
    const char* compiler; /**< of kernels: "MLIR", "HALIDE" or "NVRTC"; NULL: MGB_JIT_BACKEND, or
                             the device's best */
    int32_t opt_level; /**< 0: as recorded; 1: arithmetic; 2: the whole graph; 3: generated kernels;
                          -1: as the function was traced */
    int32_t profile; /**< not 0: runs measure their steps, for megjit_model_json(model, "profile",
                        ...) */
    const char* function; /**< of those in the file; NULL: the first. Since version 2 */
    int32_t trusts_kernels; /**< not 0: uses the compiled kernels that `python -m megengine package`
                               has put into the file. They are code that will run in this process:
                               trust where the file comes from. Since version 2 */
    int32_t reserved; /**< 0 */
    int64_t batch; /**< the first extent of all inputs, in place of the recorded one; 0: that.
                        ::MEGJIT_INVALID_ARGUMENT, with the line, where the function names rows
                        by number, has used the recorded batch as one, or takes gradients; and for
                        a file of an earlier version where that cannot be told. Packaged kernels
                        are for the recorded batch.
                        Since version 3 */
} megjit_model_options;

#define MEGJIT_MODEL_OPTIONS_DEFAULT \
    {sizeof(megjit_model_options), NULL, 0, NULL, NULL, -1, 0, NULL, 0, 0, 0}

/**
 * Loads a file, compiles one of its functions and packs its weights; waits until the kernels are
 * compiled.
 *
 * @param path     of the file. Its constants stay where they are and are read as they are needed:
 *                 while the model lives the file may be replaced (megjit_model_save does that, and
 *                 `dump`) or removed, but not written to.
 * @param options  NULL: the defaults
 * @param model    gets the handle
 * @return ::MEGJIT_BAD_FILE, ::MEGJIT_OVER_LIMIT, ::MEGJIT_OUT_OF_MEMORY, or
 *         ::MEGJIT_INVALID_ARGUMENT for an option or a device that does not exist
 */
MEGJIT_EXPORT megjit_status megjit_model_load(const char* path, const megjit_model_options* options,
                                              megjit_model** model);

/** The same of `bytes` bytes at `data`, which are not needed after the call. */
MEGJIT_EXPORT megjit_status megjit_model_load_memory(const void* data, size_t bytes,
                                                     const megjit_model_options* options,
                                                     megjit_model** model);

/**
 * Compiles a function of a model's file once more, or another one (`options->function`): both have
 * the same state, whatever their devices. Since version 2, as are all functions of the state.
 */
MEGJIT_EXPORT megjit_status megjit_model_share(const megjit_model* model,
                                               const megjit_model_options* options,
                                               megjit_model** other);

/** Writes the file anew, all functions with their present state: whole, or the old one stays. */
MEGJIT_EXPORT megjit_status megjit_model_save(const megjit_model* model, const char* path);

MEGJIT_EXPORT void megjit_model_free(megjit_model* model);

/** Functions of the file, in its order. */
MEGJIT_EXPORT megjit_status megjit_model_function_count(const megjit_model* model, size_t* count);
/** `name` lives as long as the model. "" in a file that `trace.dump` wrote. */
MEGJIT_EXPORT megjit_status megjit_model_function(const megjit_model* model, size_t index,
                                                  const char** name);

/** What is known of a tensor without its numbers. Its fields are final. */
typedef struct megjit_tensor_info {
    const char* name; /**< "" where there is none */
    const int64_t* shape; /**< `rank` extents, the outermost first */
    int32_t rank;
    megjit_dtype dtype;
    size_t bytes; /**< in row-major order without gaps */
} megjit_tensor_info;

MEGJIT_EXPORT megjit_status megjit_model_input_count(const megjit_model* model, size_t* count);
MEGJIT_EXPORT megjit_status megjit_model_output_count(const megjit_model* model, size_t* count);
/** Parameters are the tensors that the traced function took from outside, and no function of the
 * file updates. */
MEGJIT_EXPORT megjit_status megjit_model_parameter_count(const megjit_model* model, size_t* count);

/** @return ::MEGJIT_INVALID_ARGUMENT unless `index` is below the count */
MEGJIT_EXPORT megjit_status megjit_model_input(const megjit_model* model, size_t index,
                                               megjit_tensor_info* info);
MEGJIT_EXPORT megjit_status megjit_model_output(const megjit_model* model, size_t index,
                                                megjit_tensor_info* info);
MEGJIT_EXPORT megjit_status megjit_model_parameter(const megjit_model* model, size_t index,
                                                   megjit_tensor_info* info);
/**
 * Gives 1 for an output whose first extent follows from the numbers, else 0. megjit_model_output
 * tells the most that it can be: memory for a run must hold that. After a run
 * megjit_tensor_describe tells what it is; the tensor may be given to the next run. Since
 * version 3.
 */
MEGJIT_EXPORT megjit_status megjit_model_output_is_bounded(const megjit_model* model, size_t index,
                                                           int32_t* is_bounded);

/** A copy of a parameter's numbers. */
MEGJIT_EXPORT megjit_status megjit_model_parameter_value(const megjit_model* model, size_t index,
                                                         megjit_tensor** value);

/** What the functions of the file keep from run to run. */
MEGJIT_EXPORT megjit_status megjit_model_state_count(const megjit_model* model, size_t* count);
/** "fc.weight", "fc.weight.momentum_buffer", "lr"; a random generator is "random", an int32[4]:
 * seed and number of draws, 64 bits each, the lower half first. */
MEGJIT_EXPORT megjit_status megjit_model_state(const megjit_model* model, size_t index,
                                               megjit_tensor_info* info);
/** A copy of its present numbers; waits for a run that changes them. */
MEGJIT_EXPORT megjit_status megjit_model_state_value(const megjit_model* model, const char* name,
                                                     megjit_tensor** value);
/** The next run reads a copy of `value`, which has the state's dtype and shape. */
MEGJIT_EXPORT megjit_status megjit_model_set_state(const megjit_model* model, const char* name,
                                                   const megjit_tensor* value);

/**
 * A report as JSON (UTF-8).
 *
 * @param what      "plan": the memory of one run; "kernels": the generated kernels; "profile": runs
 *                  and, if the model was loaded with `profile`, steps, an entry for each context
 *                  that lived beside others; "metadata": what `dump` noted, or null
 * @param text      gets the text and a 0 byte, cut where it does not fit; NULL if `capacity` is 0
 * @param capacity  bytes at `text`
 * @param needed    gets the bytes that the whole text takes with its 0 byte; ask again if that is
 * above `capacity`
 */
MEGJIT_EXPORT megjit_status megjit_model_json(const megjit_model* model, const char* what,
                                              char* text, size_t capacity, size_t* needed);

/* ---- tensors */

/** A tensor in memory of its own, row-major, not cleared. `shape` may be NULL for a scalar of rank
 * 0. */
MEGJIT_EXPORT megjit_status megjit_tensor_create(megjit_dtype dtype, int32_t rank,
                                                 const int64_t* shape, megjit_tensor** tensor);

/**
 * A tensor in the caller's memory, which must live until the tensor is freed.
 *
 * @param strides  elements from one index of an axis to the next, may be negative; NULL: row-major
 * without gaps. Other orders are copied in each run.
 * @param data     address of the first element, aligned to one element; written to only when the
 * tensor is an output
 */
MEGJIT_EXPORT megjit_status megjit_tensor_borrow(megjit_dtype dtype, int32_t rank,
                                                 const int64_t* shape, const int64_t* strides,
                                                 void* data, megjit_tensor** tensor);

MEGJIT_EXPORT void megjit_tensor_free(megjit_tensor* tensor);

MEGJIT_EXPORT megjit_status megjit_tensor_describe(const megjit_tensor* tensor,
                                                   megjit_tensor_info* info);

/** Address of the first element: of memory of the tensor's own, or what it borrowed. */
MEGJIT_EXPORT megjit_status megjit_tensor_data(const megjit_tensor* tensor, void** data);

struct DLManagedTensor; /* of dlpack.h, which a program includes for these two */

/**
 * A tensor in memory of another library's, on the host. From then on `managed` belongs to the
 * tensor, which calls its deleter when it is freed; not so if the call fails.
 */
MEGJIT_EXPORT megjit_status megjit_tensor_from_dlpack(struct DLManagedTensor* managed,
                                                      megjit_tensor** tensor);

/**
 * For another library, which calls the deleter. Memory of the tensor's own lives as long as either
 * of them; borrowed memory must outlive both.
 */
MEGJIT_EXPORT megjit_status megjit_tensor_to_dlpack(const megjit_tensor* tensor,
                                                    struct DLManagedTensor** managed);

/* ---- runs */

/** Takes memory only as runs need it; weights are shared with the model's other contexts. */
MEGJIT_EXPORT megjit_status megjit_context_create(const megjit_model* model,
                                                  megjit_context** context);

MEGJIT_EXPORT void megjit_context_free(megjit_context* context);

/**
 * Runs the model once; returns when the outputs are there.
 *
 * @param inputs   all inputs in the model's order
 * @param outputs  all outputs in the model's order: a tensor gets the numbers, which on the CPU are
 * computed in its memory unless it has strides; NULL becomes a new tensor of the caller's. An
 * output must not share memory with an input or another output.
 * @return ::MEGJIT_INVALID_ARGUMENT for another number of tensors, another dtype or shape, before
 *         anything is computed; ::MEGJIT_OUT_OF_MEMORY or ::MEGJIT_DEVICE_ERROR of the run
 */
MEGJIT_EXPORT megjit_status megjit_run(megjit_context* context, const megjit_tensor* const* inputs,
                                       size_t input_count, megjit_tensor** outputs,
                                       size_t output_count);

/** A tensor with the name of the input or output that it stands for. */
typedef struct megjit_named_tensor {
    const char* name;
    megjit_tensor* tensor; /**< of an output: NULL becomes a new tensor of the caller's */
} megjit_named_tensor;

/** The same by name: all inputs, in any order, and those outputs that are wanted. Each name once.
 */
MEGJIT_EXPORT megjit_status megjit_run_named(megjit_context* context,
                                             const megjit_named_tensor* inputs, size_t input_count,
                                             megjit_named_tensor* outputs, size_t output_count);

#ifdef __cplusplus
}
#endif

#endif
