"""What names of PyTorch, and of MegEngine before 1.0, are called here: lines that are added to AttributeErrors and TypeErrors.

Tables only, and who looks into them when a name is missing already: nothing is slower for names that exist.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

TENSOR = {
    "abs": "F.abs(x)",
    "add": "x + y",
    "argmax": "F.argmax(x, axis)",
    "argmin": "F.argmin(x, axis)",
    "backward": "gm.backward(x) inside 'with gm:', where gm = GradManager().attach(parameters)",
    "bmm": "F.matmul(x, y)",
    "bool": "x.astype('bool')",
    "chunk": "F.split(x, count, axis)",
    "clamp": "F.clip(x, lower, upper)",
    "clone": "F.copy(x)",
    "contiguous": "x itself: no operation depends on the memory layout",
    "cpu": "x.to('cpu0'), or x.numpy() for an array",
    "cuda": "x.to('gpu0')",
    "cumsum": "F.cumsum(x, axis)",
    "data": "x.detach()",
    "dim": "x.ndim",
    "div": "x / y",
    "dot": "F.dot(x, y)",
    "double": "x.astype('float64'), which products and norms refuse",
    "exp": "F.exp(x)",
    "expand": "F.broadcast_to(x, shape)",
    "expand_as": "F.broadcast_to(x, y.shape)",
    "fill_": "x[...] = value",
    "float": "x.astype('float32')",
    "gather": "F.gather(x, axis, index)",
    "half": "x.astype('float16')",
    "index_select": "x[index], or x[:, index] and so on",
    "int": "x.astype('int32')",
    "is_cuda": "x.device",
    "log": "F.log(x)",
    "long": "x.astype('int64')",
    "masked_fill": "F.where(mask, value, x)",
    "masked_select": "x[mask]",
    "matmul": "x @ y",
    "mm": "x @ y",
    "mul": "x * y",
    "nonzero": "F.non_zero(x)",
    "norm": "F.norm(x, ord, axis)",
    "numel": "x.size",
    "permute": "x.transpose(order), as in x.transpose(0, 2, 1)",
    "pow": "x ** y",
    "relu": "F.relu(x)",
    "repeat": "F.tile(x, counts)",
    "requires_grad_": "GradManager().attach(x)",
    "sigmoid": "F.sigmoid(x)",
    "softmax": "F.softmax(x, axis)",
    "split": "F.split(x, count_or_indices, axis)",
    "sqrt": "F.sqrt(x)",
    "squeeze": "F.squeeze(x, axis)",
    "std": "F.std(x, axis)",
    "sub": "x - y",
    "t": "x.T",
    "tanh": "F.tanh(x)",
    "topk": "F.topk(x, k, descending=True)",
    "type": "x.astype(dtype)",
    "unsqueeze": "F.expand_dims(x, axis)",
    "view": "x.reshape(shape), as in x.reshape(2, -1)",
    "zero_": "x.reset_zero()",
}

FUNCTIONS = {
    "absolute": "F.abs",
    "accuracy": "F.topk_accuracy",
    "add_axis": "F.expand_dims",
    "add_update": "x += y",
    "addmm": "F.matmul(a, b) + c",
    "amax": "F.max",
    "amin": "F.min",
    "as_tensor": "megengine.tensor",
    "batched_matrix_mul": "F.matmul",
    "binary_cross_entropy": "F.nn.binary_cross_entropy(pred, label, with_logits=False)",
    "binary_cross_entropy_with_logits": "F.nn.binary_cross_entropy, whose with_logits is True by default",
    "bmm": "F.matmul",
    "cat": "F.concat",
    "chunk": "F.split",
    "clamp": "F.clip",
    "clone": "F.copy",
    "cross_entropy": "F.nn.cross_entropy",
    "cross_entropy_with_softmax": "F.nn.cross_entropy",
    "ctc_loss": "F.nn.ctc_loss",
    "dimshuffle": "F.transpose",
    "divide": "F.div",
    "empty_like": "F.zeros_like",
    "expand": "F.broadcast_to",
    "fmod": "F.mod",
    "from_numpy": "megengine.tensor",
    "grad": "megengine.autodiff.GradManager",
    "grid_sample": "F.vision.remap",
    "hardsigmoid": "F.hsigmoid",
    "hardswish": "F.hswish",
    "interpolate": "F.nn.interpolate",
    "inverse": "F.matinv",
    "l1_loss": "F.nn.l1_loss",
    "log_softmax": "F.logsoftmax",
    "manual_seed": "megengine.random.seed",
    "masked_select": "F.cond_take",
    "mm": "F.matmul",
    "mse_loss": "F.nn.square_loss",
    "multinomial": "megengine.random.multinomial",
    "multiply": "F.mul",
    "mv": "F.matmul",
    "nll_loss": "F.nn.cross_entropy(pred, label, with_logits=False), which takes probabilities",
    "nms": "F.vision.nms",
    "nonzero": "F.non_zero",
    "normal": "megengine.random.normal",
    "numel": "x.size",
    "permute": "F.transpose",
    "rand": "megengine.random.uniform",
    "randn": "megengine.random.normal",
    "randperm": "megengine.random.permutation",
    "remove_axis": "F.squeeze",
    "repeat_interleave": "F.repeat",
    "roi_align": "F.nn.roi_align",
    "roi_pooling": "F.vision.roi_pooling",
    "subtract": "F.sub",
    "top_k": "F.topk",
    "unfold": "F.sliding_window",
    "unsqueeze": "F.expand_dims",
    "upsample": "F.nn.interpolate",
    "view": "F.reshape",
    "zero_grad": "the clear_grad() of the optimizer",
}

LAYERS = {
    "BCELoss": "F.nn.binary_cross_entropy(pred, label, with_logits=False)",
    "BCEWithLogitsLoss": "F.nn.binary_cross_entropy",
    "CTCLoss": "F.nn.ctc_loss",
    "CrossEntropyLoss": "F.nn.cross_entropy",
    "Flatten": "F.flatten(x, 1) in forward",
    "L1Loss": "F.nn.l1_loss",
    "LogSoftmax": "F.logsoftmax",
    "MSELoss": "F.nn.square_loss",
    "ModuleDict": "a dict, as an attribute of the module",
    "ModuleList": "a list, as an attribute of the module",
    "MultiheadAttention": "M.MultiHeadAttention",
    "NLLLoss": "F.nn.cross_entropy(pred, label, with_logits=False), which takes probabilities",
    "Parameter": "megengine.Parameter",
    "ParameterDict": "a dict, as an attribute of the module",
    "ParameterList": "a list, as an attribute of the module",
    "Tanh": "F.tanh in forward",
    "Unfold": "M.SlidingWindow",
    "Upsample": "F.nn.interpolate in forward",
    "ZeroPad2d": "M.Pad",
    "functional": "megengine.functional",
}

INITIALIZERS = {
    "constant_": "M.init.fill_",
    "kaiming_normal_": "M.init.msra_normal_",
    "kaiming_uniform_": "M.init.msra_uniform_",
}

MODULE = {
    "add_module": "setattr(module, name, child)",
    "cpu": "megengine.set_default_device('cpu0') before the module is made",
    "cuda": "megengine.set_default_device('gpu0') before the module is made",
    "half": "megengine.amp.autocast in the training step",
    "register_buffer": "self.name = tensor: a tensor that is not a Parameter is a buffer",
    "register_module": "self.name = module",
    "register_parameter": "self.name = megengine.Parameter(value)",
    "requires_grad_": "GradManager.attach with the parameters to train",
    "to": "megengine.set_default_device before the module is made",
}

PACKAGE = {
    **FUNCTIONS,
    "Size": "a tuple",
    "compile": "megengine.jit.trace",
    "cuda": "megengine.device, megengine.is_cuda_available()",
    "float16": "'float16': dtypes are names, or NumPy's",
    "float32": "'float32': dtypes are names, or NumPy's",
    "float64": "'float64', which products and norms refuse",
    "int32": "'int32': dtypes are names, or NumPy's",
    "int64": "'int64'",
    "long": "'int64'",
    "bool": "'bool': dtypes are names, or NumPy's",
    "arange": "F.arange",
    "einsum": "F.einsum",
    "matmul": "F.matmul",
    "ones": "F.ones",
    "stack": "F.stack",
    "where": "F.where",
    "zeros": "F.zeros",
    "nn": "megengine.module for layers, megengine.functional for functions",
    "no_grad": "no block at all: gradients are recorded under a GradManager only",
    "inference_mode": "no block at all: gradients are recorded under a GradManager only",
    "onnx": "import megengine.onnx",
    "optim": "megengine.optimizer",
    "Graph": "no block at all: functions compute at once",
    "init": "megengine.module.init",
}

ARGUMENTS = {
    "dim": "axis",
    "dims": "axis",
    "input": "inp",
    "keepdim": "keepdims",
    "p": "drop_prob",
    "tensors": "inps",
}
LOADER = "sampler=RandomSampler(dataset, batch_size), or SequentialSampler for the order of the dataset"


def missing_name(what: str, name: str, words: dict[str, str], held: object) -> AttributeError:
    """Python's error for a name that ``what`` has not, with a hint; Python's own guess only where there is none."""
    text = f"{what} has no attribute {name!r}"
    if name in words:
        return AttributeError(f"{text}\n  fix: use {words[name]}")
    return AttributeError(text, name=name, obj=held)


def module_getattr(module: str, words: dict[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module."""

    def __getattr__(name: str) -> Any:
        raise missing_name(f"module {module!r}", name, words, sys.modules[module])

    return __getattr__


