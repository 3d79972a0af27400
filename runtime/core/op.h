// runtime/core/op.h -- OpDef: everything the system knows of one op, in one place. Whatever a pass
// wants to ask about an op is a field here. To add an element-wise op copy
// runtime/ops/softplus.cpp, and name it in runtime/ops/all_ops.cpp.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/core/scalar.h"
#include "runtime/core/tensor.h"
#include "runtime/core/type.h"
#include "runtime/host/error.h"

namespace megjit::runtime {

// Attributes are static: part of the op, never computed. Booleans are kept as ints, dtypes as their
// names, graphs as their text (jit/step/subgraph.h).
using Attr = std::variant<int64_t, double, std::vector<int64_t>, std::string>;
enum class AttrKind : uint8_t { integer, real, integers, text, graph };

struct AttrSpec {
    std::string_view name;
    AttrKind kind = AttrKind::integer;
    std::optional<Attr> fallback = std::nullopt;  // without one the attribute is required
};

// Values in the order of OpDef::attrs.
using Attrs = std::vector<Attr>;

// What an operand is, where kernels and passes must know more than its type.
enum class OperandKind : uint8_t {
    any,
    mask,  // bool, next to operands of another dtype
    activation,  // [n, c, spatial...]: may lie channels-last
    weights,  // may lie in the layout that Device::packed_layout gives for it
    places,  // integers that say where: their range is checked
    after,  // a number without a meaning, which orders ops (runtime/ops/ordered.h)
};

struct OperandSpec {
    OperandSpec(const char* name, OperandKind kind = OperandKind::any) : name(name), kind(kind) {}
    std::string_view name;
    OperandKind kind;
};

struct Loop;
struct OpDef;
// How one op's definition names another op: by a function of runtime/ops/known.h.
using OpRef = const OpDef& (*)();

// One application, seen without data.
struct OpCall {
    const OpDef& op;
    const Attrs& attrs;
    std::span<const Type> inputs;

    int64_t integer(std::string_view name) const;
    double real(std::string_view name) const;
    const std::vector<int64_t>& integers(std::string_view name) const;
    const std::string& text(std::string_view name) const;
    DType dtype(std::string_view name) const { return dtype_from_name(text(name)); }
    bool flag(std::string_view name) const { return integer(name) != 0; }
};

// The scalar view of an element-wise op: `a[0]`, `a[1]` are its inputs.
class ExprArgs {
public:
    ExprArgs(const OpCall& call, std::span<const Expr> inputs) : call(call), inputs_(inputs) {}
    Expr operator[](size_t i) const { return inputs_[i]; }
    size_t size() const { return inputs_.size(); }
    const OpCall& call;  // attributes and types

private:
    std::span<const Expr> inputs_;
};

// One application during backward. Tensors may be placeholders: gradients are written in ops.
struct GradCall {
    const OpCall& call;
    std::span<const TensorRef> inputs;
    std::span<const TensorRef> outputs;
    std::span<const TensorRef> out_grads;  // null where the output was not used
    std::span<const bool> needs;  // which inputs want a gradient
};
using Grads = std::vector<TensorRef>;  // one per input, null for none

// How inputs of different dtypes meet before `infer` (semantics, section 2).
enum class Promotion : uint8_t {
    none,  // each keeps its own
    arithmetic,  // promote()
    floating,  // promote(), and integers compute in float32
    boolean,  // all must be bool: TypeError
    integer,  // all must be integers: TypeError
};

// Result dtype of an element-wise op.
enum class Result : uint8_t { same, boolean, attribute /* "dtype" */ };

// What a tape must keep of a recorded application until backward.
enum class Keeps : uint8_t { nothing = 0, inputs = 1, outputs = 2, both = 3 };

struct Cost {
    double flops = 0;
    double bytes = 0;
    // The flops are sums of products, for which some devices have special instructions.
    bool is_product = false;
};

// What a reduction makes of a row.
enum class Reduce : uint8_t {
    sum,
    prod,  // f32, or i32 that wraps
    max,
    min,  // takes f32 (NaN wins), i32, b1 (any, all)
    argmax,
    argmin,  // take f32 or i32 and give i32, the first place in the reduced axes, row-major; the
             // first NaN wins
    mean,
    variance,  // takes f32; the variance is the biased one
    dot,  // takes f32: a sum, but the multiplication that gives an element is not rounded (fma)
};

// Sums of products: the last axis of `space` is summed over, and the others are the result's.
struct Contraction {
    Shape space = {};
    std::array<std::vector<int64_t>, 2> strides = {};  // for operands 0 and 1, by axis of the space
};

// Which elements of operand 0 appear in the result, unchanged.
enum class Access : uint8_t {
    other,  // none, or a choice that no pass asks about
    same,  // all, each at its place (perhaps in another dtype)
    broadcast,  // all, repeated by NumPy's rule
    reshaped,  // all, in row-major order
    permuted,  // all: axis i is axis perm[i] of the operand, attribute 0
    picked,  // the elements at the places that an index names
    written,  // all but the elements at the places that an index names
};

// x op number (and number op x where the op is commutative) equals another op of x, bit by bit.
struct AtNumber {
    double number = 0;
    OpRef op = nullptr;
};

// Steps on each element of a product before it is stored (runtime/ops/epilogue.h).
enum class EpilogueKind : uint8_t { bias, add, relu, mask };

// A product with such steps has a spec: `op` computes the product and then its steps; it is the
// product itself where that has steps already.
struct EpilogueSpec {
    OpRef op = nullptr;
    int bias_axis = 0;  // an axis of the result; below 0: counted from its end
    bool takes_halves = false;  // the op takes halves as well as float32
    // The product is a gradient: its steps are add and mask, which libraries of GPUs alone take.
    bool of_gradient = false;
    int bias_axis_of(const Type& result) const {
        return bias_axis < 0 ? result.rank() + bias_axis : bias_axis;
    }
};

// The batch of a graph gets another size; from = 0: it keeps its size.
struct BatchChange {
    int64_t from = 0;
    int64_t to = 0;
};

struct OpDef {
    std::string name;
    // The type of the op's nodes in dumped models, as MegEngine names it, "MatrixMul"; for
    // element-wise ops their mode, "EQ". Empty: the op's name in MegEngine's spelling.
    std::string_view dumped_as = {};
    std::string doc = {};
    std::vector<OperandSpec> inputs = {};  // the last spec is repeated when the op is variadic
    bool variadic = false;
    std::vector<AttrSpec> attrs = {};
    Promotion promotion = Promotion::none;
    // The op's kernels know float64 and int64. Set by hand: kernels of element-wise ops and
    // reductions always know them, and so do ops that move elements as `access` says.
    bool takes_64_bits = false;
    bool computes_64_bits() const;

