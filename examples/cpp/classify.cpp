// classify.cpp: which class a dumped model gives each row of numbers; classify.c in C++20.
//
//     classify net.dump < numbers.txt
#include <algorithm>
#include <iostream>

#include <megjit/megjit.hpp>

namespace {

void classify(const char* path) {
    const megjit::Model model(path);
    const megjit::TensorInfo input = model.inputs().at(0), output = model.outputs().at(0);
    if (output.shape.size() != 2)
        throw std::runtime_error("the model does not give [rows, classes]");

    const megjit::Tensor x(input.dtype, input.shape);
    for (float& number : x.as<float>())
        if (!(std::cin >> number))
            throw std::runtime_error("there are fewer numbers than the input has elements");

    megjit::Context context(model);  // one for each thread that runs the model
    const std::pair<std::string, const megjit::Tensor*> in{input.name, &x};
    const std::vector<megjit::Tensor> results = context.run({&in, 1}, {&output.name, 1});
    const std::span<const float> scores = results[0].as<float>();

    const auto classes = static_cast<std::size_t>(output.shape[1]);
    for (std::size_t row = 0; row * classes < scores.size(); ++row) {
        const auto of_row = scores.subspan(row * classes, classes);
        const auto best = std::max_element(of_row.begin(), of_row.end());
        std::cout << "row " << row << ": class " << best - of_row.begin() << " (" << *best << ")\n";
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: classify MODEL < NUMBERS\n";
        return 1;
    }
    try {
        classify(argv[1]);
    } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
