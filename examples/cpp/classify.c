/* classify.c: which class a dumped model gives each row of numbers.
 *
 *     classify net.dump < numbers.txt
 *
 * The model has one input of float32, and its first output is float32[rows, classes]. */
#include <stdio.h>
#include <stdlib.h>

#include <megjit/megjit.h>

static void check(megjit_status status) {
    if (status == MEGJIT_OK) return;
    fprintf(stderr, "%s\n", megjit_error_text());
    exit(1);
}

static void fail(const char* text) {
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static void read_numbers(float* numbers, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (scanf("%f", &numbers[i]) != 1)
            fail("classify: there are fewer numbers than the input has elements");
}

static void print_classes(const float* scores, int64_t rows, int64_t classes) {
    for (int64_t row = 0; row < rows; ++row) {
        const float* of_row = scores + row * classes;
        int64_t best = 0;
        for (int64_t i = 1; i < classes; ++i)
            if (of_row[i] > of_row[best]) best = i;
        printf("row %lld: class %lld (%g)\n", (long long)row, (long long)best, of_row[best]);
    }
}

int main(int argc, char** argv) {
    if (argc != 2) fail("usage: classify MODEL < NUMBERS");
    megjit_model* model = NULL;
    check(megjit_model_load(argv[1], NULL, &model));

    megjit_tensor_info input, output;
    check(megjit_model_input(model, 0, &input));
    check(megjit_model_output(model, 0, &output));
    if (input.dtype != MEGJIT_FLOAT32 || output.dtype != MEGJIT_FLOAT32 || output.rank != 2)
        fail("classify: the model does not give float32[rows, classes] for float32");

    megjit_tensor* x = NULL;
    void* numbers = NULL;
    check(megjit_tensor_create(input.dtype, input.rank, input.shape, &x));
    check(megjit_tensor_data(x, &numbers));
    read_numbers(numbers, input.bytes / sizeof(float));

    megjit_context* context = NULL; /* one for each thread that runs the model */
    check(megjit_context_create(model, &context));
    megjit_named_tensor in = {input.name, x}, out = {output.name, NULL};
    check(megjit_run_named(context, &in, 1, &out, 1));
    void* scores = NULL;
    check(megjit_tensor_data(out.tensor, &scores));
    print_classes(scores, output.shape[0], output.shape[1]);

    megjit_tensor_free(out.tensor);
    megjit_tensor_free(x);
    megjit_context_free(context);
    megjit_model_free(model);
    return 0;
}
