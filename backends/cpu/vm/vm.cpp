#include "backends/cpu/vm/vm.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "backends/cpu/vm/vm_kernels.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu {
namespace {

using namespace runtime;
using codegen::Inner;
using codegen::KernelIR;
using codegen::LaunchShape;

constexpr int64_t kBlock =
    512;  // elements of a block: a dozen registers of 2 KiB stay in the first-level cache
constexpr int64_t kGrain = 32768;  // this many cheap elements are worth a second thread

bool is_dense(const LaunchShape& launch, size_t input) {
    const size_t rank = launch.extents.size();
    int64_t step = 1;
    for (size_t axis = rank; axis-- > 0;) {
        if (launch.extents[axis] != 1 && launch.strides[input * rank + axis] != step) return false;
        step *= launch.extents[axis];
    }
    return true;
}

bool is_constant(const LaunchShape& launch, size_t input) {
    const size_t rank = launch.extents.size();
    for (size_t axis = 0; axis < rank; ++axis)
        if (launch.extents[axis] != 1 && launch.strides[input * rank + axis] != 0) return false;
    return true;
}

// Is a value computed in the form in which it is stored?
bool is_word(DType dtype) {
    return dtype == DType::f32 || dtype == DType::i32 || size_of(dtype) == 8;
}
int64_t bytes_in(ScalarType type) { return bits_in(type) == 64 ? 8 : 4; }

// Scratch of this thread, kept between runs.
struct Scratch {
    void* data = nullptr;
    size_t bytes = 0;
    ~Scratch() { std::free(data); }
    char* of(size_t wanted) {
        if (wanted > bytes) {
            std::free(data);
            wanted = (wanted + 63) / 64 * 64;
            data = std::aligned_alloc(64, wanted);
            bytes = data ? wanted : 0;
            if (!data) throw std::bad_alloc();
        }
        return static_cast<char*>(data);
    }
};
thread_local Scratch scratch;

// Where a value of the program is while a block runs.
struct Place {
    enum Kind : uint8_t { nowhere, reg, constant, input, output } kind = nowhere;
    int index = 0;
};

struct Instruction {
    StepFn run = nullptr;
    int out = 0, a = 0, b = 0, c = 0;  // ids of values
};
struct Load {
    LoadFn run = nullptr;
    int value = 0, input = 0;
    size_t bytes = 0;  // bytes of an element
    int64_t width = 4;  // bytes of a value
    bool dense = false, constant = false, words = false;
};
struct Store {
    StoreFn run = nullptr;
    int value = 0, output = 0;
    size_t bytes = 0;
};

class VmExecutable final : public Executable {
public:
    VmExecutable(const KernelIR& kernel, const LaunchShape& launch)
        : kernel_(kernel), launch_(launch), numel_(launch.numel()) {
        place_values();
        make_steps();
        block_ = registers_ == 0 && constants_.empty() ? std::max<int64_t>(numel_, 1) : kBlock;
        const int64_t words = std::min(block_, (std::max<int64_t>(numel_, 1) + 15) / 16 * 16);
        for (const ScalarInst& inst : kernel_.program.insts())
            register_width_ = std::max(register_width_, bytes_in(inst.type));
        register_bytes_ = static_cast<size_t>(words * register_width_);
        fill_constants(words);
    }

    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void*) const override {
        // A few elements need no thread, no lambda and no division.
        if (numel_ == 0) return;
        if (numel_ * weight_ <= kGrain) return run_range(inputs, outputs, 0, numel_);
        parallel_for(numel_, std::max<int64_t>(kGrain / weight_, kBlock), 64,
                     [&](int64_t lo, int64_t hi) { run_range(inputs, outputs, lo, hi); });
    }

