"""Running dumped models, and functions on the variables of a ``megengine.utils.network.Network``."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._files.disk import written_whole
from ..core._registry import WrongKey
from ..core._telling import no_effect
from ..jit.dump import checked_options
from ..reports.progress import while_waiting
from ..tensor import Tensor
from .network_node import OpNode, VarNode, as_list

if TYPE_CHECKING:
    from .network import Network

__name__ = "megengine.utils.comp_graph_tools"  # its classes are named by this path
__all__ = [
    "GraphInference", "find_vars_by_name", "get_dep_vars", "get_opr_type", "get_oprs_seq", "get_owner_opr_inputs",
    "get_owner_opr_type", "graph_traversal", "replace_oprs", "replace_vars",
]  # fmt: skip


def load_model(file: str | os.PathLike[str] | IO[bytes]) -> _core.Model:
    """The graph that ``dump`` wrote: the first one of a path, the next one of an open binary file.

    RuntimeError that names the file when it is truncated, damaged or something else, and for a function that updates its state.
    """
    return load_file(file).without_states()


def load_file(file: str | os.PathLike[str] | IO[bytes]) -> _core.ModelFile:
    """The same with all functions and states."""
    if hasattr(file, "read"):
        stream: Any = file
        start = stream.tell() if hasattr(stream, "seekable") and stream.seekable() else None
        model, used = _model_in(stream, str(getattr(file, "name", type(file).__name__)))
        if start is not None:
            stream.seek(start + used)
        return model
    with open(file, "rb") as stream:
        return _model_in(stream, os.path.basename(os.fspath(file)))[0]


def _model_in(stream: IO[bytes], name: str) -> tuple[_core.ModelFile, int]:
    """Returns the model that begins at the stream's position, and the number of its bytes."""
    with while_waiting(f"loading {name}"):
        return _core.load_model(stream.read(), name.encode("utf-8", "backslashreplace").decode())


def metadata_of(model: _core.Model) -> dict[str, Any] | None:
    """Returns what dump noted besides the graph (user_info and options), or None. Builds plain data
    and arrays only.
    """
    from ..jit.metadata import read_metadata  # jit is imported after this package

    return read_metadata(model.metadata)


