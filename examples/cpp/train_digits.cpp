// train_digits.cpp: trains the network of examples/train_digits.py, without Python and with its
// losses to the bit.
//
//     python examples/cpp/dump_digits.py FOLDER && train_digits FOLDER
//
// Afterwards FOLDER/trained.dump has the trained network, to go on with or to predict with.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include <megjit/megjit.hpp>

namespace {

constexpr std::int64_t kBatch = 64, kPixels = 8 * 8, kClasses = 10;
constexpr double kRate = 0.05;  // of learning; a tenth of it after two thirds, and again

template <class T>
std::vector<T> read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary | std::ios::ate);
    if (!stream) throw std::runtime_error("cannot read " + path);
    std::vector<T> numbers(static_cast<std::size_t>(stream.tellg()) / sizeof(T));
    stream.seekg(0);
    stream.read(reinterpret_cast<char*>(numbers.data()),
                static_cast<std::streamsize>(numbers.size() * sizeof(T)));
    return numbers;
}

// What is drawn in an epoch follows from its number: as megengine.random.seed does.
void begin_epoch(const megjit::Model& model, int epoch, int epochs) {
    const std::vector<std::int64_t> no_axes, four = {4};
    const int drops = (epoch >= epochs * 2 / 3) + (epoch >= epochs * 5 / 6);
    const megjit::Tensor rate(MEGJIT_FLOAT32, no_axes), seed(MEGJIT_INT32, four);
    rate.as<float>()[0] = static_cast<float>(kRate * std::pow(0.1, drops));
    std::ranges::copy(std::vector{epoch, 0, 0, 0}, seed.as<std::int32_t>().begin());
    model.set_state("lr", rate);
    model.set_state("random", seed);
}

std::vector<float> train(const megjit::Model& step, const std::string& folder) {
    const auto order = read<std::int32_t>(folder + "/order");
    const auto images = read<float>(folder + "/train_images");
    const auto labels = read<std::int32_t>(folder + "/train_labels");
    const auto rows = static_cast<std::int64_t>(labels.size()) / kBatch * kBatch;  // of an epoch
    const int epochs = static_cast<int>(static_cast<std::int64_t>(order.size()) / rows);

    megjit::Context context(step);
    std::vector<megjit::Tensor> batch;
    for (const megjit::TensorInfo& input : step.inputs())
        batch.emplace_back(input.dtype, input.shape);
    std::vector<float> losses;
    for (int epoch = 0; epoch < epochs; ++epoch) {
        begin_epoch(step, epoch, epochs);
        double sum = 0;
        for (std::int64_t first = 0; first < rows; first += kBatch) {
            for (std::int64_t i = 0; i < kBatch; ++i) {
                const auto row = order[static_cast<std::size_t>(epoch * rows + first + i)];
                std::copy_n(images.begin() + row * kPixels, kPixels,
                            batch[0].as<float>().begin() + i * kPixels);
                batch[1].as<std::int32_t>()[static_cast<std::size_t>(i)] =
                    labels[static_cast<std::size_t>(row)];
            }
            losses.push_back(context.run(batch)[0].as<float>()[0]);
            sum += losses.back();
        }
        std::cout << "epoch " << epoch + 1 << ": loss "
                  << sum * static_cast<double>(kBatch) / static_cast<double>(rows) << '\n';
    }
    return losses;
}

// Returns the share of the held-out images that are told right.
double accuracy(const megjit::Model& predict, const std::string& folder) {
    auto images = read<float>(folder + "/test_images");
    const auto labels = read<std::int32_t>(folder + "/test_labels");
    std::vector<megjit::Tensor> input;
    input.push_back(megjit::Tensor::borrow(images.data(), predict.inputs().at(0).shape));
    const std::vector<megjit::Tensor> output = megjit::Context(predict).run(input);
    std::size_t right = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const auto scores = output[0].as<float>().subspan(i * kClasses, kClasses);
        right += std::ranges::max_element(scores) - scores.begin() == labels[i];
    }
    return static_cast<double>(right) / static_cast<double>(labels.size());
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) throw std::runtime_error("usage: train_digits FOLDER");
    const std::string folder = argv[1];
    const megjit::Model step(folder + "/digits.dump");  // its first function
    const std::vector<float> losses = train(step, folder);
    std::cout << "accuracy " << accuracy(step.function("predict"), folder) << '\n';
    step.save(folder + "/trained.dump");
    std::ofstream(folder + "/losses", std::ios::binary)
        .write(reinterpret_cast<const char*>(losses.data()),
               static_cast<std::streamsize>(losses.size() * sizeof(float)));
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