    bool may_alias(int out, int in) const override {
        return codegen::may_lie_on(kernel_, launch_, out, in);
    }

private:
    void place_values() {
        const ScalarProgram& program = kernel_.program;
        places_.resize(static_cast<size_t>(program.size()));
        last_use_.assign(places_.size(), -1);
        for (int id = 0; id < program.size(); ++id)
            for (int k = 0; k < arity_of(program[id].op); ++k) last_use_[program[id].args[k]] = id;
        for (int id : kernel_.results) last_use_[id] = program.size();
        // The last instruction may write directly to its output: nothing is read after it, so the
        // output may lie on an input.
        const int last = program.size() - 1;
        const bool writes = kernel_.results.size() == 1 && kernel_.results[0] == last &&
                            is_word(kernel_.outputs[0].dtype) && arity_of(program[last].op) > 0;
        std::vector<int> free_registers[2];  // for values of 32 and of 64 bits
        const auto free_for = [&](const ScalarInst& value) -> std::vector<int>& {
            return free_registers[bytes_in(value.type) == 8];
        };
        for (int id = 0; id < program.size(); ++id) {
            const ScalarInst& inst = program[id];
            if (last_use_[id] < 0) continue;
            Place& place = places_[id];
            if (inst.op == ScalarOp::constant) {
                place = {Place::constant, static_cast<int>(constants_.size())};
                constants_.push_back({inst.type, inst.bits});
                continue;
            }
            if (inst.op == ScalarOp::input && is_word(kernel_.inputs[inst.bits].dtype) &&
                is_dense(launch_, inst.bits)) {
                place = {Place::input, static_cast<int>(inst.bits)};
                continue;
            }
            // Operands that are used here for the last time give their registers back first: loops
            // allow out == operand. All inputs are loaded before the first step, so no input may
            // take over a register.
            for (int k = 0; k < arity_of(inst.op); ++k) {
                const int operand = inst.args[k];
                const bool again = std::find(inst.args.begin(), inst.args.begin() + k, operand) !=
                                   inst.args.begin() + k;
                if (!again && last_use_[operand] == id && is_reusable(operand))
                    free_for(program[operand]).push_back(places_[operand].index);
            }
            if (writes && id == last) {
                place = {Place::output, 0};
                continue;
            }
            if (auto& free = free_for(inst); inst.op != ScalarOp::input && !free.empty()) {
                place = {Place::reg, free.back()};
                free.pop_back();
            } else {
                place = {Place::reg, registers_++};
            }
        }
    }

    // An input of one element for all indices is loaded once, before the first block: it keeps its
    // register.
    bool is_reusable(int id) const {
        const ScalarInst& inst = kernel_.program[id];
        return places_[id].kind == Place::reg &&
               !(inst.op == ScalarOp::input && is_constant(launch_, inst.bits));
    }

    void make_steps() {
        const VmKernels& kernels = vm_kernels();
        for (int id = 0; id < kernel_.program.size(); ++id) {
            const ScalarInst& inst = kernel_.program[id];
            const Place& place = places_[id];
            if (place.kind == Place::nowhere || inst.op == ScalarOp::constant) continue;
            if (inst.op == ScalarOp::input) {
                if (place.kind != Place::reg) continue;
                const DType dtype = kernel_.inputs[inst.bits].dtype;
                loads_.push_back({kernels.load(dtype), id, static_cast<int>(inst.bits),
                                  size_of(dtype), bytes_in(inst.type), is_dense(launch_, inst.bits),
                                  is_constant(launch_, inst.bits),
                                  is_word(dtype) && size_of(dtype) == 4});
                continue;
            }
            const ScalarType type = kernel_.program[inst.args[0]].type;
            Instruction step{inst.op == ScalarOp::narrow ? kernels.narrow(inst.narrow_to)
                                                         : kernels.step(inst.op, type, inst.type),
                             id, inst.args[0], std::max(inst.args[1], 0),
                             std::max(inst.args[2], 0)};
            if (!step.run) throw InternalError(cat("the VM has no loop for ", name_of(inst.op)));
            steps_.push_back(step);
            weight_ += inst.op >= ScalarOp::exp && inst.op <= ScalarOp::digamma ? 8 : 1;
        }
        weight_ = std::max<int64_t>(1, weight_ / 2);
        for (size_t k = 0; k < kernel_.results.size(); ++k)
            if (places_[kernel_.results[k]].kind != Place::output)
                stores_.push_back({kernels.store(kernel_.outputs[k].dtype), kernel_.results[k],
                                   static_cast<int>(k), size_of(kernel_.outputs[k].dtype)});
    }

    void fill_constants(int64_t words) {
        const size_t stride = register_bytes_ / sizeof(uint32_t);
        constant_words_.resize(constants_.size() * stride);
        for (size_t k = 0; k < constants_.size(); ++k) {
            const auto [type, bits] = constants_[k];
            uint32_t* const to = constant_words_.data() + k * stride;
            if (bytes_in(type) == 8) std::fill_n(reinterpret_cast<uint64_t*>(to), words, bits);
            else
                std::fill_n(to, words,
                            static_cast<uint32_t>(type == ScalarType::b1 ? 0u - bits : bits));
        }
    }

