"""Custom ops in C++: built by the user's compiler, and then ops like any other: eager, traced, differentiated, dumped."""

import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
from megengine.autodiff import Function, GradManager
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import custom
from megengine.jit import trace
from megengine.utils import custom_op_tools

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")

# The first op is the one of MegEngine's user guide, with a kernel for the host.
SOURCE = r"""
#include "megbrain/custom/custom.h"

CUSTOM_OP_REG_BEGIN(MatMulScale)

void shape_infer(const std::vector<Shape> &inputs, const Param &params, std::vector<Shape> &outputs) {
    if (inputs[0][1] != inputs[1][0])
        throw std::invalid_argument("lhs has " + std::to_string(inputs[0][1]) + " columns, rhs " + std::to_string(inputs[1][0]) + " rows");
    outputs[0] = {inputs[0][0], inputs[1][1]};
}

void compute(const std::vector<Tensor> &inputs, const Param &params, std::vector<Tensor> &outputs) {
    const float *lhs = inputs[0].data<float>(), *rhs = inputs[1].data<float>();
    float *result = outputs[0].data<float>();
    size_t M = inputs[0].shape()[0], K = inputs[0].shape()[1], N = inputs[1].shape()[1];
    float scale = params["scale"].as<float>();
    for (size_t m = 0; m < M; ++m)
        for (size_t n = 0; n < N; ++n) {
            float sum = 0;
            for (size_t k = 0; k < K; ++k) sum += lhs[m * K + k] * rhs[k * N + n];
            result[m * N + n] = sum * scale;
        }
}

CUSTOM_OP_REG(MatMulScale)
    .add_inputs(2)
    .add_outputs(1)
    .add_param("scale", 1.0f)
    .set_shape_infer(shape_infer)
    .set_compute("x86", compute);

CUSTOM_OP_REG_END(MatMulScale)

// y = scale x^2 + shift, and max(y): two results, a gradient that reads them, parameters of each kind.
CUSTOM_OP_REG_BEGIN(Square)

void shape_infer(const std::vector<Shape> &inputs, const Param &, std::vector<Shape> &outputs) { outputs[1] = {}; }

void compute(const std::vector<Tensor> &inputs, const Param &params, std::vector<Tensor> &outputs) {
    if (params["mode"].as<std::string>() == "fail") throw std::runtime_error("asked to fail, in Latin-1: \xE9");
    float shift = 0, largest = -1e30f;
    for (float each : params["shifts"].as<std::vector<float>>()) shift += each;
    for (int each : params["whole"].as<std::vector<int>>()) shift += each;
    if (params["negative"].as<bool>()) shift = -shift;
    for (size_t i = 0; i < inputs[0].size(); ++i) {
        const float x = inputs[0].data<float>()[i], y = params["scale"].as<float>() * x * x + shift;
        outputs[0].data<float>()[i] = y;
        if (y > largest) largest = y;
    }
    outputs[1].data<float>()[0] = largest;
}

CUSTOM_OP_REG(Square)
    .set_description("scale x^2 + shift")
    .add_input("x", {"float32"})
    .add_output("y").add_output("largest", {"float32"}, 0)
    .add_param("scale", 1.0f).add_param("shifts", {0.5, -0.5}).add_param("whole", {0}).add_param("negative", false).add_param("mode", "plain")
    .set_shape_infer(shape_infer)
    .set_compute("x86", compute)
    .set_gradient("SquareBackward");

CUSTOM_OP_REG_END(Square)

CUSTOM_OP_REG_BEGIN(SquareBackward)

void shape_infer(const std::vector<Shape> &inputs, const Param &, std::vector<Shape> &outputs) { outputs[0] = inputs[2]; }

void compute(const std::vector<Tensor> &inputs, const Param &params, std::vector<Tensor> &outputs) {
    const float *dy = inputs[0].data<float>(), *x = inputs[2].data<float>(), *y = inputs[3].data<float>();
    for (size_t i = 0; i < outputs[0].size(); ++i) {
        const bool largest = y[i] == inputs[4].data<float>()[0];
        outputs[0].data<float>()[i] = (dy[i] + (largest ? inputs[1].data<float>()[0] : 0)) * 2 * params["scale"].as<float>() * x[i];
    }
}

CUSTOM_OP_REG(SquareBackward)
    .add_inputs(5).add_outputs(1).add_param("scale", 1.0f).set_shape_infer(shape_infer).set_compute("x86", compute);

CUSTOM_OP_REG_END(SquareBackward)

// Integers in, a dtype of its own out, by accessors.
CUSTOM_OP_REG_BEGIN(RowSums)

void shape_infer(const std::vector<Shape> &inputs, const Param &, std::vector<Shape> &outputs) { outputs[0] = {inputs[0][0]}; }
void dtype_infer(const std::vector<DType> &inputs, const Param &, std::vector<DType> &outputs) { outputs[0] = "float32"; }

void compute(const std::vector<Tensor> &inputs, const Param &, std::vector<Tensor> &outputs) {
    auto x = inputs[0].accessor<int32_t, 2>();
    auto y = outputs[0].accessor<float, 1>();
    for (size_t i = 0; i < x.size(0); ++i) {
        y[i] = 0;
        for (size_t j = 0; j < x.size(1); ++j) y[i] += x[i][j];
    }
}

CUSTOM_OP_REG(RowSums)
    .add_input("x", {"int32"}, 2).add_output("y").set_shape_infer(shape_infer).set_dtype_infer(dtype_infer).set_compute("x86", compute);

CUSTOM_OP_REG_END(RowSums)

CUSTOM_OP_REG_BEGIN(Wrong)

void shape_infer(const std::vector<Shape> &inputs, const Param &params, std::vector<Shape> &outputs) {
    if (params["how"].as<int>() == 0) outputs[0] = {inputs[0][7]};
    if (params["how"].as<int>() == 1) outputs[0].ndim(9);
    if (params["how"].as<int>() == 2) outputs.clear();
    if (params["how"].as<int>() == 3) throw 3;
}
void compute(const std::vector<Tensor> &inputs, const Param &params, std::vector<Tensor> &) {
    if (params["how"].as<int>() == 4) inputs[0].data<int>();
    if (params["how"].as<int>() == 5) inputs[0].accessor<float, 3>();
    if (params["how"].as<int>() == 6) params["which"];
    if (params["how"].as<int>() == 7) params["how"].as<std::string>();
}

CUSTOM_OP_REG(Wrong).add_inputs(1).add_outputs(1).add_param("how", 0).set_shape_infer(shape_infer).set_compute("x86", compute);

CUSTOM_OP_REG_END(Wrong)

CUSTOM_OP_REG_BEGIN(OnlyCuda)
void compute(const std::vector<Tensor> &, const Param &, std::vector<Tensor> &) {}
CUSTOM_OP_REG(OnlyCuda).add_inputs(1).add_outputs(1).set_compute("cuda", compute);
CUSTOM_OP_REG_END(OnlyCuda)
"""


