# Made by tools/make_stubs.py (`make stubs`) from the installed extension; not to be edited.
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy

from megengine.core import ops as ops
from megengine.tensor import Tensor as _Tensor  # what every result is

_Variable = TypeVar("_Variable", bound=Tensor)


class OperandError(ValueError, RuntimeError): ...
class OutOfMemoryError(MemoryError, RuntimeError):
    limit: int | None
    needed: int | None
    bound: int | None
    proof: str | None
class TraceError(RuntimeError): ...
def over_limit(limit: int, needed: int, bound: int, proof: str, rest: str) -> OutOfMemoryError: ...
def out_of_memory(text: str) -> OutOfMemoryError: ...

class Tensor:
    """Base of megengine.Tensor: a handle to an immutable value."""

    def __hash__(self, /) -> int:
        """Return hash(self)."""

    def __lt__(self, value: object, /) -> _Tensor:
        """Return self<value."""

    def __le__(self, value: object, /) -> _Tensor:
        """Return self<=value."""

    def __eq__(self, value: object, /) -> _Tensor:  # type: ignore[override]
        """Return self==value."""

    def __ne__(self, value: object, /) -> _Tensor:  # type: ignore[override]
        """Return self!=value."""

    def __gt__(self, value: object, /) -> _Tensor:
        """Return self>value."""

    def __ge__(self, value: object, /) -> _Tensor:
        """Return self>=value."""

    def __init__(self, data: object, dtype: object | None = None, device: object | None = None, is_const: bool = False, no_cache: bool = False, name: object | None = None, format: object | None = 'default') -> None: ...

    def __add__(self, value: object, /) -> _Tensor:
        """Return self+value."""

    def __radd__(self, value: object, /) -> _Tensor:
        """Return value+self."""

    def __sub__(self, value: object, /) -> _Tensor:
        """Return self-value."""

    def __rsub__(self, value: object, /) -> _Tensor:
        """Return value-self."""

    def __mul__(self, value: object, /) -> _Tensor:
        """Return self*value."""

    def __rmul__(self, value: object, /) -> _Tensor:
        """Return value*self."""

    def __mod__(self, value: object, /) -> _Tensor:
        """Return self%value."""

    def __rmod__(self, value: object, /) -> _Tensor:
        """Return value%self."""

    def __pow__(self, value: object, /) -> _Tensor:
        """Return pow(self, value, mod)."""

    def __rpow__(self, value: object, /) -> _Tensor:
        """Return pow(value, self, mod)."""

    def __neg__(self, /) -> _Tensor:
        """-self"""

    def __abs__(self, /) -> _Tensor:
        """abs(self)"""

    def __invert__(self, /) -> _Tensor:
        """~self"""

    def __lshift__(self, value: object, /) -> _Tensor:
        """Return self<<value."""

    def __rlshift__(self, value: object, /) -> _Tensor:
        """Return value<<self."""

    def __rshift__(self, value: object, /) -> _Tensor:
        """Return self>>value."""

    def __rrshift__(self, value: object, /) -> _Tensor:
        """Return value>>self."""

    def __and__(self, value: object, /) -> _Tensor:
        """Return self&value."""

    def __rand__(self, value: object, /) -> _Tensor:
        """Return value&self."""

    def __xor__(self, value: object, /) -> _Tensor:
        """Return self^value."""

    def __rxor__(self, value: object, /) -> _Tensor:
        """Return value^self."""

    def __or__(self, value: object, /) -> _Tensor:
        """Return self|value."""

    def __ror__(self, value: object, /) -> _Tensor:
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

    def __floordiv__(self, value: object, /) -> _Tensor:
        """Return self//value."""

    def __rfloordiv__(self, value: object, /) -> _Tensor:
        """Return value//self."""

    def __truediv__(self, value: object, /) -> _Tensor:
        """Return self/value."""

    def __rtruediv__(self, value: object, /) -> _Tensor:
        """Return value/self."""

    def __ifloordiv__(self, value: object, /) -> Self:
        """Return self//=value."""

    def __itruediv__(self, value: object, /) -> Self:
        """Return self/=value."""

    @property
    def dtype(self) -> numpy.dtype: ...

    @property
    def _dtype_name(self) -> str: ...

    @property
    def ndim(self) -> int: ...

    @property
    def _tuple_shape(self) -> tuple[int, ...]: ...

    @property
    def _device_name(self) -> str: ...

    def numpy(self) -> numpy.ndarray:
        """The value as a NumPy array of the same dtype; a copy."""

    def _item(self) -> Any: ...

    def detach(self) -> _Tensor:
        """The same value, cut off from gradients."""

    def _reset(self, other: Tensor) -> None: ...

    def _hold(self, other: Tensor) -> None:
        """The very value of the other one, attached where that is."""

    def _become_variable(self) -> None:
        """A constant becomes an ordinary tensor of its value."""

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

    def _is_readable(self) -> bool:
        """False for a placeholder whose value a trace would refuse to read."""

    @property
    def _layout(self) -> str:
        """
        Order of memory: row_major, channels_last, or one of the backend's own.
        """

    @property
    def _is_packed(self) -> bool: ...

