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

// Attributes are static: part of the op, never computed. Booleans are ints, dtypes are their names,
// graphs their text (jit/subgraph.h).
using Attr = std::variant<int64_t, double, std::vector<int64_t>, std::string>;
enum class AttrKind : uint8_t { integer, real, integers, text, graph };

struct AttrSpec {
    std::string_view name;
    AttrKind kind = AttrKind::integer;
    std::optional<Attr> fallback = std::nullopt;  // required when absent
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
// How a fact names another op: a function of runtime/ops/known.h.
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
    // The flops are sums of products, for which some devices have instructions of their own.
    bool is_product = false;
};

// What a reduction makes of a row.
enum class Reduce : uint8_t {
    sum,
    prod,  // f32, or i32 that wraps
    max,
    min,  // f32 (NaN wins), i32, b1 (any, all)
    argmax,
    argmin,  // of f32 or i32: i32, the first place in the reduced axes, row-major; the first NaN
             // wins
    mean,
    variance,  // of f32; the variance is the biased one
    dot,  // of f32: the sum, but the multiplication that gives an element is not rounded (fma)
};

// Sums of products: of the axes of `space` the last is summed over, the others are the result's.
struct Contraction {
    Shape space = {};
    std::array<std::vector<int64_t>, 2> strides = {};  // of operands 0 and 1, by axis of the space
};

// Which elements of operand 0 the result has, unchanged.
enum class Access : uint8_t {
    other,  // none, or such as no pass asks for
    same,  // all, each at its place (perhaps in another dtype)
    broadcast,  // all, repeated by NumPy's rule
    reshaped,  // all, in row-major order
    permuted,  // all: axis i is axis perm[i] of the operand, attribute 0
    picked,  // those at the places that an index names
    written,  // all but those at the places that an index names
};

// x op number, and number op x where the op is commutative, is another op of x, bit by bit.
struct AtNumber {
    double number = 0;
    OpRef op = nullptr;
};

// Steps on each element of a product before it is stored (runtime/ops/epilogue.h).
enum class EpilogueKind : uint8_t { bias, add, relu };

// A product has one: the op that computes it and then steps; itself where it has some already.
struct EpilogueSpec {
    OpRef op = nullptr;
    int bias_axis = 0;  // of the result; below 0: from its end
    bool takes_halves = false;  // besides float32
    int bias_axis_of(const Type& result) const {
        return bias_axis < 0 ? result.rank() + bias_axis : bias_axis;
    }
};

// The batch of a graph gets another size; from = 0: it stays.
struct BatchChange {
    int64_t from = 0;
    int64_t to = 0;
};

struct OpDef {
    std::string name;
    // The type of its nodes in dumped models, as the original names it, "MatrixMul"; of
    // element-wise ops their mode, "EQ". Empty: the name in its spelling.
    std::string_view dumped_as = {};
    std::string doc = {};
    std::vector<OperandSpec> inputs = {};  // the last is repeated when variadic
    bool variadic = false;
    std::vector<AttrSpec> attrs = {};
    Promotion promotion = Promotion::none;
    // Its kernels know float64 and int64. Those of element-wise ops and reductions do, and of what
    // moves elements as `access` says.
    bool takes_64_bits = false;
    bool computes_64_bits() const;

    // Element-wise ops: `expr`, and `grad_expr` where the derivative that follows from `expr` is
    // not the best (it may use the result y, which then is kept instead of x). Everything else
    // follows.
    Result result = Result::same;
    Expr (*expr)(const ExprArgs&) = nullptr;
    // d loss / d input k, given the result y and dy. An invalid Expr: no gradient.
    Expr (*grad_expr)(const ExprArgs&, int k, Expr y, Expr dy) = nullptr;

