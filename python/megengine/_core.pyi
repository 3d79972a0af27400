# Made by tools/make_stubs.py (`make stubs`) from the installed extension; not to be edited.
from collections.abc import Callable, Sequence
from typing import Self

import numpy

from megengine.jit import TraceError as TraceError
from megengine.tensor import Tensor as _Tensor  # what every result is


class Tensor:
    """Base of megengine.Tensor: a handle to an immutable value."""

    def __hash__(self, /) -> int:
        """Return hash(self)."""

    def __lt__(self, value: object, /) -> Self:
        """Return self<value."""

    def __le__(self, value: object, /) -> Self:
        """Return self<=value."""

    def __eq__(self, value: object, /) -> Self:  # type: ignore[override]
        """Return self==value."""

    def __ne__(self, value: object, /) -> Self:  # type: ignore[override]
        """Return self!=value."""

    def __gt__(self, value: object, /) -> Self:
        """Return self>value."""

    def __ge__(self, value: object, /) -> Self:
        """Return self>=value."""

    def __init__(self, data: object, dtype: object | None = None, device: object | None = None, is_const: bool = False, no_cache: bool = False, name: object | None = None, format: object | None = 'default') -> None: ...

    def __add__(self, value: object, /) -> Self:
        """Return self+value."""

    def __radd__(self, value: object, /) -> Self:
        """Return value+self."""

    def __sub__(self, value: object, /) -> Self:
        """Return self-value."""

    def __rsub__(self, value: object, /) -> Self:
        """Return value-self."""

    def __mul__(self, value: object, /) -> Self:
        """Return self*value."""

    def __rmul__(self, value: object, /) -> Self:
        """Return value*self."""

    def __mod__(self, value: object, /) -> Self:
        """Return self%value."""

    def __rmod__(self, value: object, /) -> Self:
        """Return value%self."""

    def __pow__(self, value: object, /) -> Self:
        """Return pow(self, value, mod)."""

    def __rpow__(self, value: object, /) -> Self:
        """Return pow(value, self, mod)."""

    def __neg__(self, /) -> Self:
        """-self"""

    def __abs__(self, /) -> Self:
        """abs(self)"""

    def __invert__(self, /) -> Self:
        """~self"""

    def __lshift__(self, value: object, /) -> Self:
        """Return self<<value."""

    def __rlshift__(self, value: object, /) -> Self:
        """Return value<<self."""

    def __rshift__(self, value: object, /) -> Self:
        """Return self>>value."""

    def __rrshift__(self, value: object, /) -> Self:
        """Return value>>self."""

    def __and__(self, value: object, /) -> Self:
        """Return self&value."""

    def __rand__(self, value: object, /) -> Self:
        """Return value&self."""

    def __xor__(self, value: object, /) -> Self:
        """Return self^value."""

    def __rxor__(self, value: object, /) -> Self:
        """Return value^self."""

    def __or__(self, value: object, /) -> Self:
        """Return self|value."""

    def __ror__(self, value: object, /) -> Self:
        """Return value|self."""

    def __iadd__(self, value: object, /) -> Self:
        """Return self+=value."""

    def __isub__(self, value: object, /) -> Self:
        """Return self-=value."""

    def __imul__(self, value: object, /) -> Self:
        """Return self*=value."""

    def __imod__(self, value: object, /) -> Self:
        """Return self%=value."""

    def __ipow__(self, value: object, /) -> Self:
        """Return self**=value."""

    def __ilshift__(self, value: object, /) -> Self:
        """Return self<<=value."""

    def __irshift__(self, value: object, /) -> Self:
        """Return self>>=value."""

    def __iand__(self, value: object, /) -> Self:
        """Return self&=value."""

    def __ixor__(self, value: object, /) -> Self:
        """Return self^=value."""

    def __ior__(self, value: object, /) -> Self:
        """Return self|=value."""

    def __floordiv__(self, value: object, /) -> Self:
        """Return self//value."""

    def __rfloordiv__(self, value: object, /) -> Self:
        """Return value//self."""

    def __truediv__(self, value: object, /) -> Self:
        """Return self/value."""

    def __rtruediv__(self, value: object, /) -> Self:
        """Return value/self."""

    def __ifloordiv__(self, value: object, /) -> Self:
        """Return self//=value."""

    def __itruediv__(self, value: object, /) -> Self:
        """Return self/=value."""

    @property
    def dtype(self) -> numpy.dtype: ...

    @property
    def ndim(self) -> int: ...

    @property
    def _tuple_shape(self) -> tuple: ...

    @property
    def _device_name(self) -> str: ...

    def numpy(self) -> numpy.ndarray:
        """The value as a NumPy array of the same dtype; a copy."""

    def _item(self) -> object: ...

    def detach(self) -> _Tensor:
        """The same value, cut off from gradients."""

    def _reset(self, other: Tensor) -> None: ...

    def _assign(self, other: Tensor) -> None:
        """
        x[...] = other: holds the same value, and is another tensor to whoever attaches one.
        """

    def to_mkldnn(self) -> _Tensor:
        """
        The same value in the order of memory that oneDNN's kernels read best: channels-last for floating dtypes with 3 to 5 axes.
        Functions that do not know the order work on a copy; shape and values are the same in any case.
        """

    def to_dense(self) -> _Tensor:
        """The same value in row-major order."""

    @property
    def is_mkldnn(self) -> bool:
        """
        Whether the value lies in an order of oneDNN's, as to_mkldnn() makes it.
        """

    def _value_id(self) -> int: ...

    def _has_data(self) -> bool: ...

    def _data_ptr(self) -> int: ...

    @property
    def _layout(self) -> str:
        """
        Order of memory: row_major, channels_last, or one of the backend's own.
        """

    @property
    def _is_packed(self) -> bool: ...