def check_number(number: float, dtype: object) -> None:
    """OverflowError for a number that an integer dtype cannot hold."""

def _set_tensor_class(arg: object, /) -> None: ...

def _set_operator_cast(arg: object, /) -> None: ...

def apply_const(value: object, dtype: object = None) -> _Tensor:
    """A Tensor that a trace bakes in: its value must be equal in every call."""

def zeros(shape: tuple[int, ...], dtype: object, device: str) -> _Tensor:
    """
    Zeros; on the host large ones take memory from the first time that somebody reads them.
    """

def are_tensors(values: tuple[object, ...], bare: bool = False) -> bool:
    """
    Whether all are Tensors; bare: and no more, of no class and without attributes of their own.
    """

def convert_inputs(*args: object) -> list[_Tensor]:
    """The arguments as Tensors of their promoted dtype."""

def promote_dtype(arg0: object, arg1: object, /) -> numpy.dtype: ...

def borrow(array: object | None, writable: bool = False) -> _Tensor: ...

def borrow_array(array: dict[str, Any], owner: Any) -> _Tensor:
    """
    A tensor over memory of a GPU, as __cuda_array_interface__ describes it.
    """

def is_on_gpu(capsule: object | None) -> bool:
    """Does a DLPack capsule hold a GPU's memory?"""

def lend(tensor: Tensor) -> Any: ...

def host_bytes(tensor: Tensor) -> numpy.ndarray:
    """
    The value's bytes in row-major order, read-only: its own memory, or a copy from a GPU.
    """

def lend_in_place(tensor: Tensor, copies: bool) -> object: ...

def give_away(tensor: Tensor) -> Any: ...

def address(tensor: Tensor) -> int:
    """Where the elements lie on its device."""

class Wanted:
    """
    How a result is to lie: dtype None: never as ours do; steps: strides in elements, None: in any order.
    """

    def __init__(self, dtype: object | None, steps: Sequence[int] | None) -> None: ...

class Exchange:
    """
    Shares the memory of all tensors of a call with another library, by the C functions of its class of tensors (`__dlpack_c_exchange_api__`). gpu: the number of the GPU whose tensors are shared; None: those of the host are. RuntimeError where there is no such GPU here.
    """

    def __init__(self, type: type, gpu: int | None = None) -> None: ...

    @property
    def place(self) -> str:
        """The name of the device where tensors of theirs lie; of the host ""."""

    def lent(self, tensor: Any, writable: bool = False) -> _Tensor:
        """
        A tensor over the memory of one of theirs. BufferError where it cannot be shared as it lies.
        """

    def absent(self, form: Tensor) -> _Tensor:
        """
        A tensor of the form's type where theirs lie, without memory: for plans alone.
        """

    def begin(self) -> None:
        """
        On a GPU what is queued from here on runs where the library's own work does.
        """

    def end(self) -> None:
        """Work that the library queues from now on comes behind ours."""

    def ours(self, values: list[Any]) -> tuple[list[Any], list[int]]:
        """
        Tensors over the memory of theirs, and the places of theirs that cannot be shared as they lie, which stay as they are.
        """

    def theirs(self, values: list[Any], wanted: list[Wanted]) -> tuple[list[Any], list[int]]:
        """
        Theirs over the memory of values that nobody else has, and that are as wanted, and the places of others, which have None. The values are not to be used any more.
        """

    def replayed(self, function: TraceFunction, wanted: list[Wanted], values: list[Any]) -> list[Any] | None:
        """
        A call with theirs alone whose results can all be given as wanted; empties `values`. None, and they stay, where one of both cannot be shared, or the function has no recording for them whose calls take and give tensors alone: the call is to be made in other ways.
        """