class GraphInference:
    """Runs a dumped model on arrays.

    The tensors that the function updates are the state of the model: a run replaces their values.
    `state_dict`, `load_state_dict` and `save` read, write and keep it.

    Parameters
    ----------
    file : str, path or binary file
        Where to read; a file must be open for reading.
    outputs : sequence of str or None
        Names of the wanted outputs; None is for all.
    profiling : bool
        Has no effect, and warns so.
    optimize_for_inference : bool
        Whether to join element-wise operations into generated kernels; False runs the function as
        it was traced.
    function : str
        Name of a function that `jit.dump_functions` wrote; "" is the first one.
    trusts_kernels : bool
        Whether to use the compiled kernels that ``python -m megengine package`` has put into the
        file. These kernels are code that will run, so trust the file's source.
    **kwargs : bool
        The ``enable_*`` options of dump, which warn that they have no effect here.

    Raises
    ------
    RuntimeError
        For a damaged file.
    KeyError
        For an unknown output or function.

    Examples
    --------
    >>> import io, numpy as np, megengine as mge
    >>> double = mge.jit.trace(lambda x: x * 2, capture_as_const=True)
    >>> double(mge.tensor([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    >>> file = io.BytesIO(); info = double.dump(file, arg_names=["x"], output_names=["y"])
    >>> GraphInference(io.BytesIO(file.getvalue())).run(np.float32([3, 4]))["y"]
    array([6., 8.], dtype=float32)
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        outputs: Sequence[str] | None = None,
        profiling: bool = False,
        optimize_for_inference: bool = False,
        function: str = "",
        trusts_kernels: bool = False,
        **kwargs: bool,
    ) -> None:
        no_effect("GraphInference", "use trace(profiling=True)", profiling=profiling)
        if kwargs:
            checked_options(kwargs)
        self._trusts_kernels = trusts_kernels
        self._compile(load_file(file), function, outputs, optimize_for_inference)

    @classmethod
    def _of(cls, model: _core.Model) -> GraphInference:
        """Makes the information of a model that was not read from a file."""
        self = cls.__new__(cls)
        self._trusts_kernels = False
        self._compile(_core.ModelFile.of([model]), "", None, False)
        return self

    def function(self, name: str, outputs: Sequence[str] | None = None) -> GraphInference:
        """Returns another function of the file, which shares its state with this one.

        Parameters
        ----------
        name : str
            Name of the function, one of ``functions``.
        outputs : sequence of str or None
            Names of the wanted outputs; None is for all.

        Returns
        -------
        GraphInference
            The function.

        Raises
        ------
        KeyError
            For an unknown name.
        """
        other = type(self).__new__(type(self))
        other._trusts_kernels = self._trusts_kernels
        other._compile(self._file, name, outputs, self._fuses)
        return other

    @property
    def functions(self) -> list[str]:
        """The functions of the file; "" is the name of one that `trace.dump` wrote."""
        return self._file.functions

    def state_dict(self) -> dict[str, np.ndarray]:
        """Returns what all functions of the file keep from run to run, by name.

        A random generator, "random", is seed and number of draws: four int32, the lower halves first.
        """
        return {name: value.numpy() for name, value in self._file.states().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Sets all states, or some of them.

        Parameters
        ----------
        state_dict : mapping of str to array_like
            Name of a state to its value, as `state_dict` gives them.

        Raises
        ------
        KeyError
            For an unknown name, before any is set.
        ValueError
            For another shape or dtype, before any is set.
        """
        states = self._file.states()
        tensors = {}
        for name, value in state_dict.items():
            if name not in states:
                raise WrongKey(f"GraphInference: the model has no state {name!r}; it has {', '.join(states)}")
            array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
            wanted = states[name]
            if array.shape != wanted._tuple_shape or not np.can_cast(array.dtype, wanted.dtype, "same_kind"):
                raise ValueError(
                    f"GraphInference: {array.dtype} of shape {array.shape} was given for the state {name}\n"
                    f"  why: it is {wanted.dtype} of shape {wanted._tuple_shape}\n  fix: convert it"
                )
            tensors[name] = Tensor(array.astype(wanted.dtype, copy=False))
        for name, tensor in tensors.items():
            self._file.set_state(name, tensor)

    def save(self, file: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes all functions with their present state.

        Parameters
        ----------
        file : str, path or binary file
            Where to write; a file must be open for writing.
        """
        with written_whole(file) as stream:
            stream.write(self._file.to_bytes())

    def _compile(self, file: _core.ModelFile, function: str, outputs: Sequence[str] | None, fuse: bool) -> None:
        if function and function not in file.functions:
            raise WrongKey(f"GraphInference: the model has no function {function!r}; it has {', '.join(file.functions)}")
        self._file, self._fuses = file, fuse
        self._model = file.function(function)
        self._inputs = self._model.inputs
        self._types = self._model.input_types
        held = self._model.outputs
        self._outputs = (
            held if outputs is None else [outputs] if isinstance(outputs, str) else list(outputs)
        )
        for name in self._outputs:
            if name not in held:
                raise WrongKey(
                    f"GraphInference: the model has no output {name!r}; it has {', '.join(held)}"
                )
        with while_waiting("compiling the model"):
            wanted = [held.index(name) for name in self._outputs]
            self._program = file.program(function, wanted, 3 if fuse else -1, self._trusts_kernels)

    def run(
        self, *inp_args: np.ndarray, inp_dict: dict[str, np.ndarray] | None = None
    ) -> OrderedDict[str, np.ndarray]:
        """Runs the function on arrays.

        Parameters
        ----------
        *inp_args : ndarray
            Arrays in the order of the model's inputs, without those in inp_dict.
        inp_dict : dict of str to ndarray or None
            Arrays by the names of their inputs.

        Returns
        -------
        OrderedDict of str to ndarray
            The outputs by name. An output whose rows a condition selects has as many rows as were
            selected.

        Raises
        ------
        AssertionError
            Unless the arrays are exactly the model's inputs.
        ValueError
            For another shape or dtype.
        """
        given = dict(inp_dict or {})
        free = [name for name in self._inputs if name not in given]
        if len(inp_args) != len(free) or not set(given) <= set(self._inputs):
            raise AssertionError(
                f"GraphInference: got {len(inp_args)} arrays and the names [{', '.join(given)}]\n"
                f"  why: the inputs of the model are [{', '.join(self._inputs)}]"
            )
        given.update(zip(free, inp_args))
        tensors = [
            self._tensor(name, given[name], *self._types[i]) for i, name in enumerate(self._inputs)
        ]
        return OrderedDict(
            (name, value.numpy()) for name, value in zip(self._outputs, self._program.run(tensors))
        )

    @staticmethod
    def _tensor(name: str, value: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Tensor:
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.shape == () and shape == (1,):
            array = array.reshape(1)
        if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise ValueError(
                f"GraphInference: input {name} is {array.dtype}, the model has {dtype}\n  fix: convert it with astype"
            )
        if array.shape != shape:
            raise ValueError(
                f"GraphInference: input {name} has shape {array.shape}, the model has {shape}\n"
                "  why: a dumped graph is made for the shapes of the recorded call\n"
                "  fix: call the function with this shape and dump it again"
            )
        return Tensor(array.astype(dtype, copy=False), dtype=dtype)


# ---- looking a network through; see megengine.utils.network


def _operators(vars: VarNode | Sequence[VarNode]) -> list[OpNode]:
    """Returns the operators that compute variables, in an order in which they can run."""
    vars = as_list(vars)
    return vars[0]._network._oprs_of(vars)


def get_dep_vars(
    var: VarNode | Sequence[VarNode], var_type: str | Sequence[str] | None = None
) -> list[VarNode]:
    """Finds the variables that others are computed from.

    Parameters
    ----------
    var : VarNode or sequence of VarNode
        Variables of one network.
    var_type : str, sequence of str or None
        Types of operators: only variables that these make are returned. None returns all.

    Returns
    -------
    list of VarNode
        The variables in the order in which they are computed, the given ones included.
    """
    types = None if var_type is None else {var_type} if isinstance(var_type, str) else set(var_type)
    return [
        out
        for opr in _operators(var)
        if types is None or get_opr_type(opr) in types
        for out in opr.outputs
    ]


def find_vars_by_name(dst: VarNode | Sequence[VarNode], names: Sequence[str]) -> list[VarNode]:
    """Finds variables by name among those that others are computed from.

    Parameters
    ----------
    dst : VarNode or sequence of VarNode
        Variables of one network, where the search begins.
    names : sequence of str
        Names of the wanted variables.

    Returns
    -------
    list of VarNode
        The variables, in the order of the names.

    Raises
    ------
    AssertionError
        For a name that no variable has.
    """
    named = {var.name: var for var in get_dep_vars(dst)}
    missing = [name for name in names if name not in named]
    if missing:
        raise AssertionError(f"find_vars_by_name: no variable is called {', '.join(missing)}")
    return [named[name] for name in names]


def get_owner_opr_inputs(var: VarNode) -> list[VarNode]:
    """Gives the operands of the operator that makes a variable.

    Parameters
    ----------
    var : VarNode
        Variable of a network.

    Returns
    -------
    list of VarNode
        The operands.
    """
    return var.owner.inputs


def get_owner_opr_type(var: VarNode) -> str:
    """Gives the type of the operator that makes a variable.

    Parameters
    ----------
    var : VarNode
        Variable of a network.

    Returns
    -------
    str
        The type, such as "MatrixMul" or "Elemwise".
    """
    return get_opr_type(var.owner)


def get_opr_type(opr: OpNode) -> str:
    """Gives the type of an operator.

    Parameters
    ----------
    opr : OpNode
        Operator of a network.

    Returns
    -------
    str
        "MatrixMul", "Elemwise" and the like.

    Raises
    ------
    AssertionError
        For an object that is no operator.
    """
    if not isinstance(opr, OpNode):
        raise AssertionError(f"{opr!r} is not an operator")
    return opr.type


def graph_traversal(
    outputs: VarNode | Sequence[VarNode],
) -> tuple[
    dict[int, OpNode],
    dict[int, VarNode],
    dict[int, list[tuple[int, int]]],
    dict[int, list[int]],
    dict[int, set[int]],
    dict[int, int],
]:
    """Describes the operators and variables that variables are computed from, in six mappings by
    id.

    Parameters
    ----------
    outputs : VarNode or sequence of VarNode
        Variables of one network.

    Returns
    -------
    map_oprs : dict of int to OpNode
        The operators.
    map_vars : dict of int to VarNode
        The variables.
    var2oprs : dict of int to list of tuple of int
        Variable to its readers, as pairs of an operator and the index of the operand.
    opr2receivers : dict of int to list of int
        Operator to the operators that read its results.
    indegree2opr : dict of int to set of int
        Number of results of operators, to the operators that read so many.
    opr2indegree : dict of int to int
        Operator to the number of results of operators that it reads.
    """
    map_oprs: dict[int, OpNode] = {}
    map_vars: dict[int, VarNode] = {}
    var2oprs: dict[int, list[tuple[int, int]]] = {}
    opr2receivers: dict[int, list[int]] = {}
    indegree2opr: dict[int, set[int]] = {}
    opr2indegree: dict[int, int] = {}
    for opr in _operators(outputs):
        map_oprs[opr.id] = opr
        opr2receivers[opr.id] = []
        degree = 0
        for index, var in enumerate(opr.inputs):
            var2oprs[var.id].append((opr.id, index))
            opr2receivers[var.owner.id].append(opr.id)
            degree += 1
        opr2indegree[opr.id] = degree
        indegree2opr.setdefault(degree, set()).add(opr.id)
        for var in opr.outputs:
            map_vars[var.id] = var
            var2oprs[var.id] = []
    return map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, opr2indegree


def get_oprs_seq(
    outputs: VarNode | Sequence[VarNode], prune_reshape: bool = False, prune_immtensor: bool = True
) -> list[OpNode]:
    """Finds the operators that compute variables.

    Parameters
    ----------
    outputs : VarNode or sequence of VarNode
        Variables of one network.
    prune_reshape : bool
        Has no effect, and warns so: there is nothing to leave out.
    prune_immtensor : bool
        Whether to leave out constants.

    Returns
    -------
    list of OpNode
        The operators, in an order in which they can run.
    """
    no_effect(
        "get_oprs_seq", "shapes are attributes, no operator computes them", prune_reshape=prune_reshape
    )
    return [
        opr
        for opr in _operators(outputs)
        if not (prune_immtensor and get_opr_type(opr) == "ImmutableTensor")
    ]


def replace_vars(dst: VarNode | Sequence[VarNode], varmap: dict[VarNode, VarNode]) -> list[VarNode]:
    """Copies variables so that the copies read new variables in place of old ones; the originals
    stay.

    Parameters
    ----------
    dst : VarNode or sequence of VarNode
        Variables of one network, which are made anew.
    varmap : dict of VarNode to VarNode
        Old variable to new one, of the same network.

    Returns
    -------
    list of VarNode
        The new variables, in the order of ``dst``.
    """
    dst = as_list(dst)
    network: Network = dst[0]._network
    pairs = [(network._id_of(old), network._id_of(new)) for old, new in varmap.items()]
    numbers = network.graph.copy_with([network._id_of(var) for var in dst], pairs)
    return [network._var(number) for number in numbers]


def replace_oprs(dst: VarNode | Sequence[VarNode], oprmap: dict[OpNode, OpNode]) -> list[VarNode]:
    """Copies variables so that the copies read results of new operators, as `replace_vars`.

    Parameters
    ----------
    dst : VarNode or sequence of VarNode
        Variables of one network, which are made anew.
    oprmap : dict of OpNode to OpNode
        Old operator to new one, of the same network.

    Returns
    -------
    list of VarNode
        The new variables, in the order of ``dst``.

    Raises
    ------
    AssertionError
        When two have different numbers of results.
    """
    varmap: dict[VarNode, VarNode] = {}
    for old, new in oprmap.items():
        if len(old.outputs) != len(new.outputs):
            raise AssertionError(f"{old!r} and {new!r} have different results")
        varmap.update(zip(old.outputs, new.outputs))
    return replace_vars(dst, varmap)
