"""No parameter and no option is taken and forgotten: it acts, or warns once that it has no effect, or is refused.

A parameter counts as forgotten when the body of a public function never names it. ALLOWED says of those that are left why
that is right: the function implements an interface, or what the parameter asks for is so in any case.
"""

import ast
import fnmatch
import warnings
from pathlib import Path

import numpy as np
import pytest

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine import Tensor, logger
from megengine.core import _config, _telling
from megengine.core._imperative_rt import utils as interpreter
from megengine.core.ops import builtin
from megengine.device import DeviceType
from megengine.jit import DTRConfig, trace
from megengine.utils import network_node
from megengine.utils.network import Network

PACKAGE = Path(mge.__file__).parent
_REFUSED = "raises in any case, and says what is missing"
_KEPT = "names of parameters are always written"
_INTERFACE = "one of several functions that are called alike"
_ABSTRACT = "raises: subclasses define it"

# file:function -> (parameters, reason). A row without a reader is an error, too.
ALLOWED = {
    "__main__.py:*": ("_", "commands are called alike"),
    "_compat/external.py:*": ("output_shapes dump_data output_dtypes data symbol tensor_dim_mutable", _REFUSED),
    "_compat/network_node.py:VarNode.__init__": ("var owner_opr name", "__new__ has read them"),
    "_compat/network_node.py:OpNode.__init__": ("args kwargs", _REFUSED),
    "_compat/network_node.py:*": ("opnode inputs outputs", _INTERFACE),
    "_compat/operands.py:astensor1d": ("reference", "the operand says its dtype and place"),
    "distributed/_store.py:StoreServer.handle_error": ("request client_address", "socketserver's, and nothing is told of a stranger"),
    "_graph/core.py:Call.check_saved": ("what", "classes of calls say more"),
    "traced_module/base_expr.py:Expr.check_saved": ("what", "classes of exprs say more"),
    "autodiff/function.py:Function.*": ("args kwargs output_grads", _ABSTRACT),
    "torch_backend/_aten.py:batch_norm_backward": ("mask", "which gradients torch wants: those that it does not read are dropped from the graph"),
    "core/_config.py:attribute_of.write": ("module", "a setter of a property"),
    "core/op_objects.py:OpDef.run": ("inputs", _ABSTRACT),
    "data/transform/meta_transform.py:Transform.apply": ("input", _ABSTRACT),
    "data/dataloader.py:*_fetcher": ("parallel_stream batch_size place_holder", _INTERFACE),
    "distributed/functional.py:remote_recv": ("inp", "orders operations where they are recorded apart; here they run in order"),
    "distributed/helper.py:param_pack_concat": ("offsets", "follow from the tensors"),
    "distributed/helper.py:AllreduceCallback.__call__": ("param", "a callback of GradManager"),
    "distributed/run.py:run.pass_on": ("_", "a handler of signals"),
    "distributions/distribution.py:Distribution.*": ("sample_shape value", _ABSTRACT),
    "fx/interpreter.py:Transformer.placeholder": ("kwargs", "methods for all kinds of node are called alike"),
    "fx/_layers.py:Folding.*": ("layer norm weight bias call inp", _ABSTRACT),
    "fx/_running.py:*": ("enable_io_processing kwargs args target", "methods for all kinds of node are called alike"),
    "fx/_watch.py:Watcher.*": ("fn name args kwargs data result module tensor", "subclasses are told"),
    "fx/torch_modules.py:Unflatten": ("take", _INTERFACE),
    "fx/torchlike/*": (
        "cudnn_enabled cudnn_enable ignored N C HxW options inplace threshold mode is_causal norm_type "
        "momentum size_average reduce sorted stable sparse_grad non_blocking _stacklevel",
        "the arguments of torch's functions; tensors never change, results are sorted and stable, masks are given beside is_causal",
    ),
    "torch_backend/_ctc.py:ctc_loss": ("zero_infinity", "torch writes the zeros behind it; the gradient reads it"),
    "torch_backend/_pools.py:avg_pool_backward": ("ceil_mode", "the result's extents say it"),
    "torch_backend/_pools.py:grid_sampler_backward": ("mask", "which gradients torch wants: those that it does not read are dropped from the graph"),
    "torch_backend/_places.py:*": ("out_int32", "the arguments of ATen's operations: results get the dtype that the graph has"),
    "torch_backend/_bags.py:*": ("by_frequency bags mode", "the arguments of ATen's operations: bags follow from offsets, only gradients differ by frequency, and maxima have no factors"),
    "torch_backend/_reductions.py:*": ("stable mode", "sorts are stable in any case; distances have one way"),
    "torch_backend/_aten.py:attention_on_gpus_backward": ("seed offset", "of dropout, which is refused forward"),
    "torch_backend/_aten.py:batch_norm_without_statistics": ("training", "the batch's own statistics are the only ones"),
    "fx/tracer.py:Tracer.*": ("module_qualified_name attr", "subclasses may ask for it"),
    "_compat/network.py:Network.dump": ("keep_param_name", _KEPT),
    "jit/dump.py:Dumping.dump": ("keep_param_name", _KEPT),
    "module/module.py:Module.forward": ("inputs", _ABSTRACT),
    "module/qat/__init__.py:FoldedQAT.fold_weight_bias": ("bn_mean bn_var", _ABSTRACT),
    "module/quantized/__init__.py:QuantizedModule.from_qat_module": ("qat_module", _ABSTRACT),
    "module/rnn.py:RNNBase.create_cell": ("layer", _ABSTRACT),
    "module/vision/blur.py:*.get_kernel": ("inp c", _INTERFACE),
    "module/vision/colour.py:AdditiveElemwise.sample": ("size", _ABSTRACT),
    "onnx/functions/*": (
        "seed saturate round_mode sorted spatial stash_type precision hidden_size kernel_shape softmax_precision chunk_size offset_group dtype",
        "attributes of ONNX nodes that follow from their operands, or concern types that are refused",
    ),
    "onnx/functions/loops.py:counted_loop.step": ("_", "what a scan slices"),
    "onnx/functions/recurrent.py:mode_of": ("_", "a node's other attributes, which do not decide the mode"),
    "optimizer/optimizer.py:Optimizer.backward": ("loss", _REFUSED),
    "quantization/fake_quant.py:*.fake_quant_forward": ("qparams", _INTERFACE),
    "quantization/quantize.py:apply_easy_quant.search": ("_", _INTERFACE),
    "quantization/observer.py:Observer.forward": ("x", _ABSTRACT),
    "tensor.py:Tensor.__init__": ("data dtype device is_const no_cache name format", "__new__ has read them"),
    "tensor.py:Tensor.requires_grad": ("value", _REFUSED),
    "torch_backend/_aten.py:*": (
        "bias_sizes output_padding size c _",
        "the arguments of ATen's operations; shapes follow from the operands",
    ),
    "torch_backend/_pair.py:Pair.*": ("_", "torch hands its examples to a compiler"),
    "torch_backend/_pair.py:refusing.refuse": ("arguments", "torch hands them to what stands for a refused graph"),
    "traced_module/*.py:*": ("args kwargs leaf", _INTERFACE),
    "traced_module/tracing.py:Recorder.record": ("expr arguments run written", _ABSTRACT),
    "traced_module/expr.py:Input.run": ("env", "the caller of the graph gives the value"),
    "traced_module/inserting.py:Inserter.record": ("run written", "exprs compute on examples"),
    "utils/mkldnn.py:*.__init__": ("dtype", "float32 is the only one that a layout is for"),
    "utils/module_stats.py:*": ("module inputs outputs", _INTERFACE),
}  # fmt: skip