def build(folder, source, name="ops", **options):
    path = folder / f"{name}.cpp"
    path.write_text(source)
    return custom_op_tools.build(name, [str(path)], build_dir=str(folder / "built"), **({"extra_cflags": "-O0"} | options))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = build(tmp_path_factory.mktemp("custom"), SOURCE)
    assert custom.load(path) == ["MatMulScale", "Square", "SquareBackward", "RowSums", "Wrong", "OnlyCuda"]
    return path


LHS = np.arange(6, dtype="float32").reshape(2, 3)
RHS = np.arange(12, dtype="float32").reshape(3, 4)


def test_the_op_of_the_user_guide_computes(library):
    (y,) = apply(custom.MatMulScale(scale=0.5), mge.tensor(LHS), mge.tensor(RHS))
    np.testing.assert_array_equal(y.numpy(), LHS @ RHS / 2)


def test_operands_that_lie_otherwise_in_memory_are_read_right(library):
    lhs = F.transpose(mge.tensor(LHS.T.copy()), (1, 0))
    np.testing.assert_array_equal(apply(custom.MatMulScale(), lhs, mge.tensor(RHS))[0].numpy(), LHS @ RHS)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("opt_level", [0, 2, 3])
def test_it_is_one_op_of_a_trace(library, symbolic, opt_level):
    @trace(symbolic=symbolic, opt_level=opt_level)
    def step(lhs, rhs):
        return apply(custom.MatMulScale(scale=2.0), lhs + 1, rhs)[0] * 3

    for _ in range(3):
        y = step(mge.tensor(LHS), mge.tensor(RHS))
        np.testing.assert_allclose(y.numpy(), (LHS + 1) @ RHS * 6, rtol=1e-6)
    assert "custom.MatMulScale" in step.graph_text()
    step(mge.tensor(LHS[:1]), mge.tensor(RHS))  # another shape is inferred again