def _set_tensor_class(arg: object, /) -> None: ...

def apply_const(value: object) -> _Tensor:
    """A Tensor that a trace bakes in: its value must be equal in every call."""

def convert_inputs(*args: object) -> list[_Tensor]:
    """The arguments as Tensors of their promoted dtype."""

def promote_dtype(arg0: object, arg1: object, /) -> object: ...

def _pack_operand(op: str, operands: list, index: int, attributes: dict) -> None:
    """
    Let operand `index` of that call lie as the kernel reads it best; its value stays.
    """

def op_table() -> list:
    """
    One row an op: name, doc, number of inputs, attributes with their kind, sample inputs.
    """

class Tape:
    """What a GradManager records."""

    def __init__(self) -> None: ...

    def watch(self, arg: Tensor, /) -> None: ...

    def watches(self, arg: Tensor, /) -> bool: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def clear(self) -> None: ...

    @property
    def is_open(self) -> bool: ...

    def backward(self, ys: object, dys: object, wanted: object) -> list: ...

    @staticmethod
    def open_group(arg: list, /) -> None: ...

class pause_tapes:
    """Within this block no tape records."""

    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

def custom_apply(inputs: object, outputs: object, backward: Callable) -> list: ...

class RandomState:
    """Counter-based random stream: a seed, and how many keys were drawn."""

    def __init__(self, seed: int = 0) -> None: ...

    def key(self) -> object:
        """int32[4] Tensor; the counter goes up by one."""

    def seed(self, arg: int, /) -> None: ...

    @property
    def current_seed(self) -> int: ...

    @property
    def counter(self) -> int: ...

def default_random_state() -> RandomState: ...

class Version:
    """One record of a traced function."""

    @property
    def result_count(self) -> int: ...

    @property
    def input_count(self) -> int: ...

    def export_model(self, inputs: list, outputs: list, optimize: bool, half_storage: bool, keep_value_names: int, keep_op_names: bool, keep_param_names: bool) -> Model: ...

class Model:
    """A graph with names, as dump writes it."""

    @property
    def inputs(self) -> list: ...

    @property
    def outputs(self) -> list: ...

    @property
    def params(self) -> list: ...

    @property
    def node_names(self) -> list: ...

    @property
    def value_names(self) -> list: ...

    @property
    def input_types(self) -> list:
        """A dtype and a shape for each input."""

    @property
    def nodes(self) -> list:
        """
        A dict for each node: op, attrs, ids of values that go in and come out, slot, constant, line.
        """

    @property
    def value_types(self) -> list:
        """A dtype and a shape for each value."""

    @property
    def output_values(self) -> tuple: ...

    @property
    def node_count(self) -> int: ...

    @property
    def constant_bytes(self) -> int: ...

    @property
    def op_types(self) -> object: ...

    @property
    def dtypes(self) -> object: ...

    @property
    def metadata(self) -> bytes: ...

    @metadata.setter
    def metadata(self, arg: bytes, /) -> None: ...

    @property
    def cases(self) -> bytes: ...

    @cases.setter
    def cases(self, arg: bytes, /) -> None: ...

    def graph_text(self) -> str: ...

    def to_bytes(self) -> bytes: ...

    def program(self, outputs: list, opt_level: int) -> Program: ...

class Program:
    """A compiled model."""

    def run(self, inputs: list) -> list: ...

def load_model(bytes: bytes, file_name: str, offset: int = 0) -> tuple:
    """A Model and the bytes that it took."""

def checksum(arg: bytes, /) -> int: ...

def note_results(arg: list, /) -> None: ...

def set_name(arg0: Tensor, arg1: str, /) -> None: ...

def set_scope(arg: str, /) -> None: ...