def stream_native(device: str) -> int:
    """What the driver calls the device's stream; 0 on CPUs."""

def stream_record(device: str) -> int:
    """A ticket for what was queued so far."""

def stream_record_time(device: str) -> int: ...

def stream_seconds(device: str, begin: int, end: int) -> float: ...

def stream_is_past(device: str, ticket: int) -> bool: ...

def stream_synchronize(device: str, ticket: int) -> None: ...

def stream_wait(device: str, other: str, ticket: int) -> None: ...

def stream_wait_for_native(device: str, other: int) -> None: ...

def stream_let_native_wait(device: str, other: int, ticket: int) -> None: ...

class Upload:
    """A tensor that is on its way to a device."""

    def take(self) -> _Tensor:
        """The tensor. Once."""

class Uploads:
    """Copies data to a device beside its work."""

    def __init__(self, device: str) -> None: ...

    def begin(self, value: object) -> Upload:
        """A copy of what np.asarray takes, of the dtype that a tensor of it has."""

def _pack_operand(op: str, operands: list[Any], index: int, attributes: dict[str, Any]) -> None:
    """
    Let operand `index` of that call lie as the kernel reads it best; its value stays.
    """

def op_table() -> list[dict[str, Any]]:
    """
    One row an op: name, doc, number of inputs, attributes with their kind, sample inputs.
    """

def load_library_ops(path: str) -> list[tuple[str, Callable[..., Any], dict[str, str]]]:
    """
    Ops of a shared library (megjit/custom_op.h) join the registry. Of each: its name, its function, and the kinds of its attributes by name; reals are given as text.
    """

class Tape:
    """What a GradManager records."""

    def __init__(self) -> None: ...

    def watch(self, arg: Tensor, /) -> None: ...

    def watches(self, arg: Tensor, /) -> bool: ...

    def tracks(self, arg: Tensor, /) -> bool: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def clear(self) -> None: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def sees_calls(self) -> bool: ...

    def backward(self, ys: object, dys: object, wanted: object, groups: Sequence[str]) -> list[_Tensor | None]: ...

    @staticmethod
    def open_group(arg: list[Tape], /) -> None: ...

class pause_tapes:
    """Within this block no tape records."""

    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...

def tapes_that_track(tensor: Tensor) -> int:
    """How many tapes of this thread ask for the gradient of the tensor."""

def records_gradients() -> bool:
    """Whether a tape of this thread is open."""

def custom_apply(inputs: object, outputs: object, backward: Callable[[list[_Tensor | None]], Sequence[_Tensor | None]]) -> list[_Tensor]: ...

class RandomState:
    """Counter-based random generator: a seed, and how many keys were drawn."""

    def __init__(self, seed: int = 0) -> None: ...

    def key(self, device: str | None = None) -> _Tensor:
        """int32[4] Tensor on the device; the counter goes up by one."""

    def seed(self, arg: int, /) -> None: ...

    def restore(self, seed: int, counter: int) -> None:
        """Go on where another one was."""

    @property
    def current_seed(self) -> int: ...

    @property
    def counter(self) -> int: ...

def default_random_state() -> RandomState: ...