    // Element-wise ops have `expr`, and `grad_expr` where the derivative that follows from `expr`
    // is not the best (it may use the result y, which is then kept instead of x). Everything else
    // follows from these.
    Result result = Result::same;
    Expr (*expr)(const ExprArgs&) = nullptr;
    // d loss / d input k, given the result y and dy. An invalid Expr: no gradient.
    Expr (*grad_expr)(const ExprArgs&, int k, Expr y, Expr dy) = nullptr;

    // All other ops have:
    std::vector<Type> (*infer)(const OpCall&) = nullptr;
    Grads (*grad)(const GradCall&) = nullptr;  // null: not differentiable
    Keeps keeps = Keeps::both;
    // Must-alias: output 0 has the bytes of input 0 in another shape (reshape); never copied.
    bool is_view = false;
    // The output's shape depends on values, or it lies on another device: the host computes the op
    // at once, in a trace between two segments. Such an op has `direct` in place of `infer` and a
    // backend's kernel.
    std::vector<TensorRef> (*direct)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    bool is_data_dependent() const { return direct != nullptr; }
    // Writes such an op in others: the results with as many rows as they can have, with the rows
    // that count in front, and the number of these, i32[]. Null: nobody knows how many there can
    // be.
    std::vector<TensorRef> (*bounded)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    bool commutative = false;
    // A run may fail, for it checks its operands' values (index out of range) before it writes.
    bool checks_values = false;
    bool only_checks = false;  // the op does no other work
    // For an op whose only check is that an operand of places lies within an extent: that extent.
    int64_t (*extent_of_places)(const OpCall&, size_t operand) = nullptr;
    // NVIDIA's libraries may compute it as a whole: a GPU asks them before it takes a kernel of its
    // own.
    bool has_gpu_product = false;
    // Writes the same results in simpler ops (element-wise ones and reductions), for code
    // generation; empty where the op's own kernel is better. `inputs` are placeholders.
    std::vector<TensorRef> (*expand)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    // Writes the op as a loop over any number of steps (runtime/ops/loop.h), for devices without a
    // kernel of their own for it.
    Loop (*loop)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    // The attributes for operands of types `after`, whose ranks are unchanged; null: they hold no
    // extents. UserError where an attribute has more than one meaning (runtime/ops/refit.h).
    Attrs (*refit)(const OpCall& before, std::span<const Type> after, BatchChange batch) = nullptr;