class GraphEditor:
    """A graph that is edited; nodes and values are numbers that stay."""

    def __init__(self) -> None: ...

    @property
    def id(self) -> int: ...

    def add_model(self, model: Model) -> list[int]: ...

    def add_input(self, shape: Sequence[int], dtype: object, name: str) -> int: ...

    def add_constant(self, data: Tensor, name: str, is_parameter: bool) -> int: ...

    @property
    def roots(self) -> tuple[list[int], list[int]]:
        """
        Values that are outputs, and values that belong to the graph beside them.
        """

    @roots.setter
    def roots(self, arg: tuple[Sequence[int], Sequence[int]], /) -> None: ...

    def replace(self, pairs: Sequence[tuple[int, int]]) -> None: ...

    def copy_with(self, values: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[int]: ...

    def optimized(self, values: Sequence[int]) -> list[int]: ...

    def set_operand(self, node: int, operand: int, value: int) -> None: ...

    def set_constant(self, node: int, data: Tensor) -> None: ...

    def reset_batch(self, inputs: Sequence[int], before: int, after: int) -> None: ...

    def order(self, of: Sequence[int] = []) -> list[int]:
        """
        Nodes that the values are made of (none given: all that belong to the graph), as they can run.
        """

    def kind(self, node: int) -> str:
        """"input", "constant", "parameter", or the name of the op."""

    def type_name(self, node: int) -> str: ...

    def attrs(self, node: int) -> dict: ...

    def inputs(self, node: int) -> list[int]: ...

    def outputs(self, node: int) -> list[int]: ...

    def owner(self, value: int) -> int: ...

    def node_name(self, node: int) -> str: ...

    def value_name(self, value: int) -> str: ...

    def rename_node(self, node: int, name: str) -> None: ...

    def rename_value(self, value: int, name: str) -> None: ...

    def variable(self, value: int, type: type) -> object: ...

    def refresh(self, variable: Tensor) -> None: ...

    def constant_value(self, value: int) -> object: ...

    def model(self, of: Sequence[int], optimize: bool, half_storage: bool, keep_value_names: int, keep_op_names: bool, keep_param_names: bool) -> Model: ...

def variable_link(arg: Tensor, /) -> tuple[int, int]:
    """The edited graph and the number of a variable."""

def _set_variables(of_link: object) -> None:
    """
    Called with graph and number: the object for a result that is a variable of an edited graph.
    """

class RematSearch:
    """How recomputation is searched for."""

    def __init__(self, **kwargs) -> None: ...

    @property
    def thresholds(self) -> int: ...

    @thresholds.setter
    def thresholds(self, arg: int, /) -> None: ...

    @property
    def genetic_rounds(self) -> int: ...

    @genetic_rounds.setter
    def genetic_rounds(self, arg: int, /) -> None: ...

    @property
    def genetic_pool(self) -> int: ...

    @genetic_pool.setter
    def genetic_pool(self, arg: int, /) -> None: ...

    @property
    def workers(self) -> int: ...

    @workers.setter
    def workers(self, arg: int, /) -> None: ...

class MemoryOptions:
    """What a traced function may take of memory."""

    def __init__(self, **kwargs) -> None: ...

    @property
    def limit(self) -> int:
        """Bytes of a call; 0: none."""

    @limit.setter
    def limit(self, arg: int, /) -> None: ...

    @property
    def is_sublinear(self) -> bool: ...

    @is_sublinear.setter
    def is_sublinear(self, arg: bool, /) -> None: ...

    @property
    def enough_bytes(self) -> int: ...

    @enough_bytes.setter
    def enough_bytes(self, arg: int, /) -> None: ...

    @property
    def only_looks(self) -> bool: ...

    @only_looks.setter
    def only_looks(self, arg: bool, /) -> None: ...

    @property
    def search(self) -> RematSearch: ...

    @search.setter
    def search(self, arg: RematSearch, /) -> None: ...

class PipelineOptions:
    """Which passes a graph goes through."""

    def __init__(self, **kwargs) -> None: ...

    @property
    def opt_level(self) -> int: ...

    @opt_level.setter
    def opt_level(self, arg: int, /) -> None: ...

    @property
    def exact(self) -> bool: ...

    @exact.setter
    def exact(self, arg: bool, /) -> None: ...

    @property
    def fuse(self) -> bool: ...

    @fuse.setter
    def fuse(self, arg: bool, /) -> None: ...

    @property
    def fuse_reduce(self) -> bool: ...

    @fuse_reduce.setter
    def fuse_reduce(self, arg: bool, /) -> None: ...

    @property
    def fuse_dimshuffle(self) -> bool: ...

    @fuse_dimshuffle.setter
    def fuse_dimshuffle(self, arg: bool, /) -> None: ...

    @property
    def memory(self) -> MemoryOptions: ...

    @memory.setter
    def memory(self, arg: MemoryOptions, /) -> None: ...

class TraceOptions:
    """How a function is recorded and compiled."""

    def __init__(self, **kwargs) -> None: ...

    def copy(self) -> TraceOptions: ...

    @property
    def name(self) -> str: ...

    @name.setter
    def name(self, arg: str, /) -> None: ...

    @property
    def symbolic(self) -> bool: ...

    @symbolic.setter
    def symbolic(self, arg: bool, /) -> None: ...

    @property
    def symbolic_shape(self) -> bool: ...

    @symbolic_shape.setter
    def symbolic_shape(self, arg: bool, /) -> None: ...

    @property
    def capture_as_const(self) -> bool: ...

    @capture_as_const.setter
    def capture_as_const(self, arg: bool, /) -> None: ...

    @property
    def record_only(self) -> bool: ...

    @record_only.setter
    def record_only(self, arg: bool, /) -> None: ...

    @property
    def profiling(self) -> bool: ...

    @profiling.setter
    def profiling(self, arg: bool, /) -> None: ...

    @property
    def only_plan(self) -> bool: ...

    @only_plan.setter
    def only_plan(self, arg: bool, /) -> None: ...

    @property
    def pipeline(self) -> PipelineOptions: ...

    @pipeline.setter
    def pipeline(self, arg: PipelineOptions, /) -> None: ...

class TraceFunction:
    def __init__(self, options: TraceOptions) -> None: ...

    def begin(self, arguments: list) -> None: ...

    def finish(self, arguments: list) -> None: ...

    def abort(self, arguments: list) -> None: ...

    def begin_capture(self, arguments: list) -> None: ...

    def finish_capture(self, arguments: list, results: list, guards: int) -> object: ...

    def run_direct(self, arguments: list, guards: int) -> object: ...

    def clear(self) -> None: ...

    def plans(self) -> list: ...

    def kernels(self) -> list: ...

    def graphs(self, optimized: bool, html: bool = False) -> list: ...

    def profiles(self, of_all_versions: bool = False) -> list: ...

    def explain(self) -> str: ...

    @property
    def version_count(self) -> int: ...

    @property
    def version(self) -> Version: ...

    @property
    def op_count(self) -> int: ...

    @property
    def value_count(self) -> int: ...

class Excluded:
    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

def is_tracing() -> bool: ...

def note_getter(arg0: Tensor, arg1: object, /) -> None: ...

def is_capturing() -> bool: ...

def symbolic_shape_active() -> bool: ...

def note_grad(tensor: object) -> None:
    """
    Before its .grad changes: a traced call that does not run gives it back.
    """

def open_tapes() -> int: ...

def mark_kept(tensor: Tensor) -> None: ...

def mark_offloaded(tensor: Tensor) -> None: ...

def begin_recompute() -> None: ...

def end_recompute(results: list) -> None: ...

def is_recording() -> bool: ...

def copy_bandwidth() -> float: ...

def compile_kernel(text: str) -> tuple[str, str]: ...

def cache_info() -> dict: ...

def cache_clear() -> int: ...

def cache_verify() -> tuple[int, int]: ...

def cache_export(archive: str) -> int: ...

def cache_import(archive: str) -> int: ...

def memory_stats() -> dict: ...

def reset_peak_memory() -> None: ...

def trim_memory() -> None: ...

def set_memory_cap(arg: int, /) -> None: ...

def set_memory_growth(arg0: int, arg1: int, arg2: float, /) -> None: ...

def fail_allocation(after: int) -> None:
    """
    For tests: `after` more allocations succeed and the next one fails, once; -1 takes it back.
    """

def set_dtr(is_on: bool, threshold: int, least_bytes: int, samples: bool) -> None: ...

def dtr_stats() -> dict: ...

def thread_count() -> int: ...

def set_thread_count(arg: int, /) -> None: ...

def isa() -> str: ...

def machine_isa() -> str: ...

def backends() -> list: ...

def switches() -> dict: ...

def reload_debug() -> None: ...

class ops:
    """Every registered op: ops.<name>(*tensors, **attributes)."""

    @staticmethod
    def abs(x: object, /) -> _Tensor:
        """|x|. The gradient at 0 is minus the incoming one."""

    @staticmethod
    def acos(x: object, /) -> _Tensor:
        """Arc cosine."""

    @staticmethod
    def acosh(x: object, /) -> _Tensor:
        """Inverse of cosh; NaN below 1."""

    @staticmethod
    def adaptive_avg_pool(x: object, /, *, output: int | Sequence[int]) -> _Tensor:
        """Mean of each of `output` even parts per spatial axis."""

    @staticmethod
    def adaptive_avg_pool_grad(dy: object, /, *, input_shape: int | Sequence[int]) -> _Tensor:
        """Gradient of adaptive_avg_pool; input_shape has x's spatial extents."""

    @staticmethod
    def adaptive_max_pool(x: object, /, *, output: int | Sequence[int]) -> _Tensor:
        """Largest element of each of `output` even parts per spatial axis; a NaN in the part wins."""

    @staticmethod
    def adaptive_max_pool_grad(x: object, dy: object, /, *, output: int | Sequence[int]) -> _Tensor:
        """Gradient of adaptive_max_pool."""

    @staticmethod
    def adaptive_max_pool_pick(x: object, v: object, /, *, output: int | Sequence[int]) -> _Tensor:
        """The elements of v at the places that adaptive_max_pool takes from x."""

    @staticmethod
    def add(x: object, y: object, /) -> _Tensor:
        """x + y."""

    @staticmethod
    def argmax(x: object, /, *, axis: int, keepdims: int = 0) -> _Tensor:
        """int32 index of the first largest element along an axis; NaN counts as the largest."""

    @staticmethod
    def argmin(x: object, /, *, axis: int, keepdims: int = 0) -> _Tensor:
        """int32 index of the first smallest element along an axis; NaN counts as the smallest."""

    @staticmethod
    def asin(x: object, /) -> _Tensor:
        """Arc sine."""

    @staticmethod
    def asinh(x: object, /) -> _Tensor:
        """Inverse of sinh."""

    @staticmethod
    def atan(x: object, /) -> _Tensor:
        """Arc tangent."""

    @staticmethod
    def atan2(x: object, y: object, /) -> _Tensor:
        """Angle of the point (y, x): its first input is the ordinate."""

    @staticmethod
    def atanh(x: object, /) -> _Tensor:
        """Inverse of tanh."""

    @staticmethod
    def avg_pool(x: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0, count_include_padding: int = 0) -> _Tensor:
        """Mean of each window of x [n, c, spatial...]; padding counts as zeros if count_include_padding."""

    @staticmethod
    def avg_pool_grad(dy: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0, count_include_padding: int = 0, input_shape: int | Sequence[int]) -> _Tensor:
        """Gradient of avg_pool; input_shape has x's spatial extents."""

    @staticmethod
    def batch_norm(x: object, scale: object, bias: object, /, *, eps: float = 1e-05) -> tuple[_Tensor, ...]:
        """(x - mean) / sqrt(var + eps) * scale + bias with the statistics of this batch, over all axes but axis 1. Also returns mean and the biased variance, in float32."""

    @staticmethod
    def batch_norm_grad(x: object, mean: object, var: object, scale: object, dy: object, /, *, eps: float = 1e-05) -> tuple[_Tensor, ...]:
        """Gradients of batch_norm's first result for x, scale and bias."""

    @staticmethod
    def batch_norm_grad_sums(x: object, mean: object, var: object, dy: object, /, *, eps: float = 1e-05) -> tuple[_Tensor, ...]:
        """Gradients of batch_norm's first result for scale and bias, in float32: sums over all axes but axis 1."""

    @staticmethod
    def batch_norm_stats(x: object, /) -> tuple[_Tensor, ...]:
        """Mean and biased variance over all axes but axis 1, in float32."""

    @staticmethod
    def bit_and(x: object, y: object, /) -> _Tensor:
        """x & y."""

    @staticmethod
    def bit_not(x: object, /) -> _Tensor:
        """~x."""

    @staticmethod
    def bit_or(x: object, y: object, /) -> _Tensor:
        """x | y."""

    @staticmethod
    def bit_xor(x: object, y: object, /) -> _Tensor:
        """x ^ y."""

    @staticmethod
    def broadcast_to(x: object, /, *, shape: int | Sequence[int]) -> _Tensor:
        """Repeats axes of extent 1, and new leading axes, up to `shape`."""

    @staticmethod
    def cast(x: object, /, *, dtype: object) -> _Tensor:
        """x as another dtype: floats to integers towards 0, anything to bool by != 0."""

    @staticmethod
    def ceil(x: object, /) -> _Tensor:
        """Rounds up."""

    @staticmethod
    def celu(x: object, /, *, alpha: float = 1.0) -> _Tensor:
        """x, or alpha * (exp(x / alpha) - 1) where x is negative."""

    @staticmethod
    def checked_index(index: object, /, *, axis: int, extent: int, op: str) -> _Tensor:
        """The index with negative places counted from the end. A place out of range is an IndexError that names axis and op."""

    @staticmethod
    def complex(real: object, imag: object, /) -> _Tensor:
        """real + i imag."""

    @staticmethod
    def concat(*xs: object, axis: int) -> _Tensor:
        """Joins tensors along one axis."""

    @staticmethod
    def conv(x: object, w: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1) -> _Tensor:
        """Convolution (cross-correlation) of x [n, c, spatial...] with w [oc, c / groups, kernel...]; extents round down."""

    @staticmethod
    def conv_backward_data(dy: object, w: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, input_shape: int | Sequence[int]) -> _Tensor:
        """Gradient of conv for x: the transposed convolution of dy with w; input_shape has x's spatial extents."""

    @staticmethod
    def conv_backward_filter(x: object, dy: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, kernel: int | Sequence[int]) -> _Tensor:
        """Gradient of conv for w; kernel has the weights' spatial extents."""

    @staticmethod
    def conv_epilogue(x: object, w: object, /, *operands: object, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, epilogue: str) -> _Tensor:
        """conv, then the steps of `epilogue` (bias, add, relu) on its result."""

    @staticmethod
    def coordinates(*, shape: int | Sequence[int], axis: int) -> _Tensor:
        """int32: each element's place along the axis."""

    @staticmethod
    def cos(x: object, /) -> _Tensor:
        """Cosine; exact to 2 ulp for every finite x."""

    @staticmethod
    def cosh(x: object, /) -> _Tensor:
        """Hyperbolic cosine."""

    @staticmethod
    def cumsum(x: object, /, *, axis: int, exclusive: int = 0, reverse: int = 0) -> _Tensor:
        """Sums of all elements up to each one along an axis (exclusive: without it; reverse: from the end). bool counts in int32."""

    @staticmethod
    def digamma(x: object, /) -> _Tensor:
        """Derivative of lgamma."""

    @staticmethod
    def dropout_mask(key: object, /, *, shape: int | Sequence[int], drop_prob: float) -> _Tensor:
        """0 with probability drop_prob, else 1 / (1 - drop_prob)."""

    @staticmethod
    def elu(x: object, /, *, alpha: float = 1.0) -> _Tensor:
        """x, or alpha * (exp(x) - 1) where x is negative."""

    @staticmethod
    def equal(x: object, y: object, /) -> _Tensor:
        """x == y."""

    @staticmethod
    def erf(x: object, /) -> _Tensor:
        """Error function."""

    @staticmethod
    def erfc(x: object, /) -> _Tensor:
        """1 - erf(x), exact for large x."""

    @staticmethod
    def erfcinv(x: object, /) -> _Tensor:
        """Inverse of erfc."""

    @staticmethod
    def erfinv(x: object, /) -> _Tensor:
        """Inverse of erf."""

    @staticmethod
    def exp(x: object, /) -> _Tensor:
        """e to the power x."""

    @staticmethod
    def expm1(x: object, /) -> _Tensor:
        """exp(x) - 1, exact near 0."""

    @staticmethod
    def fake_quant(x: object, scale: object, zero_point: object, grad_scale: object, /, *, qmin: int = -128, qmax: int = 127) -> _Tensor:
        """x rounded to scale * (q - zero_point) with q in [qmin, qmax]; grad_scale weights the gradient of scale."""

    @staticmethod
    def floor(x: object, /) -> _Tensor:
        """Rounds down."""

    @staticmethod
    def floor_div(x: object, y: object, /) -> _Tensor:
        """x / y rounded towards minus infinity; an integer divided by 0 is 0."""

    @staticmethod
    def fma3(a: object, b: object, c: object, /) -> _Tensor:
        """a * b + c, rounded twice."""

    @staticmethod
    def full(*, shape: int | Sequence[int], value: float, dtype: object = 'float32') -> _Tensor:
        """A tensor of one value."""

    @staticmethod
    def gather(x: object, index: object, /, *, axis: int) -> _Tensor:
        """y[i, j] = x[index[i, j], j] for axis 0, and so on for others."""

    @staticmethod
    def gelu(x: object, /) -> _Tensor:
        """x * Phi(x), with the exact normal distribution."""

    @staticmethod
    def greater(x: object, y: object, /) -> _Tensor:
        """x > y."""

    @staticmethod
    def greater_equal(x: object, y: object, /) -> _Tensor:
        """x >= y."""

    @staticmethod
    def hsigmoid(x: object, /) -> _Tensor:
        """relu6(x + 3) / 6."""

    @staticmethod
    def hswish(x: object, /) -> _Tensor:
        """x * relu6(x + 3) / 6."""

    @staticmethod
    def identity(x: object, /) -> _Tensor:
        """x."""

    @staticmethod
    def imag(x: object, /) -> _Tensor:
        """Imaginary part of a complex tensor."""

    @staticmethod
    def index_add(x: object, value: object, /, *index: object, axes: int | Sequence[int]) -> _Tensor:
        """x with `value` added at those places, repeated places too, always in the same order."""

    @staticmethod
    def index_get(x: object, /, *index: object, axes: int | Sequence[int]) -> _Tensor:
        """x at index tensors on `axes`, whole along the others, as NumPy's advanced indexing: the places stand where the axes stood when these are neighbours, else in front."""

    @staticmethod
    def index_set(x: object, value: object, /, *index: object, axes: int | Sequence[int]) -> _Tensor:
        """x with `value` written at those places; of several writes to one place the last wins."""

    @staticmethod
    def isfinite(x: object, /) -> _Tensor:
        """Is x neither infinite nor NaN?"""

    @staticmethod
    def isinf(x: object, /) -> _Tensor:
        """Is x infinite?"""

    @staticmethod
    def isnan(x: object, /) -> _Tensor:
        """Is x not a number?"""

    @staticmethod
    def layer_norm(x: object, /, *scale_and_bias: object, axes: int, eps: float = 1e-05, affine: int = 1) -> tuple[_Tensor, ...]:
        """Normalizes over the last `axes` axes, then scales and shifts (x, scale, bias; or x alone with affine = 0). Also returns mean and 1 / sqrt(var + eps), in float32."""

    @staticmethod
    def layer_norm_grad(x: object, mean: object, rstd: object, dy: object, /, *scale: object, axes: int, affine: int = 1) -> tuple[_Tensor, ...]:
        """Gradients of layer_norm's first result for x, and for scale and bias unless affine = 0."""

    @staticmethod
    def leaky_relu(x: object, /, *, negative_slope: float = 0.01) -> _Tensor:
        """x, or negative_slope * x where x is negative."""

    @staticmethod
    def left_shift(x: object, y: object, /) -> _Tensor:
        """x << y; the count is taken modulo 32."""

    @staticmethod
    def less(x: object, y: object, /) -> _Tensor:
        """x < y."""

    @staticmethod
    def less_equal(x: object, y: object, /) -> _Tensor:
        """x <= y."""

    @staticmethod
    def lgamma(x: object, /) -> _Tensor:
        """Logarithm of the absolute value of the gamma function."""

    @staticmethod
    def log(x: object, /) -> _Tensor:
        """Natural logarithm."""

    @staticmethod
    def log1p(x: object, /) -> _Tensor:
        """log(1 + x), exact near 0."""

    @staticmethod
    def log_softmax(x: object, /, *, axis: int) -> _Tensor:
        """x - log(sum(exp(x))) along one axis, shifted by the largest element."""

    @staticmethod
    def logaddexp(x: object, y: object, /) -> _Tensor:
        """log(exp(x) + exp(y))."""

    @staticmethod
    def logical_and(x: object, y: object, /) -> _Tensor:
        """x and y."""

    @staticmethod
    def logical_not(x: object, /) -> _Tensor:
        """not x."""

    @staticmethod
    def logical_or(x: object, y: object, /) -> _Tensor:
        """x or y."""

    @staticmethod
    def logical_xor(x: object, y: object, /) -> _Tensor:
        """Either x or y."""

    @staticmethod
    def logsigmoid(x: object, /) -> _Tensor:
        """log(sigmoid(x))."""

    @staticmethod
    def mask_select(x: object, mask: object, /) -> tuple[_Tensor, ...]:
        """The elements of x where mask is true, and their int32 places in row-major order."""

    @staticmethod
    def matinv(x: object, /) -> _Tensor:
        """Inverse of each matrix. A singular matrix is an error when the op runs."""

    @staticmethod
    def matmul(a: object, b: object, /, *, transpose_a: int = 0, transpose_b: int = 0) -> _Tensor:
        """Matrix product over the last two axes; leading axes broadcast. Floating dtypes accumulate in float32; integers wrap in their own dtype."""

    @staticmethod
    def matmul_epilogue(a: object, b: object, /, *operands: object, transpose_a: int = 0, transpose_b: int = 0, epilogue: str) -> _Tensor:
        """matmul, then the steps of `epilogue` (bias, add, relu) on its result."""

    @staticmethod
    def max_pool(x: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0) -> _Tensor:
        """Largest element of each window of x [n, c, spatial...]; a NaN in the window wins."""

    @staticmethod
    def max_pool_grad(x: object, dy: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0) -> _Tensor:
        """Gradient of max_pool: adds each dy to the first largest element of its window."""

    @staticmethod
    def max_pool_pick(x: object, v: object, /, *, kernel: int | Sequence[int], stride: int | Sequence[int], padding: int | Sequence[int] = 0) -> _Tensor:
        """The elements of v at the places that max_pool takes from x: the gradient of max_pool_grad for dy."""

    @staticmethod
    def maximum(x: object, y: object, /) -> _Tensor:
        """The larger one, or NaN."""

    @staticmethod
    def minimum(x: object, y: object, /) -> _Tensor:
        """The smaller one, or NaN."""

    @staticmethod
    def mish(x: object, /) -> _Tensor:
        """x * tanh(softplus(x))."""

    @staticmethod
    def mod(x: object, y: object, /) -> _Tensor:
        """Rest of the division: with the sign of y for integers, of x for floats."""

    @staticmethod
    def mul(x: object, y: object, /) -> _Tensor:
        """x * y."""

    @staticmethod
    def neg(x: object, /) -> _Tensor:
        """-x."""

    @staticmethod
    def nms(boxes: object, scores: object, /, *, iou_thresh: float, max_output: int = 0) -> _Tensor:
        """int32 indices of the boxes (x0, y0, x1, y1) that stay when, by falling score, each box removes those that overlap it by more than iou_thresh. max_output 0: no limit."""

    @staticmethod
    def nonzero(mask: object, /) -> _Tensor:
        """int32 coordinates [n, rank] of the true elements, in row-major order."""

    @staticmethod
    def not_equal(x: object, y: object, /) -> _Tensor:
        """x != y; true for NaN."""

    @staticmethod
    def one_hot(x: object, /, *, num_classes: int, dtype: object = 'int32') -> _Tensor:
        """1 at x along a new last axis of num_classes, else 0. A label outside of [0, num_classes) is an IndexError."""

    @staticmethod
    def pad(x: object, /, *, before: int | Sequence[int], after: int | Sequence[int], mode: str = 'constant', value: float = 0.0) -> _Tensor:
        """Widens every axis: with `value` (constant), the border element (edge), or mirrored without the border (reflect)."""

    @staticmethod
    def pad_grad(dy: object, /, *, before: int | Sequence[int], after: int | Sequence[int], mode: str) -> _Tensor:
        """Adds each padded element to the one that it came from: gradient of pad, modes edge and reflect."""

    @staticmethod
    def pow(x: object, y: object, /) -> _Tensor:
        """x to the power y, as C's pow. Where y is 0 the gradient for x is 0; where x is 0, that for y."""

    @staticmethod
    def prelu(x: object, slope: object, /) -> _Tensor:
        """x, or slope * x where x is negative."""

    @staticmethod
    def quantized_conv(x: object, w: object, scale: object, bias: object, /, *, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, relu: int = 0, dtype: object = 'int8') -> _Tensor:
        """Convolution of int8 x [n, c, spatial...] with int8 w [oc, c / groups, kernel...]: round(acc * scale + bias), saturated."""

    @staticmethod
    def random_beta(key: object, a: object, b: object, /) -> _Tensor:
        """Beta numbers, from two gamma numbers each."""

    @staticmethod
    def random_gamma(key: object, shape: object, scale: object, /) -> _Tensor:
        """Gamma numbers, one for each pair of parameters (Marsaglia and Tsang 2000)."""

    @staticmethod
    def random_multinomial(key: object, weights: object, /, *, num_samples: int, replacement: int = 0) -> _Tensor:
        """int32 indices drawn with probabilities proportional to the weights of a row."""

    @staticmethod
    def random_normal(key: object, /, *, shape: int | Sequence[int]) -> _Tensor:
        """Standard normal numbers (Box and Muller 1958)."""

    @staticmethod
    def random_permutation(key: object, /, *, n: int) -> _Tensor:
        """0...n-1 in random order (Fisher and Yates), int32."""

    @staticmethod
    def random_poisson(key: object, lam: object, /) -> _Tensor:
        """Poisson numbers as float32: inversion below rate 10, else transformed rejection (Hoermann 1993)."""

    @staticmethod
    def random_uniform(key: object, /, *, shape: int | Sequence[int]) -> _Tensor:
        """float32 multiples of 2^-24 in [0, 1)."""

    @staticmethod
    def real(x: object, /) -> _Tensor:
        """Real part of a complex tensor."""

    @staticmethod
    def reciprocal(x: object, /) -> _Tensor:
        """1 / x."""

    @staticmethod
    def reduce_max(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
        """Largest element over axes; NaN wins. Each of several equal largest elements receives the whole gradient."""

    @staticmethod
    def reduce_mean(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
        """Mean over axes, always float32."""

    @staticmethod
    def reduce_min(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
        """Smallest element over axes; NaN wins. Each of several equal smallest elements receives the whole gradient."""

    @staticmethod
    def reduce_prod(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
        """Product over axes; bool counts in int32. The gradient is right where x has zeros."""

    @staticmethod
    def reduce_sum(x: object, /, *, axes: int | Sequence[int], keepdims: int = 0) -> _Tensor:
        """Sum over axes; bool counts in int32, other dtypes stay (small integers wrap, float16 adds in float32)."""

    @staticmethod
    def relayout(x: object, /, *, layout: str) -> _Tensor:
        """The same tensor in another order of memory: 'row_major', 'channels_last', or one of the backend's own."""

    @staticmethod
    def relu(x: object, /) -> _Tensor:
        """max(x, 0), or NaN."""

    @staticmethod
    def relu6(x: object, /) -> _Tensor:
        """min(max(x, 0), 6)."""

    @staticmethod
    def reshape(x: object, /, *, shape: int | Sequence[int]) -> _Tensor:
        """The same elements in row-major order under another shape; shares memory."""

    @staticmethod
    def right_shift(x: object, y: object, /) -> _Tensor:
        """x >> y, arithmetic; the count is taken modulo 32."""

    @staticmethod
    def round(x: object, /) -> _Tensor:
        """Rounds to the nearest, halves away from 0."""

    @staticmethod
    def rsqrt(x: object, /) -> _Tensor:
        """1 / sqrt(x)."""

    @staticmethod
    def scatter(x: object, index: object, source: object, /, *, axis: int) -> _Tensor:
        """x with source written at x[index[i, j], j] for axis 0, and so on for others; the last write wins."""

    @staticmethod
    def scatter_add(x: object, index: object, source: object, /, *, axis: int) -> _Tensor:
        """x with source added at x[index[i, j], j] for axis 0, and so on for others, always in the same order."""

    @staticmethod
    def selu(x: object, /) -> _Tensor:
        """Scaled elu."""

    @staticmethod
    def sigmoid(x: object, /) -> _Tensor:
        """1 / (1 + exp(-x))."""

    @staticmethod
    def sign(x: object, /) -> _Tensor:
        """-1, 0 or 1, or NaN."""

    @staticmethod
    def silu(x: object, /) -> _Tensor:
        """x * sigmoid(x)."""

    @staticmethod
    def sin(x: object, /) -> _Tensor:
        """Sine; exact to 2 ulp for every finite x."""

    @staticmethod
    def sinh(x: object, /) -> _Tensor:
        """Hyperbolic sine."""

    @staticmethod
    def slice(x: object, /, *, begin: int | Sequence[int], end: int | Sequence[int], step: int | Sequence[int]) -> _Tensor:
        """x[begin:end:step] on every axis. Bounds are normalised: 0 <= begin < extent, end exclusive and -1 where a negative step runs to the front."""

    @staticmethod
    def slice_set(x: object, value: object, /, *, begin: int | Sequence[int], end: int | Sequence[int], step: int | Sequence[int]) -> _Tensor:
        """x with x[begin:end:step] replaced by value."""

    @staticmethod
    def softmax(x: object, /, *, axis: int) -> _Tensor:
        """exp(x) / sum(exp(x)) along one axis, shifted by the largest element."""

    @staticmethod
    def softplus(x: object, /) -> _Tensor:
        """Smooth ReLU, log(1 + exp(x))."""

    @staticmethod
    def sort(x: object, /, *, axis: int = -1, descending: int = 0) -> tuple[_Tensor, ...]:
        """Values in order along an axis and their int32 places; equal elements keep their order, NaN counts as the largest."""

    @staticmethod
    def sqrt(x: object, /) -> _Tensor:
        """Square root."""

    @staticmethod
    def square(x: object, /) -> _Tensor:
        """x * x."""

    @staticmethod
    def sub(x: object, y: object, /) -> _Tensor:
        """x - y."""

    @staticmethod
    def svd(x: object, /, *, full_matrices: int = 0) -> tuple[_Tensor, ...]:
        """u, s, vh with x = u diag(s) vh, s falling; full_matrices makes u and vh square."""

    @staticmethod
    def tan(x: object, /) -> _Tensor:
        """Tangent; exact to 2 ulp for every finite x."""

    @staticmethod
    def tanh(x: object, /) -> _Tensor:
        """Hyperbolic tangent."""

    @staticmethod
    def topk(x: object, /, *, k: int, axis: int = -1, descending: int = 0) -> tuple[_Tensor, ...]:
        """The k smallest (descending: largest) elements along an axis in order, and their int32 places."""

    @staticmethod
    def transpose(x: object, /, *, perm: int | Sequence[int]) -> _Tensor:
        """Axis i of the result is axis perm[i] of x."""

    @staticmethod
    def true_div(x: object, y: object, /) -> _Tensor:
        """x / y."""

    @staticmethod
    def trunc(x: object, /) -> _Tensor:
        """Rounds towards 0."""

    @staticmethod
    def where(mask: object, x: object, y: object, /) -> _Tensor:
        """x where the mask is true, else y."""