class BodyRecorder:
    """
    Records the operations of this thread into a graph from its making until finish().
    """

    def __init__(self, what: str) -> None: ...

    def input(self, like: Tensor) -> _Tensor:
        """A placeholder of its type."""

    def element(self, of: Tensor) -> _Tensor:
        """A placeholder of the type of one element along its first axis."""

    def finish(self, outputs: list[_Tensor]) -> None: ...

    def read(self) -> list[_Tensor]:
        """
        The tensors from outside that the function has read, if it is not to run: random keys that it drew are given back.
        """

    def abort(self) -> None:
        """After an error: who traced before goes on."""

def user_line() -> str:
    """"train.py:41 in forward": the innermost line outside of this package."""

def scan(body: BodyRecorder, carry: list[_Tensor], slices: list[_Tensor], trips: int, reverse: bool) -> list[_Tensor]: ...

def while_loop(condition: BodyRecorder, body: BodyRecorder, carry: list[_Tensor]) -> list[_Tensor]: ...

def cond(predicate: Tensor, if_true: BodyRecorder, if_false: BodyRecorder) -> list[_Tensor]: ...

class Version:
    """One record of a traced function."""

    @property
    def takes_gradients(self) -> bool: ...

    @property
    def updates_states(self) -> bool:
        """Does it replace what outlives the call?"""

    def export_model(self, inputs: Sequence[str], outputs: Sequence[str], optimize: bool, half_storage: bool, keep_value_names: int, keep_op_names: bool, allows_effects: bool = False, opt_level: int = 2, exact: bool = False, states: FileStates | None = None) -> Model: ...

class Model:
    """A graph with names, as dump writes it."""

    @property
    def inputs(self) -> list[str]: ...

    @property
    def outputs(self) -> list[str]: ...

    @property
    def params(self) -> list[str]: ...

    @property
    def node_names(self) -> list[str]: ...

    @property
    def value_names(self) -> list[str]: ...

    @property
    def input_types(self) -> list[list[Any]]:
        """A dtype and a shape for each input."""

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """
        A dict for each node: op, attrs (graphs as Models), ids of values that go in and come out, slot, constant, line.
        """

    @property
    def value_types(self) -> list[list[Any]]:
        """A dtype and a shape for each value."""

    @property
    def output_values(self) -> tuple[int, ...]: ...

    @property
    def node_count(self) -> int: ...

    @property
    def constant_bytes(self) -> int: ...

    @property
    def op_types(self) -> set[str]: ...

    @property
    def dtypes(self) -> set[str]: ...

    @property
    def metadata(self) -> bytes: ...

    @metadata.setter
    def metadata(self, arg: bytes, /) -> None: ...

    @property
    def cases(self) -> bytes: ...

    @cases.setter
    def cases(self, arg: bytes, /) -> None: ...

    @property
    def name(self) -> str: ...

    @name.setter
    def name(self, arg: str, /) -> None: ...

    @property
    def opt_level(self) -> int: ...

    def graph_text(self) -> str: ...

class ModelFile:
    """Functions with the states that they share."""

    @staticmethod
    def of(functions: list[Model], states: FileStates | None = None) -> ModelFile: ...

    @property
    def functions(self) -> list[str]:
        """Their names."""

    def function(self, name: str = '') -> Model:
        """A copy; empty: of the first."""

    def without_states(self, name: str = '') -> Model:
        """A function with its states as constants."""

    def program(self, function: str, outputs: Sequence[int], opt_level: int, trusts_kernels: bool = False) -> Program: ...

    def add_kernels(self, kernels: list[tuple[bytes, bytes]]) -> None:
        """Rows of keys and objects, as cache_entries gives them."""

    def add_package_of(self, program: Program) -> None:
        """The constants that a program of the file has packed, and its plan."""

    def compile_for_gpu(self, function: str, arch: int) -> None:
        """
        All kernels of a function, for a GPU that need not be there, into the cache.
        """

    def static_code(self, function: str, name: str, keeps_states: bool, isa: str) -> dict[str, bytes]:
        """Contents of files by name: C that calls generated kernels."""

    def set_options(self, opt_level: int, memory_limit: int) -> None:
        """Of all functions; an opt_level of -1 leaves them theirs."""

    def states(self) -> dict[str, _Tensor]:
        """The present values by name."""

    def set_state(self, name: str, value: Tensor) -> None: ...

    def to_bytes(self) -> bytes: ...

