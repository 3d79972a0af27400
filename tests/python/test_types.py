"""What editors and type checkers see of the interface."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import megengine
from megengine.jit import trace
from megengine.jit.configs import Options

PROGRAM = """
from megengine import Tensor
from megengine import functional as F
from megengine.jit import recompute, trace

@trace
def step(x: Tensor, n: int = 2) -> Tensor:
    return x * n

reveal_type(step(Tensor(1.0)))
reveal_type(trace(step, symbolic=True, opt_level=3, memory_limit="6GB", without_host="auto"))
trace(step, opt_levl=3)
step("a")

def add(total: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return total + x, x

reveal_type(F.scan(add, Tensor(0.0), Tensor([1.0])))
reveal_type(F.while_loop(lambda x: x < 9, lambda x: x * 2, Tensor(1.0)))
F.cond(True, add, add, Tensor(1.0))
recompute(add)(Tensor(1.0))
"""
SEEN = [
    r' note: Revealed type is "megengine.tensor.Tensor"',
    r' note: Revealed type is "megengine.jit.tracing.trace\[\[x: megengine.tensor.Tensor, n: int =\], megengine.tensor.Tensor\]"',
    r' error: Unexpected keyword argument "opt_levl"',
    r' error: Argument 1 to "__call__" of "trace" has incompatible type "str"; expected "Tensor"',
    r' note: Revealed type is "tuple\[megengine.tensor.Tensor, Any\]"',
    r':19: note: Revealed type is "megengine.tensor.Tensor"',
    r':20: error: Argument 2 to "cond" has incompatible type',
    r':21: error: Too few arguments',
]


def test_the_options_of_trace_are_its_keywords():
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(trace.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert keywords == {name: value.__forward_arg__ for name, value in Options.__annotations__.items()}


def test_a_traced_function_has_the_types_of_the_function(tmp_path):
    api = pytest.importorskip("mypy.api")
    told, _, _ = api.run(["--cache-dir", str(tmp_path), "--config-file", "", "-c", PROGRAM])
    for line in SEEN:
        assert re.search(line, told), told


# Parameters of type Any that functions without '_' have, and why `object` or a closer type does not do.
ANY = {
    "a subclass takes something narrower": """
        data.transform.meta_transform.Transform.apply.input data.transform.meta_transform.CudaTransform.apply.input
        data.transform.vision.vision_transform.VisionTransform.apply.input module.module.Module.forward.inputs module.elemwise.Identity.forward.x
        module.sequential.Sequential.forward.inp module.quantized.QuantizedModule.from_qat_module.qat_module
        module.quantized.Plain.from_qat_module.qat_module fx.graph.Graph.insert.call traced_module.base_expr.Expr.replace_all_uses.new
    """,
    "a gradient: a Tensor or a RowGradient, while Tensor.grad says Tensor": "core.row_gradient.added.a core.row_gradient.added.b core.row_gradient.changed.grad",
    "what the core has as _core.Tensor and the package as Tensor": "core.scopes.note_name.tensor optimizer.optimizer.decayed.update",
    "read by its form: numbers, arrays, tensors and sequences of them": """
        core.tensor.indexing.as_operand.value core.tensor.shapes.transpose.pattern core.tensor.shapes.broadcast_to.shape
        core.tensor.quantized.convert.dtype onnx.functions.draws.random_uniform.shape onnx.functions.draws.random_normal.shape
        onnx.functions.elementwise.modulo.x onnx.functions.elementwise.modulo.y onnx.functions.layers.mean_variance_normalization.axes
        fx.torchlike.pooling.adaptive_avg_pool.output_size fx.torchlike.reductions.norm.p fx.torchlike.elementwise.trunc_divide.input
        fx.torchlike.elementwise.trunc_divide.other onnx.functions.recurrent.mode_of.activations
    """,
    "of torch, which need not be there": """
        fx.torch_import.from_torch.gm fx.torch_memory.Memory.note.node fx.torch_modules.build.m fx.torch_modules.as_tensor.theirs
        torch_backend.backend.graph torch_backend.backend.example_inputs
    """,
    "a tree of whatever a body returns": "jit.results.reason_in_results.tree jit.results.refuse_used_up.tree",
    "a tensor or an array": """
        onnx.functions.recurrent.laid_out.w onnx.functions.recurrent.laid_out.r onnx.functions.recurrent.laid_out.b
        onnx.functions.recurrent.real_weights.weights onnx.functions.recurrent.real_weights.scale onnx.functions.recurrent.real_weights.zero
    """,
    "a Module, of a room above": "distributed.fsdp.fully_shard.module distributed.fsdp.gathered.module",
    "one of several layers, which share weight and bias": "module.qat.folded.layer module.quantized.with_weights.made",
}


def _parameters_of_type_any(tree, within):
    for node in ast.iter_child_nodes(tree):
        name = f"{within}.{getattr(node, 'name', '')}"
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            yield from (f"{name}.{each.arg}" for each in found if each.annotation and ast.unparse(each.annotation) == "Any")
        elif isinstance(node, ast.If) or (isinstance(node, ast.ClassDef) and not node.name.startswith("_")):
            yield from _parameters_of_type_any(node, within if isinstance(node, ast.If) else name)


def test_parameters_of_type_any_have_reasons():
    package, found = Path(megengine.__file__).parent, set()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        if not any(part.startswith("_") and part != "__init__" for part in parts):
            found.update(_parameters_of_type_any(ast.parse(path.read_text()), ".".join(part for part in parts if part != "__init__")))
    assert sorted(found) == sorted(" ".join(ANY.values()).split())