class _Missing:
    """An attribute that a class does not have: reading it raises Python's AttributeError with a hint.

    A descriptor, because ``__getattr__`` would slow down every attribute of the class.
    """

    def __init__(self, name: str, words: dict[str, str]) -> None:
        self._name, self._words = name, words

    def __get__(self, held: Any, owner: type) -> Any:
        what = f"type object {owner.__name__!r}" if held is None else f"{owner.__name__!r} object"
        raise missing_name(what, self._name, self._words, held)


def explain_names(owner: type, words: dict[str, str]) -> None:
    """Attributes of torch that ``owner`` lacks say what they are called here. They stay out of ``dir()``."""
    missing = [name for name in words if not hasattr(owner, name)]
    for name in missing:
        setattr(owner, name, _Missing(name, words))

    def names(self: Any) -> list[str]:
        return [name for name in object.__dir__(self) if name not in missing]

    setattr(owner, "__dir__", names)


def _argument(error: TypeError) -> str:
    """What a keyword argument of torch is called here, in words; empty for other errors."""
    import inspect

    found = re.fullmatch(r"(?:\w+\.)*?(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'(?:\. Did you mean.*)?", str(error))
    if not found:
        return ""
    function, name = found.groups()
    if function == "DataLoader" and name in ("batch_size", "shuffle"):
        return LOADER
    ours = ARGUMENTS.get(name)
    if function == "Module" and ours:  # to which layers pass what they do not know
        return f"layers call it {ours}"
    package = __name__.partition(".")[0]
    for place in ("functional", "functional.nn", "functional.vision", "module"):
        called = getattr(sys.modules.get(f"{package}.{place}"), function, None)
        if callable(called) and ours in inspect.signature(called).parameters:
            return f"{function} calls it {ours}"
    return ""


def _explain(error: BaseException) -> None:
    if type(error) is TypeError and (words := _argument(error)):
        error.add_note(f"  fix: {words}")


def _explain_in_shell(shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: int | None = None) -> None:
    _explain(error)
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def explain_in_notebooks() -> None:
    """A line or a cell of IPython that fails tells what a keyword argument of torch is called here; a handler that is there already stays."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell and not shell.custom_exceptions:
        shell.set_custom_exc((TypeError,), _explain_in_shell)


def explain_arguments() -> None:
    """From here on an error that ends the program, or a line at Python's prompt, tells what a keyword argument of torch is called here.

    Python raises it before any function of ours runs: only when it is shown can something be added. So this sets ``sys.excepthook``, which
    importing the package does not.
    """
    show = sys.excepthook

    def explain(kind: Any, error: Any, trace: Any) -> None:
        _explain(error)
        show(kind, error, trace)

    sys.excepthook = explain
