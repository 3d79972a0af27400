// The C functions of models and contexts.
#include <algorithm>
#include <optional>

#include "jit/api/c_error.h"
#include "jit/api/c_tensor.h"
#include "jit/api/process.h"

struct megjit_model {
    std::shared_ptr<megjit::api::Model> model;
};
struct megjit_context {
    megjit::api::Context context;
};

using namespace megjit;
using namespace megjit::api;
using runtime::cat;

namespace {

ModelOptions options_from_c(const megjit_model_options* given) {
    const auto c = options_from<megjit_model_options>(given, MEGJIT_MODEL_OPTIONS_DEFAULT);
    const std::string_view numerics = c.numerics ? c.numerics : "";
    if (c.numerics && numerics != "fast" && numerics != "exact")
        runtime::user_error(
            {.what = cat("there is no numerics ", numerics), .fix = "give exact, fast or NULL"});
    return {.function = c.function ? c.function : "",
            .device = c.device ? &runtime::find_device(c.device) : nullptr,
            .memory_limit = c.memory_limit,
            .opt_level = c.opt_level,
            .exact = c.numerics ? std::optional(numerics == "exact") : std::nullopt,
            .compiler = c.compiler ? c.compiler : "",
            .profile = c.profile != 0,
            .trusts_kernels = c.trusts_kernels != 0,
            .batch = c.batch};
}

// Blames the file for what `use` refuses.
template <class Use>
auto as_bad_file(const Use& use) {
    try {
        return use();
    } catch (const runtime::UserError& error) { throw BadFile(error); }
}

template <class Read>
megjit_status load(const Read& read, const megjit_model_options* options, megjit_model** model) {
    return guarded([&] {
        ensure_started();
        megjit_model*& result = not_null(model, "model");
        const ModelOptions wanted = options_from_c(options);
        std::shared_ptr<File> file = as_bad_file(read);
        result = new megjit_model{std::make_shared<Model>(std::move(file), wanted)};
    });
}

using Ports = const std::vector<Port>& (Model::*)() const;

megjit_status count_of(const megjit_model* model, Ports ports, size_t* count) {
    return guarded(
        [&] { not_null(count, "count") = ((*not_null(model, "model").model).*ports)().size(); });
}

template <class T>
const T& at_index(const std::vector<T>& list, size_t index) {
    if (index >= list.size())
        runtime::user_error({.what = cat("there is no number ", index),
                             .why = cat("the model has ", list.size(), ", counted from 0"),
                             .fix = "ask for the count first"});
    return list[index];
}

megjit_status describe(const megjit_model* model, Ports ports, size_t index,
                       megjit_tensor_info* info) {
    return guarded([&] {
        const Port& port = at_index(((*not_null(model, "model").model).*ports)(), index);
        not_null(info, "info") = info_of(port.name.c_str(), port.type);
    });
}

void check_count(std::string_view what, size_t given, size_t wanted) {
    if (given != wanted)
        runtime::user_error({.what = cat(given, " ", what, " were given"),
                             .why = cat("the model has ", wanted),
                             .fix = cat("give all ", what, " in the model's order, or use names")});
}

// The lists of a run. They keep their memory for the thread's next one.
struct Lists {
    std::vector<const megjit_tensor*> inputs;  // by position
    std::vector<megjit_tensor**> outputs;  // by position; null: not wanted
    std::vector<TensorRef> given, values;
    std::vector<std::unique_ptr<megjit_tensor>> made;