class _Forgotten(ast.NodeVisitor):
    """(function, parameters that its body never names) of the public functions of a file."""

    def __init__(self):
        self.path, self.found = [], []

    def visit_ClassDef(self, node):
        self.path.append(node.name)
        self.generic_visit(node)
        self.path.pop()

    def visit_If(self, node):
        """Declarations for type checkers do not run."""
        for each in node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else [node]:
            self.generic_visit(each) if each is node else self.visit(each)

    def visit_Assign(self, node):
        """A function that is a row of a public table goes by the row's name."""
        if isinstance(node.value, ast.Dict) and not ast.unparse(node.targets[0]).startswith("_"):
            for key, function in zip(node.value.keys, node.value.values):
                if isinstance(function, ast.Lambda) and isinstance(key, ast.Constant):
                    function.name, function.decorator_list = key.value, []
                    self.visit_FunctionDef(function)

    def visit_FunctionDef(self, node):
        args = node.args
        parameters = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        names = {p.arg for p in parameters if p is not None} - {"self", "cls"}
        body = node.body if isinstance(node.body, list) else [node.body]
        named = {part.id for line in body for part in ast.walk(line) if isinstance(part, ast.Name)}
        is_public = not any(part.startswith("_") for part in self.path) and (
            not node.name.startswith("_") or node.name in ("__init__", "__call__")
        )
        declared = any("overload" in ast.unparse(decorator) for decorator in node.decorator_list)
        if is_public and not declared and (forgotten := names - named):
            self.found.append((".".join([*self.path, node.name]), forgotten))
        self.visit_ClassDef(node)