def test_its_gradient_is_the_op_that_it_names(library):
    x = mge.Parameter(np.array([1, -2, 3], "float32"))
    with GradManager().attach([x]) as gm:
        y, largest = apply(custom.Square(scale=2.0), x)
        gm.backward((y * mge.tensor([1.0, 10.0, 100.0])).sum() + largest)
    np.testing.assert_array_equal(y.numpy(), [2, 8, 18])
    assert largest.item() == 18 and largest.shape == ()
    np.testing.assert_array_equal(x.grad.numpy(), [4, -80, 1212])


def test_the_gradient_of_an_unused_result_is_zero(library):
    x = mge.Parameter(np.array([1, -2, 3], "float32"))
    with GradManager().attach([x]) as gm:
        gm.backward(apply(custom.Square(), x)[1])
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 6])


def test_a_traced_training_step_has_its_gradient(library):
    x = mge.Parameter(np.array([1, -2, 3], "float32"))
    gm = GradManager().attach([x])

    @trace(symbolic=True)
    def step():
        with gm:
            gm.backward(apply(custom.Square(scale=0.5), x)[0].sum())
        x[...] = x - x.grad
        x.grad = None

    for _ in range(3):
        step()
        np.testing.assert_array_equal(x.numpy(), [0, 0, 0])


def test_a_function_gives_it_another_gradient(library):
    class MatMulScale(Function):
        def forward(self, lhs, rhs):
            self.lhs, self.rhs = lhs, rhs
            return apply(custom.MatMulScale(scale=2.0), lhs, rhs)

        def backward(self, dy):
            op = custom.MatMulScale(scale=2.0)
            return apply(op, dy, self.rhs.T)[0], apply(op, self.lhs.T, dy)[0]

    lhs, rhs = mge.Parameter(LHS), mge.Parameter(RHS)
    with GradManager().attach([lhs, rhs]) as gm:
        result = MatMulScale()(lhs, rhs)
        gm.backward(F.sum(result if isinstance(result, mge.Tensor) else result[0]))
    np.testing.assert_allclose(lhs.grad.numpy(), 2 * np.ones((2, 4)) @ RHS.T)
    np.testing.assert_allclose(rhs.grad.numpy(), 2 * LHS.T @ np.ones((2, 4)))


def test_parameters_are_numbers_flags_text_and_lists(library):
    x = mge.tensor([1.0])
    assert apply(custom.Square(shifts=[0.25, 1]), x)[0].item() == 2.25
    assert apply(custom.Square(shifts=[], whole=[2, 3]), x)[0].item() == 6
    assert apply(custom.Square(whole=(2,), negative=True), x)[0].item() == -1
    assert custom.Square(scale=2.0) == custom.Square(scale=2.0) != custom.Square(scale=3.0)
    assert repr(custom.Square(scale=2.0)) == "Square(scale=2.0)"
    with pytest.raises(TypeError, match=r"Square: no parameter size; there are scale, shifts, whole, negative, mode"):
        custom.Square(size=1)


