// A dumped model through megjit's C API: what benchmarks/cases/c_api.py measures.
#include <megjit/megjit.h>
#include <stdio.h>
#include <stdlib.h>

struct loaded {
    megjit_model* model;
    megjit_context* context;
    megjit_tensor *input, *output;
};

static void check(megjit_status status) {
    if (status == MEGJIT_OK) return;
    fprintf(stderr, "%s\n", megjit_error_text());
    exit(1);
}

// Starts the library: devices, and where its compilers lie.
void start(void) {
    megjit_tensor* tensor = NULL;
    check(megjit_tensor_create(MEGJIT_FLOAT32, 0, NULL, &tensor));
    megjit_tensor_free(tensor);
}

// A model of one input and one output, in memory of the caller's.
struct loaded* load(const char* path, float* x, float* y) {
    struct loaded* made = calloc(1, sizeof *made);
    megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
    options.opt_level = 3;
    options.trusts_kernels = 1;
    check(megjit_model_load(path, &options, &made->model));
    check(megjit_context_create(made->model, &made->context));
    megjit_tensor_info info;
    check(megjit_model_input(made->model, 0, &info));
    check(megjit_tensor_borrow(info.dtype, info.rank, info.shape, NULL, x, &made->input));
    check(megjit_model_output(made->model, 0, &info));
    check(megjit_tensor_borrow(info.dtype, info.rank, info.shape, NULL, y, &made->output));
    return made;
}

void run(struct loaded* it, long calls) {
    const megjit_tensor* const inputs[] = {it->input};
    megjit_tensor* outputs[] = {it->output};
    for (long i = 0; i < calls; ++i) check(megjit_run(it->context, inputs, 1, outputs, 1));
}

// Bytes of a run, packed weights included, by its plan.
long planned_bytes(const struct loaded* it) {
    static const char key[] = "\"planned_bytes\": ";
    char text[256];
    size_t needed;
    check(megjit_model_json(it->model, "plan", text, sizeof text, &needed));
    for (const char* at = text; *at; ++at) {
        size_t same = 0;
        while (same < sizeof key - 1 && at[same] == key[same]) ++same;
        if (same == sizeof key - 1) return atol(at + same);
    }
    return 0;
}