    void clear() {
        given.clear();
        values.clear();
        made.clear();
    }
};

// Where the program may compute the output.
TensorRef place_of(megjit_tensor** output, const Port& port) {
    if (!output || !*output) return nullptr;
    check_output(**output, port);
    return (*output)->value;
}

void give_outputs(const std::vector<Port>& ports, Lists& lists) {
    // All are made before one is given away: a run that fails leaves nothing to be freed.
    lists.made.resize(lists.outputs.size());
    for (size_t i = 0; i < lists.outputs.size(); ++i) {
        megjit_tensor** const output = lists.outputs[i];
        if (!output) continue;
        if (!*output) lists.made[i] = tensor_of(std::move(lists.values[i]), &ports[i].type);
        else copy_to(**output, lists.values[i]);
    }
    for (size_t i = 0; i < lists.outputs.size(); ++i)
        if (lists.made[i]) *lists.outputs[i] = lists.made[i].release();
}

void run(Context& context, Lists& lists) {
    struct End {
        Lists& lists;
        ~End() { lists.clear(); }
    } const end{lists};
    for (size_t i = 0; i < lists.outputs.size(); ++i)
        lists.values.push_back(place_of(lists.outputs[i], context.model().outputs()[i]));
    for (const megjit_tensor* input : lists.inputs)
        lists.given.push_back(input_of(not_null(input, "an input")));
    context.run(lists.given, lists.values);
    give_outputs(context.model().outputs(), lists);
}

thread_local Lists lists;

void refuse_twice(bool is_given, std::string_view kind, const char* name) {
    if (is_given)
        runtime::user_error(
            {.what = cat(kind, " ", name, " is given twice"), .fix = "give each name once"});
}

}  // namespace