def forgotten():
    for file in sorted(PACKAGE.rglob("*.py")):
        visitor = _Forgotten()
        visitor.visit(ast.parse(file.read_text()))
        for function, names in visitor.found:
            yield f"{file.relative_to(PACKAGE).as_posix()}:{function}", names


def test_every_parameter_is_read_or_there_is_a_reason():
    left = []
    for function, names in forgotten():
        allowed = {name for row, (known, _) in ALLOWED.items() if fnmatch.fnmatch(function, row) for name in known.split()}
        left += [f"{function}: {name}" for name in sorted(names - allowed)]
    assert not left


def test_every_reason_has_its_parameter():
    found = list(forgotten())
    stale = [
        f"{row}: {name}"
        for row, (known, _) in ALLOWED.items()
        for name in known.split()
        if not any(fnmatch.fnmatch(function, row) and name in names for function, names in found)
    ]
    assert not stale


@pytest.mark.parametrize("name", _config.OPTIONS)
def test_every_option_has_a_reader_or_says_why_not(name):
    row = _config.OPTIONS[name]
    assert sum(map(bool, (row.reader, row.holds, row.ignored))) == 1
    if row.reader:
        assert f"options.{name}" in (PACKAGE / row.reader).read_text()


@pytest.fixture
def nothing_told(monkeypatch):
    monkeypatch.setattr(_telling, "_told", set())