def test_integers_become_the_dtype_that_it_infers(library):
    (y,) = apply(custom.RowSums(), mge.tensor([[1, 2], [3, 4]], dtype="int32"))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.numpy(), [3, 7])
    assert apply(custom.RowSums(), mge.tensor(np.zeros((0, 2), "int32")))[0].shape == (0,)


@pytest.mark.parametrize(
    ("op", "operands", "kind", "words"),
    [
        ("MatMulScale()", (LHS, LHS), ValueError, "lhs has 3 columns, rhs 2 rows"),
        ("MatMulScale()", (LHS,), TypeError, "takes 2 tensors, got 1"),
        ("MatMulScale()", (LHS, RHS.astype("int32")), TypeError, r"input_1 is i32\[3, 4\]\s+why: it takes float32"),
        ("RowSums()", (np.zeros(3, "int32"),), ValueError, r"x is i32\[3\]\s+why: it takes 2 axes"),
        ("Square(mode='fail')", (LHS,), RuntimeError, r"asked to fail, in Latin-1: \\xe9"),
        ("Wrong(how=0)", (LHS,), ValueError, r"axis 7 of the shape \[2, 3\]"),
        ("Wrong(how=1)", (LHS,), ValueError, "output_0 is inferred with the shape"),
        ("Wrong(how=2)", (LHS,), ValueError, "another number of outputs"),
        ("Wrong(how=3)", (LHS,), ValueError, "threw something that is not a std::exception"),
        ("Wrong(how=4)", (LHS,), RuntimeError, "the elements of a tensor of float32 are of another type"),
        ("Wrong(how=5)", (LHS,), RuntimeError, r"an accessor of 3 axes for the shape \[2, 3\]"),
        ("Wrong(how=6)", (LHS,), RuntimeError, "there is no parameter which"),
        ("Wrong(how=7)", (LHS,), RuntimeError, "asked for as what it is not"),
        ("OnlyCuda()", (LHS,), RuntimeError, "has no function for x86"),
    ],
)
def test_what_does_not_fit_is_an_error_of_the_call(library, op, operands, kind, words):
    with pytest.raises(kind, match=words):
        apply(eval(op, vars(custom) | custom._ops), *map(mge.tensor, operands))[0].numpy()


def test_a_library_is_built_once_until_something_changes(tmp_path, monkeypatch):
    header = tmp_path / "factor.h"
    header.write_text("constexpr float factor = 2;")
    source = '#include "megbrain/custom/custom.h"\n#include "factor.h"\n'
    first = build(tmp_path, source)
    made = os.stat(first).st_mtime_ns
    assert build(tmp_path, source) == first and os.stat(first).st_mtime_ns == made
    header.write_text("constexpr float factor = 3;")
    assert build(tmp_path, source) != first
    assert build(tmp_path, source, extra_cflags=["-DNDEBUG"]) != build(tmp_path, source)
    monkeypatch.setenv("MGE_CUSTOM_OP_DIR", str(tmp_path / "root"))
    assert custom_op_tools.build("ops", str(tmp_path / "ops.cpp")).startswith(str(tmp_path / "root" / "ops"))


def test_what_the_compiler_says_is_told(tmp_path):
    with pytest.raises(RuntimeError, match=r"custom op ops: c\+\+ failed\n.*ops.cpp:1:.*unknown"):
        build(tmp_path, "unknown x;")
    assert not list((tmp_path / "built").glob("*"))


def test_a_missing_compiler_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler --fast")
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler 'no-such-compiler'\n  fix: install one .*or name yours in the variable CXX"):
        build(tmp_path, "")