extern "C" {

megjit_status megjit_model_load(const char* path, const megjit_model_options* options,
                                megjit_model** model) {
    return load([&] { return read_model(&not_null(path, "path")); }, options, model);
}

megjit_status megjit_model_load_memory(const void* data, size_t bytes,
                                       const megjit_model_options* options, megjit_model** model) {
    return load([&] {
        if (bytes) not_null(static_cast<const char*>(data), "data");
        return std::make_shared<File>(
            jit::from_bytes({static_cast<const char*>(data), bytes}, "in memory"));
    }, options, model);
}

megjit_status megjit_model_share(const megjit_model* model, const megjit_model_options* options,
                                 megjit_model** other) {
    return guarded([&] {
        megjit_model*& result = not_null(other, "other");
        result = new megjit_model{std::make_shared<Model>(not_null(model, "model").model->file(),
                                                          options_from_c(options))};
    });
}

megjit_status megjit_model_save(const megjit_model* model, const char* path) {
    return guarded([&] {
        File& file = *not_null(model, "model").model->file();
        const std::filesystem::path target = &not_null(path, "path");
        as_bad_file([&] { file.save(target); });
    });
}

void megjit_model_free(megjit_model* model) { delete model; }

megjit_status megjit_model_function_count(const megjit_model* model, size_t* count) {
    return guarded([&] {
        not_null(count, "count") = not_null(model, "model").model->file()->functions().size();
    });
}

megjit_status megjit_model_function(const megjit_model* model, size_t index, const char** name) {
    return guarded([&] {
        const auto& functions = not_null(model, "model").model->file()->functions();
        not_null(name, "name") = at_index(functions, index)->name.c_str();
    });
}

megjit_status megjit_model_state_count(const megjit_model* model, size_t* count) {
    return guarded([&] {
        not_null(count, "count") = not_null(model, "model").model->file()->states().size();
    });
}

megjit_status megjit_model_state(const megjit_model* model, size_t index,
                                 megjit_tensor_info* info) {
    return guarded([&] {
        const Port& port = at_index(not_null(model, "model").model->file()->states(), index);
        not_null(info, "info") = info_of(port.name.c_str(), port.type);
    });
}

megjit_status megjit_model_state_value(const megjit_model* model, const char* name,
                                       megjit_tensor** value) {
    return guarded([&] {
        megjit_tensor*& result = not_null(value, "value");
        File& file = *not_null(model, "model").model->file();
        result = tensor_of(file.value(file.state(&not_null(name, "name")))).release();
    });
}

megjit_status megjit_model_set_state(const megjit_model* model, const char* name,
                                     const megjit_tensor* value) {
    return guarded([&] {
        File& file = *not_null(model, "model").model->file();
        const size_t state = file.state(&not_null(name, "name"));
        file.set(state, input_of(not_null(value, "value")));
    });
}

megjit_status megjit_model_input_count(const megjit_model* model, size_t* count) {
    return count_of(model, &Model::inputs, count);
}
megjit_status megjit_model_output_count(const megjit_model* model, size_t* count) {
    return count_of(model, &Model::outputs, count);
}
megjit_status megjit_model_parameter_count(const megjit_model* model, size_t* count) {
    return count_of(model, &Model::parameters, count);
}

megjit_status megjit_model_input(const megjit_model* model, size_t index,
                                 megjit_tensor_info* info) {
    return describe(model, &Model::inputs, index, info);
}
megjit_status megjit_model_output(const megjit_model* model, size_t index,
                                  megjit_tensor_info* info) {
    return describe(model, &Model::outputs, index, info);
}
megjit_status megjit_model_output_is_bounded(const megjit_model* model, size_t index,
                                             int32_t* is_bounded) {
    return guarded([&] {
        const Port& port = at_index(not_null(model, "model").model->outputs(), index);
        not_null(is_bounded, "is_bounded") = port.count >= 0;
    });
}
megjit_status megjit_model_parameter(const megjit_model* model, size_t index,
                                     megjit_tensor_info* info) {
    return describe(model, &Model::parameters, index, info);
}

megjit_status megjit_model_parameter_value(const megjit_model* model, size_t index,
                                           megjit_tensor** value) {
    return guarded([&] {
        megjit_tensor*& result = not_null(value, "value");
        const Model& of = *not_null(model, "model").model;
        (void)at_index(of.parameters(), index);
        result = tensor_of(of.parameter_value(index)).release();
    });
}

megjit_status megjit_model_json(const megjit_model* model, const char* what, char* text,
                                size_t capacity, size_t* needed) {
    return guarded([&] {
        const std::string json = not_null(model, "model").model->json(&not_null(what, "what"));
        if (capacity) {
            not_null(text, "text");
            const size_t shown = std::min(json.size(), capacity - 1);
            std::copy_n(json.data(), shown, text);
            text[shown] = 0;
        }
        not_null(needed, "needed") = json.size() + 1;
    });
}

megjit_status megjit_context_create(const megjit_model* model, megjit_context** context) {
    return guarded([&] {
        megjit_context*& result = not_null(context, "context");
        result = new megjit_context{Context(not_null(model, "model").model)};
    });
}

void megjit_context_free(megjit_context* context) { delete context; }

megjit_status megjit_run(megjit_context* context, const megjit_tensor* const* inputs,
                         size_t input_count, megjit_tensor** outputs, size_t output_count) {
    return guarded([&] {
        Context& on = not_null(context, "context").context;
        check_count("inputs", input_count, on.model().inputs().size());
        check_count("outputs", output_count, on.model().outputs().size());
        if (input_count) not_null(inputs, "inputs");
        if (output_count) not_null(outputs, "outputs");
        lists.inputs.assign(inputs, inputs + input_count);
        lists.outputs.resize(output_count);
        for (size_t i = 0; i < output_count; ++i) lists.outputs[i] = &outputs[i];
        run(on, lists);
    });
}

megjit_status megjit_run_named(megjit_context* context, const megjit_named_tensor* inputs,
                               size_t input_count, megjit_named_tensor* outputs,
                               size_t output_count) {
    return guarded([&] {
        Context& on = not_null(context, "context").context;
        const std::vector<Port>&ins = on.model().inputs(), &outs = on.model().outputs();
        std::vector<const megjit_tensor*>& given = lists.inputs;
        given.assign(ins.size(), nullptr);
        for (size_t i = 0; i < input_count; ++i) {
            const megjit_named_tensor& input = (&not_null(inputs, "inputs"))[i];
            const megjit_tensor*& place =
                given[position_of("input", ins, &not_null(input.name, "a name"))];
            refuse_twice(place, "input", input.name);
            place = &not_null(input.tensor, "an input");
        }
        for (size_t i = 0; i < given.size(); ++i)
            if (!given[i])
                runtime::user_error({.what = cat("input ", ins[i].name, " is missing"),
                                     .why = cat("the model needs all of its ", ins.size()),
                                     .fix = "give it too"});
        std::vector<megjit_tensor**>& places = lists.outputs;
        places.assign(outs.size(), nullptr);
        for (size_t i = 0; i < output_count; ++i) {
            megjit_named_tensor& output = (&not_null(outputs, "outputs"))[i];
            megjit_tensor**& place =
                places[position_of("output", outs, &not_null(output.name, "a name"))];
            refuse_twice(place, "output", output.name);
            place = &output.tensor;
        }
        run(on, lists);
    });
}

}  // extern "C"