class Program:
    """A compiled model."""

    def run(self, inputs: list[Any]) -> list[_Tensor]: ...

def load_model(bytes: bytes, file_name: str, offset: int = 0) -> tuple[ModelFile, int]:
    """A Model and the bytes that it took."""

def checksum(arg: bytes, /) -> int: ...

def note_results(results: list[Any], is_kept: bool) -> None:
    """
    is_kept: something else than the caller holds the container in which they were returned.
    """

def other_result(results: list[Any]) -> int | None:
    """
    Which result of a call that follows a record is another value than recorded, if any.
    """

def note_bound_anew(before: int, now: Tensor | None, name: str) -> None:
    """
    Where the body found the value of this id another Tensor is now, or none.
    """

def set_name(arg0: Tensor, arg1: str, /) -> None: ...

def set_scope(arg: str, /) -> None: ...

class GraphEditor:
    """A graph that is edited; nodes and values are numbers that stay."""

    def __init__(self) -> None: ...

    @property
    def id(self) -> int: ...

    def add_model(self, model: Model) -> list[int]: ...

    def add_input(self, shape: Sequence[int], dtype: object, name: str, device: str = '') -> int: ...

    def add_constant(self, data: Tensor, name: str, is_parameter: bool) -> int: ...

    @property
    def results(self) -> list[int]:
        """The values that a dump writes, in order."""

    @results.setter
    def results(self, arg: Sequence[int], /) -> None: ...

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

    def attrs(self, node: int) -> dict[str, Any]: ...

    def inputs(self, node: int) -> list[int]: ...

    def outputs(self, node: int) -> list[int]: ...

    def owner(self, value: int) -> int: ...

    def node_name(self, node: int) -> str: ...

    def value_name(self, value: int) -> str: ...

    def rename_node(self, node: int, name: str) -> None: ...

    def rename_value(self, value: int, name: str) -> None: ...

    def variable(self, value: int, type: type[_Variable]) -> _Variable: ...

    def refresh(self, variable: Tensor) -> None: ...

    def constant_value(self, value: int) -> _Tensor: ...

    def model(self, of: Sequence[int], optimize: bool, half_storage: bool, keep_value_names: int, keep_op_names: bool) -> Model: ...

def variable_link(arg: Tensor, /) -> tuple[int, int]:
    """The edited graph and the number of a variable."""

def _set_variables(of_link: object) -> None:
    """
    Called with graph and number: the object for a result that is a variable of an edited graph.
    """

class Facts:
    """What a recorded body could read besides the values of its tensors."""

    def __init__(self) -> None: ...

    def add(self, kind: str, thing: object, key: object | None = None) -> None:
        """A thing of this kind is to hold what it holds now."""

    def leave_grads(self, tensors: Sequence[Tensor]) -> None:
        """
        Each call sets the gradients of these tensors, and compares them by itself.
        """

    def differing(self, place: int) -> int:
        """
        The first thing, from this place on, that holds other objects; their count where none does.
        """

    def now(self, place: int) -> list[Any]: ...

    def held(self, place: int) -> list[Any]: ...

    def hold(self, place: int) -> None:
        """What the thing at this place holds now is the same from here on."""

    @property
    def count(self) -> int:
        """How many things there are."""

    def set_call(self, positional: tuple[object, ...], keywords: dict[str, Any], grads: Sequence[tuple[int, object]], fixed: Sequence[tuple[int, object]], captured: Sequence[Tensor]) -> None:
        """Says which arguments the recorded call had."""

