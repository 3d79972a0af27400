#include "backends/cpu/onednn/dnn.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "backends/cpu/onednn/dnn_threads.h"
#include "runtime/host/blocked_signals.h"
#include "runtime/host/error.h"
#include "runtime/host/isa.h"
#include "runtime/host/parallel.h"

namespace megjit::cpu {

using runtime::DType;
using runtime::Layout;
using runtime::OpCall;
using runtime::Shape;
using runtime::Type;

namespace dnn {
namespace {

// Where all operands are so small, other threads have no use: they are not woken.
constexpr size_t kAlone = size_t{16} << 10;  // in bytes

constexpr size_t kCodeBytes = size_t{128} << 10;  // of a primitive, measured: 100 to 200 kB

constexpr size_t kMaxOperands = 5;  // two factors, the result, a bias and an addend

void check(dnnl_status_t status, std::string_view op) {
    if (status == dnnl_success) return;
    throw runtime::DeviceError(
        runtime::cat(op, ": oneDNN failed with status ", static_cast<int>(status)));
}

// CPU streams hold no state, but threads must not share them. They are never destroyed: a thread
// may still compute while static objects are destroyed.
dnnl_stream_t stream() {
    thread_local dnnl_stream_t mine = [] {
        dnnl_stream_t made = nullptr;
        check(dnnl_stream_create(&made, engine().get(), dnnl_stream_default_flags), "stream");
        return made;
    }();
    return mine;
}

// oneDNN detects the CPU itself: we only set a bound, before it chooses its first kernel.
void bound_isa() {
    if (runtime::isa() == runtime::machine_isa()) return;
    constexpr dnnl::cpu_isa kMost[] = {dnnl::cpu_isa::avx2, dnnl::cpu_isa::avx512_core,
                                       dnnl::cpu_isa::avx512_core_fp16};
    if (dnnl::set_max_cpu_isa(kMost[static_cast<size_t>(runtime::isa())]) != dnnl::status::success)
        throw runtime::InternalError("oneDNN was in use before its instruction set was bounded");
}

// In oneDNN's own matrix products ("gemm:jit", also inside of convolutions) the stack pointer
// points into a buffer on the heap. A signal would write its frame below that buffer.
bool moves_stack(const dnnl::primitive_desc_base& desc) {
    return std::string_view(desc.impl_info_str()).find("gemm") != std::string_view::npos;
}

// The descriptor says how operands lie and how large the workspace must be. The first run makes the
// code, for most primitives that plans and passes ask about never run.
class PrimitiveExecutable final : public runtime::Executable {
public:
    PrimitiveExecutable(std::string op, dnnl::primitive_desc_base desc,
                        std::vector<Operand> operands, std::string remark)
        : op_(std::move(op)),
          desc_(std::move(desc)),
          operands_(std::move(operands)),
          remark_(std::move(remark)),
          moves_stack_(moves_stack(desc_)),
          threads_(runtime::thread_count()) {
        size_t bytes = 0;
        for (const Operand& operand : operands_) bytes += operand.desc.get_size();
        is_alone_ = bytes <= kAlone;
        with_threads(threads_, [&] { lay_out(); });
    }
    ~PrimitiveExecutable() override {
        delete spare_.load();
        delete primitives_.load();
    }
    PrimitiveExecutable(const PrimitiveExecutable&) = delete;
    PrimitiveExecutable& operator=(const PrimitiveExecutable&) = delete;

    size_t workspace_bytes() const override { return workspace_; }
    size_t held_bytes() const override { return kCodeBytes; }
    std::string_view remark() const override { return remark_; }

    void enqueue(runtime::Stream&, void* const* inputs, void* const* outputs,
                 void* workspace) const override {
        const auto run = [&] { execute(inputs, outputs, static_cast<char*>(workspace)); };
        if (is_alone_) with_threads(threads_, std::ref(run));  // copying `run` would allocate
        else with_helpers(threads_, std::ref(run));
    }

private:
    void lay_out() {
        size_t scratch = desc_.scratchpad_desc().get_size();
        for (const Operand& operand : operands_) {
            Reordering step;
            step.inner = desc_.query_md(dnnl::query::exec_arg_md, operand.arg);
            if (step.inner.is_zero())
                step.inner = operand.desc;  // for scales: oneDNN takes them as they are
            if (step.inner != operand.desc) {
                const auto& [from, to] = operand.is_output ? std::pair(step.inner, operand.desc)
                                                           : std::pair(operand.desc, step.inner);
                step.desc =
                    dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes());
                scratch = std::max(scratch, step.desc.scratchpad_desc().get_size());
                step.offset = workspace_;
                workspace_ += aligned(step.inner.get_size());
            }
            steps_.push_back(std::move(step));
        }
        scratch_desc_ =
            dnnl::memory::desc({static_cast<dnnl_dim_t>(scratch)}, dnnl::memory::data_type::u8,
                               dnnl::memory::format_tag::a);
        scratch_offset_ = workspace_;
        workspace_ += scratch;
    }