    // Passes use these facts:
    Access access = Access::other;
    std::optional<Reduce> reduction = {};  // over reduced_axes()
    // Describes the op if every result is a sum of products of an element of operand 0 and one of
    // operand 1; else null, or returns nothing.
    std::optional<Contraction> (*contraction)(const OpCall&) = nullptr;
    // The op multiplies each row of operand 0, which runs along its last axis, by operand 1, which
    // is no matrix of numbers.
    bool multiplies_rows = false;
    std::vector<AtNumber> at_number = {};
    OpRef inverse = nullptr;  // inverse(op(x)) is x, bit by bit
    // The op adds operand 1 to zeros at the places from which chooser(operand 0) takes elements.
    OpRef chooser = nullptr;
    // These two hold for real numbers, but not where a float overflows, or for 0 / 0:
    std::optional<double> of_equals = {};  // x op x is this number
    OpRef real_inverse = nullptr;  // real_inverse(op(x)) is x
    std::optional<EpilogueSpec> epilogue = {};
    std::optional<EpilogueKind> as_epilogue = {};  // the step that it is after a product
    // Likewise of the op's derived gradient, whose last operand the step is applied to.
    std::optional<EpilogueKind> gradient_as_epilogue = {};
    bool follows_layout = false;  // the op only moves elements: all operands may lie channels-last,
                                  // and all do if one does
    // Is the kernel so much faster on channels-last activations that copying them pays? Null: there
    // is no difference.
    bool (*prefers_channels_last)(const OpCall&, std::span<const Type> outputs) = nullptr;

    Cost (*cost)(const OpCall&,
                 std::span<const Type> outputs) = nullptr;  // null: one flop per output element
    // Sample inputs that drive the op tests: values of input 0 (element-wise), see
    // tests/python/op_samples.py for others.
    std::vector<double> samples = {-100, -2.5, -1, -0.0, 0, 0.3, 1, 2, 100};

    bool is_elementwise() const { return expr != nullptr || derived_expr != nullptr; }
    OperandKind kind_of(size_t operand) const;
    std::optional<size_t> weights() const;  // which operand holds the weights

    // Set on ops that the registry derives ("tanh.grad0"); never written by hand.
    std::function<Expr(const ExprArgs&)> derived_expr = {};
};

// The registry. Ops are never removed; references stay valid.
void register_op(OpDef op);
const OpDef& find_op(std::string_view name);  // UserError for an unknown name
const OpDef* find_op_or_null(std::string_view name);  // also derives "x.grad0" on demand
std::vector<const OpDef*> all_ops();  // in order of registration, derived ones left out
void register_all_ops();  // runtime/ops/all_ops.cpp; idempotent

// Returns the result types; checks counts and ranks, and broadcasts element-wise inputs. Throws
// UserError.
std::vector<Type> infer(const OpCall& call);

// The scalar program of one element-wise application: inputs 0..n-1 in compute type; returns the id
// of the result, already narrowed to the output dtype.
int build_expr(const OpCall& call, DType output, ScalarProgram& program);

// The derived op that computes the gradient of element-wise `op` for input k, with the positions in
// (inputs..., y, dy) that it reads. Null when there is none. `is_identity`: the gradient is dy
// itself.
struct DerivedGrad {
    const OpDef* op = nullptr;
    std::vector<int> operands = {};
    bool is_identity = false;
};
const DerivedGrad* derive_grad(const OpDef& op, std::span<const Type> inputs, const Type& output,
                               int k);

// The axes of operand 0 that a reduction runs over, bit by bit. Attribute 0 has them.
uint32_t reduced_axes(const OpCall& call);

// Compares by bits: NaN equals itself, and 0.0 and -0.0 differ.
bool same(const Attr& a, const Attr& b);
bool same(const Attrs& a, const Attrs& b);
// TypeError when the op does not take `got` tensors.
void check_input_count(const OpDef& op, size_t got);

Cost cost_of(const OpCall& call, std::span<const Type> outputs);
size_t hash_value(const Attrs& attrs, size_t seed);
std::string to_string(const Attr& attr);

}  // namespace megjit::runtime
