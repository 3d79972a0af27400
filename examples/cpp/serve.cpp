// Serves a model from several threads: reads requests from standard input, the numbers of the
// model's input a line, and prints the largest score of each, in their order.
//
//   serve MODEL [THREADS]
#include <megjit/megjit.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

namespace {

using Numbers = std::vector<float>;

// Requests wait here until a thread is free; each is a task whose future has the answer.
class Queue {
public:
    using Task = std::packaged_task<std::string(megjit::Context&)>;

    void add(Task task) {
        {
            const std::lock_guard lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        changed_.notify_one();
    }
    void close() {
        {
            const std::lock_guard lock(mutex_);
            is_closed_ = true;
        }
        changed_.notify_all();
    }
    // False when there will be none any more.
    bool take(Task& task) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return is_closed_ || !tasks_.empty(); });
        if (tasks_.empty()) return false;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        return true;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Task> tasks_;
    bool is_closed_ = false;
};

std::string answer(megjit::Context& context, const megjit::TensorInfo& input, Numbers numbers) {
    try {
        numbers.resize(input.bytes / sizeof(float));
        std::vector<megjit::Tensor> inputs;
        inputs.push_back(megjit::Tensor::borrow(numbers.data(), input.shape));
        const std::vector<megjit::Tensor> outputs = context.run(inputs);
        const std::span<float> scores = outputs.front().as<float>();
        return std::to_string(std::max_element(scores.begin(), scores.end()) - scores.begin());
    } catch (const std::exception& error) { return error.what(); }
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 2) return std::cerr << "usage: serve MODEL [THREADS]\n", 2;
    const megjit::Model model(argv[1]);
    const megjit::TensorInfo input = model.inputs().at(0);
    Queue queue;
    std::vector<std::thread> threads;
    for (int i = 0; i < (argc > 2 ? std::stoi(argv[2]) : 4); ++i)
        threads.emplace_back([&] {
            megjit::Context context(model);  // one for each thread; the weights are the model's
            for (Queue::Task task; queue.take(task);) task(context);
        });
    std::vector<std::future<std::string>> answers;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        Numbers numbers;
        for (float number = 0; words >> number;) numbers.push_back(number);
        Queue::Task task([&input, numbers = std::move(numbers)](megjit::Context& context) {
            return answer(context, input, numbers);
        });
        answers.push_back(task.get_future());
        queue.add(std::move(task));
    }
    queue.close();
    for (std::future<std::string>& each : answers) std::cout << each.get() << '\n';
    for (std::thread& thread : threads) thread.join();
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