    // All others:
    std::vector<Type> (*infer)(const OpCall&) = nullptr;
    Grads (*grad)(const GradCall&) = nullptr;  // null: not differentiable
    Keeps keeps = Keeps::both;
    // Must-alias: output 0 has the bytes of input 0 in another shape (reshape); never copied.
    bool is_view = false;
    // The output's shape depends on values, or it lies on another device: computed at once by the
    // host, in a trace between two segments. Such an op has `direct` in place of `infer` and a
    // backend's kernel.
    std::vector<TensorRef> (*direct)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    bool is_data_dependent() const { return direct != nullptr; }
    // Writes such an op in others: its results with as many rows as they can have, those that
    // count in front, and how many these are, i32[]. Null: nobody knows how many there can be.
    std::vector<TensorRef> (*bounded)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    bool commutative = false;
    // Running it may fail, for it checks its operands' values (index out of range) before it
    // writes.
    bool checks_values = false;
    bool only_checks = false;  // it does no other work
    // Where that is all it checks: the extent that values of an operand of places lie within.
    int64_t (*extent_of_places)(const OpCall&, size_t operand) = nullptr;
    // NVIDIA's libraries may compute it as a whole: a GPU asks them before it takes a kernel of its
    // own.
    bool has_gpu_product = false;
    // The same results written in simpler ops (element-wise ones and reductions), for code
    // generation; empty where the op's own kernel is the better one. `inputs` are placeholders.
    std::vector<TensorRef> (*expand)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    // The same as a loop over steps, of any number (runtime/ops/loop.h), for devices that have no
    // kernel of their own for the op.
    Loop (*loop)(const OpCall&, std::span<const TensorRef> inputs) = nullptr;
    // The attributes for operands of types `after`, of the ranks that they had; null: they hold no
    // extents. UserError where they have no one meaning (runtime/ops/refit.h).
    Attrs (*refit)(const OpCall& before, std::span<const Type> after, BatchChange batch) = nullptr;

    // What passes build on:
    Access access = Access::other;
    std::optional<Reduce> reduction = {};  // over reduced_axes()
    // Every result is a sum of products of an element of operand 0 and one of operand 1. Null, or
    // nothing: it is not.
    std::optional<Contraction> (*contraction)(const OpCall&) = nullptr;
    std::vector<AtNumber> at_number = {};
    OpRef inverse = nullptr;  // the op of its result is x, bit by bit
    // In the reals; not where a float overflows, or for 0 / 0:
    std::optional<double> of_equals = {};  // x op x is this number
    OpRef real_inverse = nullptr;  // the op of its result is x
    std::optional<EpilogueSpec> epilogue = {};
    std::optional<EpilogueKind> as_epilogue = {};  // as a step of the product before it
    bool follows_layout = false;  // all operands may lie channels-last, and do where one does: the
                                  // op only moves elements
    // Is its kernel so much faster on activations that lie channels-last that copying them pays?
    // Null: there is no difference.
    bool (*prefers_channels_last)(const OpCall&, std::span<const Type> outputs) = nullptr;

    Cost (*cost)(const OpCall&,
                 std::span<const Type> outputs) = nullptr;  // null: one flop per output element
    // Sample inputs that drive the op tests: values of input 0 (element-wise), see
    // tests/python/op_samples.py for others.
    std::vector<double> samples = {-100, -2.5, -1, -0.0, 0, 0.3, 1, 2, 100};

    bool is_elementwise() const { return expr != nullptr || derived_expr != nullptr; }
    OperandKind kind_of(size_t operand) const;
    std::optional<size_t> weights() const;  // which operand they are

    // Set on ops that the registry derives ("tanh.grad0"); never written by hand.
    std::function<Expr(const ExprArgs&)> derived_expr = {};
};

// The registry. Ops are never removed; references stay valid.
void register_op(OpDef op);
const OpDef& find_op(std::string_view name);  // UserError for an unknown name
const OpDef* find_op_or_null(std::string_view name);  // also derives "x.grad0" on demand
std::vector<const OpDef*> all_ops();  // in order of registration, derived ones left out
void register_all_ops();  // runtime/ops/all_ops.cpp; idempotent

// Result types; checks counts and ranks, broadcasts element-wise inputs. Throws UserError.
std::vector<Type> infer(const OpCall& call);

// The scalar program of one element-wise application: inputs 0..n-1 in compute type; returns the id
// of the result, already narrowed to the output dtype.
int build_expr(const OpCall& call, DType output, ScalarProgram& program);

// The derived op that computes the gradient of element-wise `op` for input k, with the positions in
// (inputs..., y, dy) that it reads. Null when there is none. `operands` of just dy with an identity
// program means: the gradient is dy itself.
struct DerivedGrad {
    const OpDef* op = nullptr;
    std::vector<int> operands = {};
    bool is_identity = false;
};
const DerivedGrad* derive_grad(const OpDef& op, std::span<const Type> inputs, const Type& output,
                               int k);

// The axes of operand 0 that a reduction runs over, bit by bit. Attribute 0 has them.
uint32_t reduced_axes(const OpCall& call);

// By bits: NaN equals itself, 0.0 and -0.0 differ.
bool same(const Attr& a, const Attr& b);
bool same(const Attrs& a, const Attrs& b);
// TypeError when the op does not take so many tensors.
void check_input_count(const OpDef& op, size_t got);

Cost cost_of(const OpCall& call, std::span<const Type> outputs);
size_t hash_value(const Attrs& attrs, size_t seed);
std::string to_string(const Attr& attr);

}  // namespace megjit::runtime