    void execute(void* const* inputs, void* const* outputs, char* work) const {
        const Primitives& code = primitives();
        std::unique_ptr<Memories> mine(spare_.exchange(nullptr, std::memory_order_acquire));
        if (!mine) mine.reset(new Memories(*this));
        dnnl_exec_arg_t args[kMaxOperands + 1];
        const size_t count = operands_.size();
        dnnl_memory_t scratch = mine->scratch.get();
        const auto reorder = [&](size_t i, dnnl_memory_t from, dnnl_memory_t to) {
            const dnnl_exec_arg_t operands[] = {
                {DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch}};
            check(dnnl_primitive_execute(code.reorders[i].get(), stream(), 3, operands), op_);
        };
        check(dnnl_memory_set_data_handle(scratch, work + scratch_offset_), op_);
        for (size_t i = 0; i < count; ++i) {
            const Operand& operand = operands_[i];
            dnnl_memory_t user = mine->user[i].get(), inner = user;
            check(dnnl_memory_set_data_handle(
                      user, (operand.is_output ? outputs : inputs)[operand.index]),
                  op_);
            if (code.reorders[i]) {
                inner = mine->inner[i].get();
                check(dnnl_memory_set_data_handle(inner, work + steps_[i].offset), op_);
                if (!operand.is_output) reorder(i, user, inner);
            }
            args[i] = {operand.arg, inner};
        }
        args[count] = {DNNL_ARG_SCRATCHPAD, scratch};
        compute(code.product.get(), {args, count + 1});
        for (size_t i = 0; i < count; ++i)
            if (operands_[i].is_output && code.reorders[i])
                reorder(i, mine->inner[i].get(), mine->user[i].get());
        delete spare_.exchange(mine.release(),
                               std::memory_order_acq_rel);  // another run may have released it
    }

    void compute(dnnl_primitive_t product, std::span<const dnnl_exec_arg_t> args) const {
        std::optional<runtime::BlockedSignals> blocked;
        if (moves_stack_) blocked.emplace();
        check(dnnl_primitive_execute(product, stream(), static_cast<int>(args.size()), args.data()),
              op_);
    }

    struct Reordering {
        dnnl::memory::desc inner = {};
        dnnl::primitive_desc_base desc = {};  // empty: the operand needs no reorder
        size_t offset = 0;  // place of the reordered copy in the workspace
    };
    struct Destroy {
        void operator()(dnnl_primitive_t p) const { dnnl_primitive_destroy(p); }
    };
    using Primitive = std::unique_ptr<std::remove_pointer_t<dnnl_primitive_t>, Destroy>;
    struct Primitives {
        Primitive product;
        std::vector<Primitive> reorders;  // for each operand; null where none is needed
    };
    // The memory objects of one run. One set is kept for the next run; simultaneous runs make their
    // own.
    struct Memories {
        explicit Memories(const PrimitiveExecutable& of)
            : scratch(of.scratch_desc_, engine(), nullptr) {
            for (size_t i = 0; i < of.operands_.size(); ++i) {
                user.emplace_back(of.operands_[i].desc, engine(), nullptr);
                inner.emplace_back(of.steps_[i].inner, engine(), nullptr);
            }
        }
        std::vector<dnnl::memory> user, inner;
        dnnl::memory scratch;
    };

    Primitive made_of(const dnnl::primitive_desc_base& desc) const {
        dnnl_primitive_t made = nullptr;
        if (desc) check(dnnl_primitive_create(&made, desc.get()), op_);
        return Primitive(made);
    }