class RematSearch:
    """How recomputation is searched for."""

    def __init__(self, **kwargs: Any) -> None: ...

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

    def __init__(self, **kwargs: Any) -> None: ...

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
    def spill(self) -> str:
        """A folder; empty: none."""

    @spill.setter
    def spill(self, arg: str, /) -> None: ...

    @property
    def search(self) -> RematSearch: ...

    @search.setter
    def search(self, arg: RematSearch, /) -> None: ...

class PipelineOptions:
    """Which passes a graph goes through."""

    def __init__(self, **kwargs: Any) -> None: ...

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

    def __init__(self, **kwargs: Any) -> None: ...

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
    def records_mismatches(self) -> bool: ...

    @records_mismatches.setter
    def records_mismatches(self, arg: bool, /) -> None: ...

    @property
    def only_plan(self) -> bool: ...

    @only_plan.setter
    def only_plan(self, arg: bool, /) -> None: ...

    @property
    def version_bytes(self) -> int: ...

    @version_bytes.setter
    def version_bytes(self, arg: int, /) -> None: ...

    @property
    def pipeline(self) -> PipelineOptions: ...

    @pipeline.setter
    def pipeline(self, arg: PipelineOptions, /) -> None: ...

def searched_part() -> float:
    """
    Of the search for memory plans that runs: the part that is done, 0 to 1; else 0.
    """

class TraceFunction:
    def __init__(self, options: TraceOptions) -> None: ...

    def begin(self, arguments: list[Any]) -> bool: ...

    def finish(self, arguments: list[Any]) -> None: ...

    def abort(self, arguments: list[Any], wants_values: bool = True) -> None: ...

    @property
    def walks_alone(self) -> bool:
        """Whether calls with a record need nothing of Python but their bodies."""

    @walks_alone.setter
    def walks_alone(self, arg: bool, /) -> None: ...

    def try_out(self, arguments: list[_Tensor], results: list[_Tensor]) -> tuple[list[tuple[Tensor, bool, list[_Tensor]]], list[_Tensor]]: ...

    def abort_trial(self, arguments: list[Any]) -> None: ...

    def updated(self, guards: int) -> list[_Tensor]: ...

    def begin_capture(self, arguments: list[Any]) -> None: ...

    def finish_capture(self, arguments: list[Any], results: list[Any], guards: int, were_there: Sequence[bool] = [], may_read: bool = False) -> str | None: ...

    @property
    def has_read(self) -> bool:
        """
        Did the body of the last call that ended well read a value, which another call may not have?
        """

    @property
    def recorded(self) -> Version:
        """By the last call that recorded one for dump."""

    def tensors_with_grads(self) -> list[_Tensor]: ...

    def guards_for(self, arguments: list[Any]) -> int: ...

    def take_gone_guards(self) -> list[int]:
        """
        Gives the guards of what was dropped since the last time that this was asked.
        """

    def run_direct(self, arguments: list[Any], guards: int) -> list[Any] | None: ...

    def set_facts(self, guards: int, facts: Facts, result_of: Callable[[list[Any]], object]) -> None:
        """From here on, calls that find these facts do without Python."""

    def replay(self, arguments: list[Any]) -> list[Any] | None: ...

    def clear(self) -> None: ...

    def share_arena(self, other: TraceFunction) -> None:
        """Before the first call: for functions that do not run at the same time."""

    def keep_idle_arenas_within(self, bytes: int) -> None:
        """Gives arenas that no call uses back to the system, if they take more."""

    def plans(self) -> list[dict[str, Any]]: ...

    def plans_on(self, arch: int) -> list[dict[str, Any]]: ...

    def kernels(self) -> list[dict[str, Any]]: ...

    def graphs(self, optimized: bool, html: bool = False) -> list[str]: ...

    def profiles(self, of_all_versions: bool = False) -> list[dict[str, Any]]: ...

    def explain(self) -> str: ...

    @property
    def version_count(self) -> int: ...

    @property
    def dropped_versions(self) -> int: ...

    @property
    def version(self) -> Version: ...

    @property
    def op_count(self) -> int: ...

    @property
    def value_count(self) -> int: ...