def test_sources_that_cannot_be_built_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file .*none.cpp"):
        custom_op_tools.build("ops", str(tmp_path / "none.cpp"))
    (tmp_path / "ops.cu").write_text("")
    with pytest.raises(ValueError, match="custom ops compute on the host"):
        custom_op_tools.build("ops", str(tmp_path / "ops.cu"))
    with pytest.raises(ValueError, match="names a file"):
        custom_op_tools.build("../ops", str(tmp_path / "ops.cu"))
    with pytest.raises(ValueError, match="no sources"):
        custom_op_tools.build("ops", [])


OF_VERSION_2 = """
#include "megjit/custom_op.h"
static const megjit_library library = {2, 0, nullptr};
extern "C" const megjit_library* megjit_custom_ops(void) { return &library; }
"""


def test_a_library_for_another_version_is_refused(tmp_path):
    with pytest.raises(ValueError, match="was made for version 2 of the interface(.|\n)*this is version 1(.|\n)*build it again"):
        custom.load(build(tmp_path, OF_VERSION_2))


def test_a_file_that_is_no_library_of_ops_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a library of custom ops(.|\n)*include megbrain/custom/custom.h"):
        custom.load(build(tmp_path, "int x;"))
    with pytest.raises(RuntimeError, match="cannot open shared object file"):
        custom.load(tmp_path / "none.so")


def test_a_name_that_is_taken_is_refused_and_loading_again_changes_nothing(library, tmp_path):
    before = custom.MatMulScale
    custom.load(library)
    assert custom.MatMulScale is before
    other = SOURCE.split("// y = scale")[0]
    with pytest.raises(ValueError, match="custom op MatMulScale of .*: there is one of this name(.|\n)*start a new process"):
        custom.load(build(tmp_path, other))


def test_a_gradient_that_does_not_fit_is_refused(tmp_path):
    source = """
        #include "megbrain/custom/custom.h"
        CUSTOM_OP_REG_BEGIN(Half)
        CUSTOM_OP_REG(Half).add_inputs(1).add_outputs(1).set_gradient("%s");
        CUSTOM_OP_REG(HalfBackward).add_inputs(1).add_outputs(1);
        CUSTOM_OP_REG_END(Half)
    """
    with pytest.raises(ValueError, match="Half: its gradient HalfBackward has 1 inputs and 1 outputs"):
        custom.load(build(tmp_path, source % "HalfBackward"))
    with pytest.raises(ValueError, match="Half: the library has no op Other, its gradient"):
        custom.load(build(tmp_path, source % "Other"))


def test_libraries_of_one_header_share_nothing(library, tmp_path):
    path = build(tmp_path, SOURCE.split("// y = scale")[0].replace("MatMulScale", "Second"), "second")
    assert custom.load(path) == ["Second"]
    assert apply(custom.Second(scale=2.0), mge.tensor(LHS), mge.tensor(RHS))[0].shape == (2, 4)


def test_a_dump_needs_the_library(library, tmp_path):
    @trace(symbolic=True, capture_as_const=True)
    def step(lhs, rhs):
        return apply(custom.MatMulScale(scale=2.0), lhs, rhs)[0]

    step(mge.tensor(LHS), mge.tensor(RHS))
    step.dump(str(tmp_path / "step.mge"), arg_names=["lhs", "rhs"])
    program = textwrap.dedent(f"""
        import sys, numpy as np
        from megengine.core.ops import custom
        from megengine.utils.network import Network
        if len(sys.argv) > 1:
            custom.load(sys.argv[1])
        net = Network.load({str(tmp_path / "step.mge")!r})
        print(net.output_vars[0].shape)
    """)

    def run(*arguments):
        return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)

    assert run(library).stdout == "(2, 4)\n"
    assert "there is no op named 'custom.MatMulScale'" in (error := run().stderr)
    assert "fix: load the library that defines it first: megengine.core.ops.custom.load(path)" in error


def test_an_op_that_is_not_there_says_where_it_would_come_from():
    with pytest.raises(AttributeError, match=r"there is no custom op NotThere: .*build_and_load"):
        custom.NotThere  # noqa: B018