    // Made by the first run; if two runs are first, one of them takes the other's.
    const Primitives& primitives() const {
        const Primitives* known = primitives_.load(std::memory_order_acquire);
        if (known) return *known;
        auto made = std::make_unique<Primitives>(made_of(desc_));
        for (const Reordering& step : steps_) made->reorders.push_back(made_of(step.desc));
        if (primitives_.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
            return *made.release();
        return *known;
    }

    std::string op_;
    dnnl::primitive_desc_base desc_;
    std::vector<Operand> operands_;
    std::string remark_;
    bool moves_stack_ = false, is_alone_ = false;
    int threads_ = 1;
    std::vector<Reordering> steps_;
    dnnl::memory::desc scratch_desc_;
    size_t scratch_offset_ = 0, workspace_ = 0;
    mutable std::atomic<const Primitives*> primitives_{nullptr};
    mutable std::atomic<Memories*> spare_{nullptr};
};

}  // namespace

dnnl::engine& engine() {
    static dnnl::engine* const only = [] {
        bound_isa();
        // Executables hold their code, and PreparedOps shares them. oneDNN would keep that of 1,024
        // primitives more. It would also make descriptors of the ones kept, and in 3.2 those of
        // brgconv_1x1 point into the descriptor that the first was made from, which may be gone.
        dnnl::set_primitive_cache_capacity(0);
        return new dnnl::engine(dnnl::engine::kind::cpu, 0);
    }();
    return *only;
}

dnnl::memory::data_type data_type(DType dtype) {
    switch (dtype) {
        case DType::f32: return dnnl::memory::data_type::f32;
        case DType::f16: return dnnl::memory::data_type::f16;
        case DType::bf16: return dnnl::memory::data_type::bf16;
        case DType::i32: return dnnl::memory::data_type::s32;
        case DType::i8: return dnnl::memory::data_type::s8;
        case DType::u8: return dnnl::memory::data_type::u8;
        case DType::i16:
        case DType::u16:
        case DType::b8:
        case DType::c64:
        case DType::f64:
        case DType::i64: break;
    }
    throw runtime::InternalError(
        runtime::cat("oneDNN kernels take no ", runtime::info(dtype).name));
}

Dims dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

Slides slides_of(const runtime::Window& window) {
    const auto axes = [&](const std::array<int64_t, 3>& values) {
        return Dims(values.begin(), values.begin() + window.dims);
    };
    Slides slides{axes(window.stride), axes(window.dilation), axes(window.padding)};
    for (int64_t& step : slides.dilation) --step;
    return slides;
}

Dims strides_of(const Shape& shape, Layout layout) {
    const auto rows = shape.row_major_strides();
    Dims strides(rows.begin(), rows.begin() + shape.rank());
    if (layout == Layout::row_major || shape.rank() < 3) return strides;
    strides[1] = 1;
    int64_t step = shape[1];
    for (int axis = shape.rank() - 1; axis >= 2; --axis) {
        strides[axis] = step;
        step *= shape[axis];
    }
    strides[0] = step;
    return strides;
}

dnnl::memory::desc desc_of(const Type& type) {
    return {dims_of(type.shape), data_type(type.dtype), strides_of(type.shape, type.layout)};
}

dnnl::memory::desc activation_of(const Type& type, dnnl::memory::data_type dtype, bool any_layout) {
    if (any_layout) return {dims_of(type.shape), dtype, dnnl::memory::format_tag::any};
    return {dims_of(type.shape), dtype, strides_of(type.shape, runtime::Layout::channels_last)};
}

dnnl::memory::desc weights_of(const Type& weights, int64_t groups, dnnl::memory::data_type dtype,
                              bool any_layout) {
    Dims dims = dims_of(weights.shape);
    if (groups > 1) {
        dims[0] /= groups;
        dims.insert(dims.begin(), groups);
    }
    if (any_layout) return {dims, dtype, dnnl::memory::format_tag::any};
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return {dims, dtype, strides};
}

dnnl::primitive_attr attributes() {
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
}

dnnl::primitive_desc_base describe(const Create& create) {
    dnnl::primitive_desc_base desc;
    with_threads(runtime::thread_count(), [&] { desc = create(); });
    return desc;
}

Prepared make(const OpCall& call, const Create& create, std::vector<Operand> operands,
              std::string remark) {
    try {
        return std::make_shared<const PrimitiveExecutable>(call.op.name, describe(create),
                                                           std::move(operands), std::move(remark));
    } catch (const dnnl::error& error) {
        std::string types;
        for (const Type& input : call.inputs) types += " " + to_string(input);
        if (error.status == dnnl_out_of_memory)
            throw runtime::DeviceError(runtime::cat(call.op.name, ": out of memory for", types));
        throw runtime::DeviceError(runtime::cat(call.op.name, ": oneDNN has no kernel for", types,
                                                " (", error.what(), ")"));
    }
}

dnnl::memory::desc preferred(const Create& create, int arg) {
    return describe(create).query_md(dnnl::query::exec_arg_md, arg);
}

}  // namespace dnn
}  // namespace megjit::cpu