class FileStates:
    """What the recorded functions of one file keep from run to run."""

    def __init__(self, functions: Sequence[TraceFunction]) -> None:
        """
        ValueError for two tensors that were one value, one of which is a state.
        """

def open_tapes() -> int: ...

def _set_trace_class(type: object) -> None: ...

class OnDevice:
    """
    Within a block, this thread's default device is another one; "": the host, as it is named there if it is that already.
    """

    def __init__(self, name: str) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...

class UserLine:
    """
    Within a block, what is recorded is of this line of the user's program.
    """

    def __init__(self, where: str) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...

class Excluded:
    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args: object) -> None: ...

def extents_tensor(tensor: Tensor) -> _Tensor:
    """
    The shape as an int32 Tensor, which a trace takes for a constant and a dump computes from the tensor.
    """

def note_extent_read(tensor: Tensor, axis: int = -1) -> None:
    """
    An extent, or (-1) all of them, is taken for a number: a dump keeps to it.
    """

def note_caught(tensor: Tensor, is_of_values: bool) -> None:
    """
    The body has caught the error of a call with this operand, of its extents or of its values, too.
    """

def note_given(given: Sequence[object]) -> None:
    """
    Where the extents in the attributes of the next op come from, by axis: 0 the operands, 1 the program, 2 what the others leave, or a tensor and the number of its element.
    """

def note_rows_read(arg: Tensor, /) -> None:
    """
    Rows are named by number: a dump cannot tell which they are among those that a condition selects.
    """

def set_gives_extents(arg: bool, /) -> None:
    """
    Whether what is read of extents from here on is given to an op (note_given).
    """

def is_tracing() -> bool: ...

def running_trace() -> tuple[int, bool] | None:
    """
    Of the trace that runs: its opt_level, and whether its numerics are exact. None: none runs.
    """

def note_getter(arg0: Tensor, arg1: object, /) -> None: ...

def is_capturing() -> bool: ...

def records_for_dump() -> bool:
    """Is it a call of a function that dump could write?"""

def note_option(tensor: Tensor, name: str) -> None: ...

def note_name_like(tensor: Tensor, like: Tensor, name: str) -> None:
    """A tensor that belongs to another one, in a recording for dump."""

def note_variant(what: str) -> None:
    """
    The ops behind this follow from `what`, which is no tensor: another one is recorded as another version.
    """

def forget_refusals() -> None:
    """
    What a body has caught of reads that the trace refused ends the call no longer.
    """

def symbolic_shape_active() -> bool: ...

def note_grad(tensor: object) -> None:
    """
    Before its .grad changes: a traced call that does not run gives it back.
    """

def mark_kept(tensor: Tensor) -> None: ...

def mark_offloaded(tensor: Tensor) -> None: ...

def begin_recompute() -> None: ...

def end_recompute(results: list[Any]) -> None: ...

def is_recording() -> bool: ...

def copy_bandwidth(device: str = '') -> float: ...

def compile_kernel(text: str) -> tuple[str, str]: ...

def timings() -> dict[str, dict[str, float]]: ...

def nvidia_libraries() -> list[tuple[str, int, str, str, str]]: ...

def cache_info() -> dict[str, Any]: ...

def cache_clear() -> int: ...

def cache_verify() -> tuple[int, int]: ...

def cache_entries(folder: str) -> list[tuple[bytes, bytes]]:
    """Keys and objects of all compiled kernels there."""

def cache_export(archive: str) -> int: ...

def cache_import(archive: str) -> int: ...

def start_call_log(with_lines: bool) -> None:
    """From now on each eager call is noted."""

def stop_call_log() -> list[tuple[str, str, int, int, int, int, str]]:
    """
    What was noted: (call, device, begin, end, thread, bytes, line), in ns of time.monotonic_ns.
    """