    void run_range(void* const* inputs, void* const* outputs, int64_t lo, int64_t hi) const {
        constexpr size_t kFew = 64;
        char* few[kFew];
        const bool is_long = places_.size() > kFew;
        const size_t bytes = static_cast<size_t>(registers_) * register_bytes_;
        char* registers =
            bytes || is_long
                ? scratch.of(bytes + (is_long ? places_.size() * sizeof(char*) + 64 : 0))
                : nullptr;
        char** at = is_long ? reinterpret_cast<char**>(registers + bytes) : few;
        for (size_t id = 0; id < places_.size(); ++id) {
            const Place& place = places_[id];
            switch (place.kind) {
                case Place::nowhere: at[id] = nullptr; break;
                case Place::reg:
                    at[id] = registers + static_cast<size_t>(place.index) * register_bytes_;
                    break;
                case Place::constant:
                    at[id] =
                        reinterpret_cast<char*>(const_cast<uint32_t*>(constant_words_.data())) +
                        static_cast<size_t>(place.index) * register_bytes_;
                    break;
                case Place::input:
                    at[id] = static_cast<char*>(inputs[place.index]) + lo * width_of(id);
                    break;
                case Place::output:
                    at[id] = static_cast<char*>(outputs[place.index]) + lo * width_of(id);
                    break;
            }
        }
        for (const Load& load : loads_)
            if (load.constant)
                load.run(at[load.value], inputs[load.input], 0, std::min(block_, hi - lo));
        for (int64_t begin = lo; begin < hi; begin += block_) {
            const int64_t n = std::min(block_, hi - begin);
            for (const Load& load : loads_) {
                if (load.constant) continue;
                const char* from = static_cast<const char*>(inputs[load.input]);
                if (load.dense)
                    load.run(at[load.value], from + begin * static_cast<int64_t>(load.bytes), 1, n);
                else load_walk(load, at[load.value], from, begin, n);
            }
            for (const Instruction& step : steps_)
                step.run(at[step.out], at[step.a], at[step.b], at[step.c], n);
            for (const Store& store : stores_)
                store.run(static_cast<char*>(outputs[store.output]) +
                              begin * static_cast<int64_t>(store.bytes),
                          at[store.value], n);
            for (size_t id = 0; id < places_.size(); ++id)
                if (places_[id].kind == Place::input || places_[id].kind == Place::output)
                    at[id] += n * width_of(id);
        }
    }

    int64_t width_of(size_t id) const { return bytes_in(kernel_.program.insts()[id].type); }

    // Loads elements begin..begin+n of the iteration space, in runs along its innermost axis.
    void load_walk(const Load& load, char* to, const char* from, int64_t begin, int64_t n) const {
        const int rank = static_cast<int>(launch_.extents.size());
        const int64_t* extents = launch_.extents.data();
        const int64_t* strides = launch_.strides.data() + load.input * rank;
        int64_t index[kMaxRank + 1];
        int64_t offset = 0, rest = begin;
        for (int axis = rank - 1; axis >= 0; --axis) {
            index[axis] = rest % extents[axis];
            rest /= extents[axis];
            offset += index[axis] * strides[axis];
        }
        const int inner = rank - 1;
        while (n > 0) {
            const int64_t run = std::min(n, extents[inner] - index[inner]);
            // A call costs more than copying a handful of words.
            if (run < 16 && load.words) {
                const int32_t* words = reinterpret_cast<const int32_t*>(from) + offset;
                for (int64_t k = 0; k < run; ++k)
                    reinterpret_cast<int32_t*>(to)[k] = words[k * strides[inner]];
            } else {
                load.run(to, from + offset * static_cast<int64_t>(load.bytes), strides[inner], run);
            }
            to += run * load.width;
            n -= run;
            if (n == 0) break;
            offset -= index[inner] * strides[inner];  // back to the row's first element
            index[inner] = 0;
            for (int axis = inner - 1; axis >= 0; --axis) {
                offset += strides[axis];
                if (++index[axis] < extents[axis]) break;
                offset -= extents[axis] * strides[axis];
                index[axis] = 0;
            }
        }
    }

    KernelIR kernel_;
    LaunchShape launch_;
    int64_t numel_ = 0;
    std::vector<Place> places_;
    std::vector<int> last_use_;
    std::vector<std::pair<ScalarType, uint64_t>> constants_;
    std::vector<uint32_t> constant_words_;  // each fills a register
    std::vector<Load> loads_;
    std::vector<Instruction> steps_;
    std::vector<Store> stores_;
    int registers_ = 0;
    int64_t block_ = kBlock;
    int64_t register_width_ = 4;  // for the widest values
    size_t register_bytes_ = 0;
    int64_t weight_ = 0;  // cost of an element, in cheap instructions
};

}  // namespace

std::shared_ptr<const Executable> prepare_vm(const KernelIR& kernel, const LaunchShape& launch) {
    return std::make_shared<const VmExecutable>(kernel, launch);
}

const VmKernels& vm_kernels() {
    static const VmKernels kernels = MEGJIT_BEST(vm_kernels());
    return kernels;
}

}  // namespace megjit::cpu