X = np.ones((2, 3), "float32")


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda: F.topk(Tensor(X), 2, no_sort=True), "topk: no_sort"),
        (lambda: Tensor(X, no_cache=True), "no_cache"),
        (lambda: DTRConfig(eviction_threshold=1, recomp_time_factor=2), "recomp_time_factor"),
        (lambda: F.debug_param.set_execution_strategy("OPTIMIZED"), "OPTIMIZED"),
        (lambda: mge.device.set_prealloc_config(alignment=128, device_type=DeviceType.CPU), "alignment"),
        (lambda: mge.device.set_prealloc_config(device_type=DeviceType.ROCM), "device_type=rocm"),
        (lambda: mge.device.CompNode(f"multithread{mge.device.get_num_threads() + 1}"), "multithread"),
        (lambda: Tensor(X).to("cpu0", _borrow=True), "Tensor.to: _borrow"),
        (lambda: list(M.Linear(1, 1).parameters(requires_grad=True)), "Module: requires_grad"),
        (lambda: builtin.BatchedMatrixMul(strategy="PROFILE"), "BatchedMatrixMul: strategy"),
        (lambda: mge.jit.partial_trace(abs, backend="xla"), "partial_trace: backend"),
        (lambda: mge.jit.partial_trace(abs, trace_gmcallback=False), "partial_trace: trace_gmcallback"),
        (lambda: mge.jit.xla_trace(abs).to_dlpack(Tensor(X), take_ownership=False), "take_ownership"),
        (lambda: interpreter._set_defrag(True), "_set_defrag"),
        (lambda: Network().opr_filter.type(network_node.ROIAlignForward), "NodeFilter: ROIAlignForward"),
        (lambda: setattr(trace(abs), "check_external", False), "check_external"),
        (lambda: _config.set_option("enable_drop", 1), "enable_drop"),
        (lambda: setattr(mge.config, "benchmark_kernel", True), "benchmark_kernel"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_effect_says_so_once(use, words, nothing_told):
    options, strategy = dict(vars(_config.options)), F.debug_param._others
    try:
        with pytest.warns(UserWarning, match=f"{words}.* has no effect here") as warned:
            use()
        assert {warning.filename for warning in warned} == {__file__}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            use()
    finally:
        vars(_config.options).update(options)
        F.debug_param._others = strategy


def test_values_that_are_usual_warn_of_nothing(nothing_told):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mge.config.async_level = 0
        mge.config.async_level = 2
        with mge.config._override(deterministic_kernel=True, compute_mode="float32"):
            F.topk(Tensor(X), 2)
        F.debug_param.set_execution_strategy("HEURISTIC_REPRODUCIBLE")
        F.debug_param.set_execution_strategy("HEURISTIC")
        mge.device.set_prealloc_config(alignment=32, device_type=DeviceType.CPU)
        mge.dtr.enable_sqrt_sampling = True  # acts
        mge.dtr.enable_sqrt_sampling = False
        builtin.MatrixMul(transposeA=True, compute_mode="FLOAT32")


def test_copies_of_a_tensors_value_are_made_as_asked():
    x = Tensor(X)
    assert np.array_equal(x.__array__(copy=True), X) and x.__array__("float64").dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        x.__array__("float64", copy=False)
    with pytest.raises(BufferError, match="host"):
        x.__dlpack__(dl_device=(2, 0))
    assert np.array_equal(np.from_dlpack(x), X)


def test_on_a_gpu_the_level_of_errors_says_what_it_does_not_reach(nothing_told, monkeypatch):
    monkeypatch.setattr(_config, "_has_gpu", lambda: True)
    with pytest.warns(UserWarning, match="async_level has no effect here: kernels of a GPU"):
        mge.config.async_level = 0
    mge.config.async_level = 2


def test_the_level_of_the_native_log_warns():
    with pytest.warns(UserWarning, match="no effect here: it writes none"):
        before = logger.set_mgb_log_level("ERROR")
    with pytest.warns(UserWarning, match="no effect"), logger.replace_mgb_log_level(before):
        pass


def test_senseless_values_are_refused():
    with pytest.raises(ValueError, match="_compute_mode: 'banana'"):
        mge.config._compute_mode = "banana"
    with pytest.raises(ValueError, match="_conv_format: 'banana'"):
        mge.config._conv_format = "banana"
    with pytest.raises(ValueError, match="device_type: 'toaster'"):
        mge.distributed.launcher(abs, device_type="toaster")
    with pytest.raises(ValueError, match="device_type: 'toaster'"):
        mge.distributed.init_process_group("localhost", 0, 1, 0, 0, device_type="toaster")
    with pytest.raises(TypeError, match="banana"):
        builtin.MatrixMul(banana=3)
    with pytest.raises(ValueError, match="MatrixMul: compute_mode 'half'"):
        builtin.MatrixMul(compute_mode="half")
    with pytest.raises(ValueError, match="compute_mode 'half'"):
        F.matmul(Tensor(X), Tensor(X.T), compute_mode="half")
    with pytest.raises(ValueError, match="embed_dim 4"):
        F.nn.multi_head_attention(Tensor(X[None]), Tensor(X[None]), Tensor(X[None]), 4, 1, 0.0, 0.0, Tensor([1.0]))