class World:
    """Connected sockets to the other processes, by rank."""

    def __init__(self, rank: int, sockets: Sequence[int], seconds: float, on_failure: Callable[[str], str], reads: bool) -> None: ...

    def use_mpi(self, library: str, world: int, constants: Mapping[str, int]) -> None:
        """
        Groups that are made from here on move tensors by MPI: by the file that has it, and handles of it.
        """

    def use_gloo(self, plugin: str) -> None:
        """
        Groups that are made from here on move tensors by Gloo: by the file of the plug-in that links it.
        """

    def use_machines(self, machines: Sequence[int]) -> None:
        """
        Groups that are made from here on add up within a machine first; a number for that of each rank.
        """

    def add_group(self, key: str, members: Sequence[int]) -> None: ...

    def gather(self, text: str) -> list[str]:
        """What each process gave, by rank."""

    def set_seconds(self, seconds: float) -> None: ...

    def hold_sends(self, is_on: bool, peers: Sequence[int]) -> None:
        """
        Whether sends wait for the next message that is received, to go beside it. Those that wait for `peers`, or all, are sent.
        """

    def close(self) -> None:
        """Of a forked child too, whose parent goes on."""

    def end(self) -> None:
        """Also while another thread exchanges."""

def set_bucket_sizes(first: int, others: int) -> None:
    """Bytes of the buckets of gradients."""

def bucket_sizes() -> tuple[int, int]:
    """(first, others), as they were set."""

def gradient_buckets(bytes: Sequence[int], first: int, others: int) -> list[list[int]]:
    """
    Which gradients travel together, in the order in which backward has them.
    """

def set_exchanging_device(device: str | None) -> None:
    """The GPU whose tensors go by NCCL; None: all go through the host."""

def group_barrier(group: str) -> None:
    """Waits until all processes of the group are here."""

def nccl_place(device: str) -> tuple[str, str]:
    """
    (version and GPU, why not): what all processes of a group must have for NCCL.
    """

def exchanged_by_nccl(op: str, dtype: str) -> bool:
    """Whether NCCL serves the op on tensors of the dtype."""

def is_tracked(tensor: Tensor) -> bool:
    """Whether an open tape differentiates what is computed from it."""

def track(tensor: Tensor) -> None:
    """Lets all open tapes differentiate what is computed from it."""

class DeviceInfo:
    @property
    def kind(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def model(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...

def devices() -> dict[str, DeviceInfo]:
    """What there is, by name."""

def physical_name(name: str) -> str:
    """"xpux" -> "cpu0:0". ValueError for a malformed name."""

def find_device(name: str) -> str:
    """
    Name of the device that is meant: "gpu0:0", "xpux:0" where there is no GPU. ValueError for a malformed name, RuntimeError without the device.
    """

def compute_capability(device: str) -> int:
    """Of an NVIDIA GPU: 90 is 9.0; 0 of a CPU."""

def set_default_device(arg: str, /) -> None: ...

def synchronize() -> None:
    """Waits for all queued work, and raises the last error of it."""

def memory_stats(device: str = '') -> dict[str, Any]: ...

def reset_peak_memory(device: str = '') -> None: ...

def trim_memory(device: str = '') -> None: ...

def set_memory_cap(bytes: int, device: str = '') -> None: ...

def set_memory_growth(least: int, overhead: int, factor: float, device: str = '') -> None: ...

def fail_allocation(after: int, device: str = '') -> None:
    """
    For tests: `after` more allocations succeed and the next one fails, once; -1 takes it back.
    """

def set_dtr(is_on: bool, threshold: int, least_bytes: int, samples: bool) -> None: ...

def dtr_stats() -> dict[str, Any]: ...

def size_text(bytes: int, beside: int | None = None) -> str: ...

def bytes_text(bytes: int, beside: int | None = None) -> str: ...

def thread_count() -> int: ...

def set_thread_count(arg: int, /) -> None: ...

def set_product_rules(tf32: bool, deterministic: bool, timed: bool) -> None:
    """How a device's libraries may compute products from now on."""

def isa() -> str: ...

def machine_isa() -> str: ...

def backends() -> list[str]: ...

def switches() -> dict[str, str]: ...

def reload_debug() -> None: ...
