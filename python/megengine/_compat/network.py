"""Graph surgery on dumped models: :class:`Network` loads what ``trace.dump`` wrote, changes it, runs it and dumps it again.

>>> import io, numpy as np, megengine as mge, megengine.functional as F
>>> double = mge.jit.trace(lambda x: x * 2, capture_as_const=True)
>>> double(mge.tensor([1.0, 2.0])).numpy()
array([2., 4.], dtype=float32)
>>> file = io.BytesIO(); info = double.dump(file, arg_names=["x"], output_names=["y"])
>>> net = Network.load(io.BytesIO(file.getvalue()))
>>> y = net.output_vars[0]
>>> net.replace_vars({y: F.relu(y - 3)})
>>> list(net.infer(np.float32([1, 2])).values())
[array([0., 1.], dtype=float32)]
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import _core
from ..core._registry import WrongKey
from ..core._telling import no_effect
from ..jit.dump import DumpInfo, checked_keeping, checked_options, metadata_bytes, save_model
from ..tensor import Tensor
from . import network_node
from .comp_graph_tools import GraphInference, load_model, metadata_of
from .network_filter import (
    NodeFilter,
    NodeFilterCheckType,
    NodeFilterHasInput,
    NodeFilterName,
    NodeFilterNotType,
    NodeFilterType,
)
from .network_node import Host2DeviceCopy, OpNode, VarNode, class_of

if TYPE_CHECKING:
    from .megbrain_graph import Graph

__all__ = [
    "Network", "NodeFilter", "NodeFilterCheckType", "NodeFilterHasInput", "NodeFilterName", "NodeFilterNotType",
    "NodeFilterType", "as_oprnode", "as_varnode", "set_symbolic_shape",
]  # fmt: skip

__name__ = "megengine.utils.network"  # its classes are named by this path

_networks: weakref.WeakValueDictionary[int, Network] = weakref.WeakValueDictionary()
_core._set_variables(lambda graph, number: _networks[graph]._var(number))


class _Editor(_core.GraphEditor):
    """The graph itself, which variables have as their ``graph``."""

    def compile(self, *outputs: Any) -> Graph:
        """Makes these variables runnable by hand, as ``core.tensor.megbrain_graph.Graph.compile`` does."""
        from .megbrain_graph import Graph  # this module needs networks

        return Graph.of(self).compile(*outputs)


class Network:
    """A graph of operators that can be edited, run and dumped; it is empty at first.

    Types of all variables are inferred again after each edit. An invalid edit, such as one that
    makes a shape mismatch or a loop, raises an error that names the operator, and changes nothing.
    The graph consists of what its outputs are computed from; ``input_vars`` are its inputs, the
    oldest first. Numbers that the recorded function computed from shapes in Python are constants of
    the graph.

    Examples
    --------
    >>> import megengine.functional as F, numpy as np
    >>> net = Network()
    >>> x = net.make_input_node((2,), "float32", name="x")
    >>> net.add_output(F.relu(x) + 1)
    >>> [opr.name for opr in net.all_oprs]
    ['x', 'RELU', 'const', 'ADD']
    >>> net.infer(np.float32([-1, 2]))["ADD"].tolist()
    [1.0, 3.0]
    """

    def __init__(self) -> None:
        self.graph = _Editor()
        self._metadata: dict[str, Any] | None = None
        self._runner: GraphInference | None = None
        self._vars: weakref.WeakValueDictionary[int, VarNode] = weakref.WeakValueDictionary()
        self._oprs: weakref.WeakValueDictionary[int, OpNode] = weakref.WeakValueDictionary()
        self._order: list[int] | None = None
        _networks[self.graph.id] = self

    # ---- objects for numbers

    def _var(self, number: int) -> VarNode:
        var = self._vars.get(number)
        if var is None or var.id != number:  # x += 1 made x another variable
            var = self._vars[number] = self.graph.variable(number, VarNode)
            var._network = self
        return var

    def _opr(self, number: int) -> OpNode:
        opr = self._oprs.get(number)
        if opr is None:
            opr = self._oprs[number] = class_of(self.graph, number)._of(self, number)
        return opr

    def _id_of(self, var: VarNode) -> int:
        if not isinstance(var, VarNode):
            raise TypeError(
                f"Network: {type(var).__name__} is not a variable; use make_const for values"
            )
        if var._network is not self:
            raise ValueError(f"Network: {var!r} belongs to another network")
        return var.id

    def _ids_with_copies(self, vars: Sequence[VarNode]) -> list[int]:
        """Returns the numbers of variables; variables of other networks are copied here with the
        operators that compute them.
        """
        others: dict[Network, list[VarNode]] = {}
        for var in vars:
            if isinstance(var, VarNode) and var._network is not self:
                others.setdefault(var._network, []).append(var)
        numbers: dict[tuple[Network, int], int] = {}
        for other, theirs in others.items():
            wanted = list(dict.fromkeys(var.id for var in theirs))
            copies = self.graph.add_model(other.graph.model(wanted, False, False, 2, True))
            numbers.update(((other, old), new) for old, new in zip(wanted, copies, strict=True))
        return [numbers[var._network, var.id] if isinstance(var, VarNode) and var._network in others else self._id_of(var) for var in vars]

    def _changed(self) -> None:
        self._runner = self._order = None
        for var in list(self._vars.values()):
            self.graph.refresh(var)

    def _edit(self, method: str, *args: Any) -> None:
        getattr(self.graph, method)(*args)
        self._changed()

    def _set_outputs(self, outputs: list[int]) -> None:
        self.graph.results = outputs
        self._changed()

    # ---- files

    @classmethod
    def load(
        cls, model_path: str | os.PathLike[str] | IO[bytes], outspec: Sequence[str] | None = None
    ) -> Network:
        """Reads the graph of a file that ``dump`` wrote.

        Parameters
        ----------
        model_path : str, path or binary file
            Where to read; a file must be open for reading.
        outspec : sequence of str or None
            Names of the variables that shall be the outputs; None keeps those of the file.

        Returns
        -------
        Network
            The graph.

        Raises
        ------
        KeyError
            For a name that no variable has.
        RuntimeError
            For a damaged file.
        """
        self = cls()
        model = load_model(model_path)
        outputs = self.graph.add_model(model)
        self._set_outputs(outputs)
        self._metadata = metadata_of(model)
        if outspec is not None:
            named = self.all_vars_dict
            missing = [name for name in outspec if name not in named]
            if missing:
                raise WrongKey(f"Network.load: no variable is called {', '.join(missing)}")
            self._set_outputs([named[name].id for name in outspec])
        return self

    @property
    def metadata(self) -> dict[str, Any] | None:
        """Metadata of the file: user_info, graph_modified, optimized_for_inference and ``enable_*``
        that were on.
        """
        return self._metadata

    def dump(
        self,
        file: str | os.PathLike[str] | IO[bytes],
        *,
        keep_var_name: int = 1,
        keep_opr_name: bool = False,
        keep_param_name: bool = False,
        keep_opr_priority: bool = False,
        strip_info_file: str | None = None,
        append_json: bool = False,
        optimize_for_inference: bool = True,
        append: bool = False,
        user_info: Any = None,
        enable_metadata: bool = True,
        dump_format: str | None = None,
        compat_older_version: str | None = None,
        **kwargs: Any,
    ) -> DumpInfo:
        """Writes the graph as `trace.dump` does; the options are the same.

        An input has the name of its operator if that was renamed, else that of its variable. An
        output has the name of its variable.

        Parameters
        ----------
        file : str, path or binary file
            Where to write; a file must be open for writing.
        keep_var_name : int
            Which variables keep their names: 0 none, 1 the outputs, 2 all.
        keep_opr_name : bool
            Whether to write names of operators.
        keep_param_name : bool
            Whether to write names of parameters; they are written in any case.
        keep_opr_priority : bool
            Has no effect, and warns so.
        strip_info_file : str or None
            Path of a file that gets JSON about operators and dtypes; None writes none.
        append_json : bool
            Whether that JSON becomes one more entry of a list in the file.
        optimize_for_inference : bool
            Whether to run the whole-graph passes.
        append : bool
            Whether to write behind what the file holds already.
        user_info : object
            Numbers, text, arrays and containers of them, which the metadata keeps.
        enable_metadata : bool
            Whether to write the metadata that `Network.metadata` reads.
        dump_format : str or None
            Has no effect, and warns so.
        compat_older_version : str or None
            Has no effect, and warns so.
        **kwargs : object
            The ``enable_*`` options of `trace.dump`; arg_names and output_names are ignored with a
            warning.

        Returns
        -------
        DumpInfo
            What was written, as `trace.dump` returns it.

        Raises
        ------
        ValueError
            For a graph without outputs, two inputs of one name, or an unknown option.
        """
        for name in ("arg_names", "output_names"):
            if kwargs.pop(name, None) is not None:
                warnings.warn(
                    f"Network.dump: {name} is ignored; rename the variables", stacklevel=2
                )
        checked_keeping(keep_var_name, dump_format)
        no_effect(
            "Network.dump",
            "the file has its own format",
            keep_opr_priority=keep_opr_priority,
            compat_older_version=compat_older_version,
            dump_format=dump_format,
        )
        options = checked_options(kwargs)
        model = self._model(
            optimize_for_inference,
            options.get("enable_io16xc32", False),
            keep_var_name,
            keep_opr_name,
        )
        if enable_metadata:
            model.metadata = metadata_bytes(user_info, options, optimize_for_inference, True)
        return save_model(model, file, append, strip_info_file, append_json)

    def _model(
        self,
        optimize: bool = False,
        half: bool = False,
        var_names: int = 1,
        opr_names: bool = False,
    ) -> _core.Model:
        outputs = self.graph.results
        if not outputs:
            raise ValueError("Network: the graph has no output\n  fix: use add_output")
        names = [var.name for var in self.input_vars]
        if len(set(names)) != len(names):
            raise ValueError(
                f"Network: two inputs have one name: {', '.join(names)}\n  fix: rename their variables"
            )
        return self.graph.model(outputs, bool(optimize), half, var_names, bool(opr_names))

    def infer(
        self, *inp_args: np.ndarray, inp_dict: dict[str, np.ndarray] | None = None
    ) -> OrderedDict[str, np.ndarray]:
        """Runs the graph; it is compiled at the first call after an edit.

        Parameters
        ----------
        *inp_args : ndarray
            Arrays in the order of ``input_vars``, without those in inp_dict.
        inp_dict : dict of str to ndarray or None
            Arrays by the names of their inputs.

        Returns
        -------
        OrderedDict of str to ndarray
            The outputs by name.

        Raises
        ------
        AssertionError
            Unless the arrays are exactly the graph's inputs.
        ValueError
            For another shape or dtype.
        """
        if self._runner is None:
            self._runner = GraphInference._of(self._model())
        return self._runner.run(*inp_args, inp_dict=inp_dict)

    # ---- growing

    def make_input_node(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike,
        name: str | None = None,
        device: str | None = None,
    ) -> VarNode:
        """Makes a new input.

        Parameters
        ----------
        shape : int or sequence of int
            Extents of the input.
        dtype : dtype
            Data type of the input.
        name : str or None
            Name by which `infer` takes an array for it; None is "input".
        device : str or None
            Name of the device; None is the default one.

        Returns
        -------
        VarNode
            The input.
        """
        extents = [int(extent) for extent in np.atleast_1d(np.asarray(shape, np.int64))]
        return self._var(self.graph.add_input(extents, dtype, name or "input", "" if device is None else str(device)))

    def make_const(
        self, data: ArrayLike, name: str | None = None, device: str | None = None
    ) -> VarNode:
        """Makes a constant.

        Parameters
        ----------
        data : array_like
            Its value: a number, an array or a tensor.
        name : str or None
            Name of the constant; None is "const".
        device : str or None
            Name of the device; None is the default one.

        Returns
        -------
        VarNode
            The constant.
        """
        value = data if isinstance(data, Tensor) else Tensor(data, device=device)
        if isinstance(value, VarNode):
            value = Tensor(value.numpy())
        return self._var(self.graph.add_constant(value, name or "const", False))

    def add_output(self, *vars: VarNode) -> None:
        """Adds variables behind the present outputs.

        Parameters
        ----------
        *vars : VarNode
            Variables; those of another network are copied, as ``replace_vars`` does. A variable
            that is an output already causes a warning.
        """
        outputs = self.graph.results
        for var, number in zip(vars, self._ids_with_copies(vars), strict=True):
            if number in outputs:
                warnings.warn(f"Network.add_output: {var!r} is an output already", stacklevel=2)
            else:
                outputs.append(number)
        self._set_outputs(outputs)

    def remove_output(self, *vars: VarNode) -> None:
        """Takes variables out of the outputs.

        Parameters
        ----------
        *vars : VarNode
            Outputs; a variable that is none causes a warning.
        """
        outputs = self.graph.results
        for var in vars:
            if self._id_of(var) in outputs:
                outputs.remove(var.id)
            else:
                warnings.warn(f"Network.remove_output: {var!r} is not an output", stacklevel=2)
        self._set_outputs(outputs)

    def add_dep_oprs(self, *vars: VarNode) -> list[VarNode]:
        """Returns the variables, which belong to the graph as soon as an output needs them.

        Parameters
        ----------
        *vars : VarNode
            Variables of this network.

        Returns
        -------
        list of VarNode
            The same.

        Raises
        ------
        ValueError
            For a variable of another network.
        """
        for var in vars:
            self._id_of(var)
        return list(vars)

    # ---- edits

    def replace_vars(self, repl_dict: dict[VarNode, VarNode]) -> None:
        """Makes the readers of an old variable read a new one.

        Operators that the new variable is computed by still read the old one: so ``{x: F.relu(x)}``
        puts a relu behind x. Outputs are replaced as well. A new variable of another network is
        copied with all that it is computed from, its inputs included:
        ``second.replace_vars({second.input_vars[0]: first.output_vars[0]})``. Where the dtypes
        differ, operators promote again, as when they are called with the new variable.

        Parameters
        ----------
        repl_dict : dict of VarNode to VarNode
            Old variable to new one.

        Examples
        --------
        >>> import megengine.functional as F, numpy as np
        >>> net = Network()
        >>> x = net.make_input_node((2,), "float32")
        >>> net.add_output(x + 1)
        >>> net.replace_vars({x: F.relu(x)})
        >>> [y.tolist() for y in net.infer(np.float32([-1, 2])).values()]
        [[1.0, 3.0]]
        """
        new = self._ids_with_copies(list(repl_dict.values()))
        self._edit("replace", list(zip(map(self._id_of, repl_dict), new, strict=True)))

    def replace_oprs(self, repl_dict: dict[OpNode, OpNode]) -> None:
        """Replaces the outputs of operators by those of others, as ``replace_vars`` does.

        Parameters
        ----------
        repl_dict : dict of OpNode to OpNode
            Old operator to new one.

        Raises
        ------
        ValueError
            Unless both have as many outputs.
        """
        vars: dict[VarNode, VarNode] = {}
        for old, new in repl_dict.items():
            if len(old.outputs) != len(new.outputs):
                raise ValueError(
                    f"Network.replace_oprs: {old!r} has {len(old.outputs)} outputs, {new!r} has {len(new.outputs)}"
                )
            vars.update(zip(old.outputs, new.outputs))
        self.replace_vars(vars)

    def reset_batch_size(self, batchsize: int, *, blacklist: Sequence[str | VarNode] = ()) -> None:
        """Sets the leading extent of the inputs.

        Reshapes (``-1``, ``x.shape[0]``), slices of the whole batch and what is computed from ``x.shape`` follow.

        Parameters
        ----------
        batchsize : int
            The new leading extent.
        blacklist : sequence of str or VarNode
            Inputs, or names of inputs, that keep their extent.

        Raises
        ------
        ValueError
            If an operator cannot follow. The message names it, and the line where the function used
            the batch size as a number (``int(x.shape[0])``, ``len(x)``, a branch), named rows by
            number (``x[:2]``, ``x.reshape(2, -1)``) or took gradients. Also if it is not known what
            an extent means: in a file of an earlier version, and in operators that were added by
            hand.
        AssertionError
            Unless all inputs have the same batch size now, and for an entry of ``blacklist`` that
            is no input.
        """
        skipped = {item.name if isinstance(item, VarNode) else item for item in blacklist}
        unknown = skipped - {var.name for var in self.input_vars}
        if unknown:
            raise AssertionError(f"Network.reset_batch_size: blacklist has no inputs {', '.join(sorted(map(str, unknown)))}")
        inputs = [var for var in self.input_vars if var.name not in skipped]
        batches = {var.partial_shape[:1] for var in inputs}
        if len(batches) != 1 or batches == {()}:
            raise AssertionError(
                "Network.reset_batch_size: the inputs do not have one batch size: "
                + ", ".join(map(repr, inputs))
            )
        ((before,),) = batches
        self._edit("reset_batch", [var.id for var in inputs], before, int(batchsize))

    def modify_opr_names(self, modifier: str | Callable[[str], str]) -> None:
        """Renames operators.

        Parameters
        ----------
        modifier : str or callable
            A text is put in front with a dot; a function gives the new name for the old one.

        Raises
        ------
        TypeError
            For a modifier that is neither.
        """
        if not isinstance(modifier, str) and not callable(modifier):
            raise TypeError(f"Network.modify_opr_names: {modifier!r} is neither a string nor a function")
        for opr in self.all_oprs:
            opr.name = modifier(opr.name) if callable(modifier) else f"{modifier}.{opr.name}"

    def optimize_for_inference(self, dest_vars: Sequence[VarNode], **kwargs: bool) -> list[VarNode]:
        """Runs whole-graph passes and returns variables with the values of the given ones.

        Put them in place with ``replace_vars``.

        Parameters
        ----------
        dest_vars : sequence of VarNode
            Variables that are computed.
        **kwargs : bool
            The ``enable_*`` options of dump, which warn that they have no effect here.

        Returns
        -------
        list of VarNode
            New variables, in the same order.
        """
        checked_options(kwargs)
        numbers = self.graph.optimized([self._id_of(var) for var in dest_vars])
        return [self._var(number) for number in numbers]

    # ---- looking

    @property
    def all_oprs(self) -> list[OpNode]:
        """The operators in an order in which they can run; constants and inputs stand before their
        first reader."""
        if self._order is None:
            self._order = self.graph.order()
        return [self._opr(number) for number in self._order]

    @property
    def all_vars(self) -> list[VarNode]:
        """The variables that ``all_oprs`` make, in that order."""
        return [var for opr in self.all_oprs for var in opr.outputs]

    @property
    def input_vars(self) -> list[VarNode]:
        """The variables that stand for inputs, the oldest first."""
        inputs = [opr for opr in self.all_oprs if isinstance(opr, Host2DeviceCopy)]
        return [opr.outputs[0] for opr in sorted(inputs, key=lambda opr: opr.id)]

    @property
    def output_vars(self) -> list[VarNode]:
        """The variables that are outputs, in order."""
        return [self._var(number) for number in self.graph.results]

    dest_vars = output_vars

    @property
    def all_oprs_map(self) -> OrderedDict[int, OpNode]:
        """The operators by id."""
        return OrderedDict((opr.id, opr) for opr in self.all_oprs)

    @property
    def all_vars_map(self) -> OrderedDict[int, VarNode]:
        """The variables by id."""
        return OrderedDict((var.id, var) for var in self.all_vars)

    @property
    def all_oprs_dict(self) -> OrderedDict[str, OpNode]:
        """The operators by name; of those with one name, the last."""
        return self.opr_filter.as_dict()

    @property
    def all_vars_dict(self) -> OrderedDict[str, VarNode]:
        """The variables by name; of those with one name, the last."""
        return self.var_filter.as_dict()

    @property
    def opr_filter(self) -> NodeFilter:
        """All operators, as a `NodeFilter`."""
        return NodeFilter(self.all_oprs)

    @property
    def var_filter(self) -> NodeFilter:
        """All variables, as a `NodeFilter`."""
        return NodeFilter(self.all_vars)

    @property
    def params_filter(self) -> NodeFilter:
        """The operators that hold parameters, as a `NodeFilter`."""
        return self.opr_filter.param_provider()

    @property
    def data_providers_filter(self) -> NodeFilter:
        """The operators that stand for inputs, as a `NodeFilter`."""
        return self.opr_filter.data_provider()

    def get_opr_by_type(self, oprcls: type[OpNode], unique: bool = True) -> Any:
        """Finds operators by class.

        Parameters
        ----------
        oprcls : type
            A class of operators.
        unique : bool
            Whether there must be exactly one.

        Returns
        -------
        OpNode or list of OpNode
            The only one; with unique=False, a list of all.

        Raises
        ------
        AssertionError
            For an object that is no class of operators; with unique, unless there is exactly one.
        """
        if not isinstance(oprcls, type) or not issubclass(oprcls, OpNode):
            raise AssertionError(f"{oprcls!r} is not an operator")
        return _found(self.opr_filter.type(oprcls), unique, oprcls.__name__)

    def get_opr_by_name(self, name: str, unique: bool = True) -> Any:
        """Finds operators by name.

        Parameters
        ----------
        name : str
            Glob pattern that the whole name must match.
        unique : bool
            Whether exactly one must match.

        Returns
        -------
        OpNode or list of OpNode
            The only one; with unique=False, a list of all that fit.

        Raises
        ------
        AssertionError
            With unique, unless there is exactly one.
        """
        return _found(self.opr_filter.name(name), unique, name)

    def get_var_by_name(self, name: str, unique: bool = True) -> Any:
        """Finds variables by name.

        Parameters
        ----------
        name : str
            Glob pattern that the whole name must match.
        unique : bool
            Whether exactly one must match.

        Returns
        -------
        VarNode or list of VarNode
            The only one; with unique=False, a list of all that fit.

        Raises
        ------
        AssertionError
            With unique, unless there is exactly one.
        """
        return _found(self.var_filter.name(name), unique, name)

    def get_var_receive_oprs(self, var: VarNode) -> list[OpNode]:
        """Finds the operators that read a variable.

        Parameters
        ----------
        var : VarNode
            Variable of this network.

        Returns
        -------
        list of OpNode
            Its readers.
        """
        self._id_of(var)
        return var.users

    def _oprs_of(self, vars: Iterable[VarNode]) -> list[OpNode]:
        """Returns the operators that compute variables, in an order in which they can run."""
        return [self._opr(number) for number in self.graph.order([self._id_of(var) for var in vars])]

    def get_dep_oprs(self, var: VarNode) -> list[OpNode]:
        """Finds the operators that a variable is computed by.

        Parameters
        ----------
        var : VarNode
            Variable of this network.

        Returns
        -------
        list of OpNode
            The operators, in an order in which they can run.
        """
        return self._oprs_of([var])


def _found(nodes: NodeFilter, unique: bool, what: str) -> Any:
    found = nodes.as_list()
    if not unique:
        return found
    if len(found) != 1:
        raise AssertionError(f"Network: {len(found)} nodes fit {what!r}, not one")
    return found[0]


def set_symbolic_shape(option: bool) -> bool:
    """Sets whether ``VarNode.shape`` is a variable.

    Parameters
    ----------
    option : bool
        Whether it is a variable; False, as at first, makes it a tuple of ints.

    Returns
    -------
    bool
        The setting before the call.

    Examples
    --------
    >>> x = Network().make_input_node((2, 3), "float32")
    >>> x.shape
    (2, 3)
    >>> before = set_symbolic_shape(True)
    >>> type(x.shape).__name__
    'VarNode'
    >>> _ = set_symbolic_shape(before)
    """
    old = network_node.shapes_are_variables
    network_node.shapes_are_variables = bool(option)
    return old


def as_varnode(obj: VarNode | OpNode) -> VarNode:
    """Returns a variable as it is, and for an operator its only output.

    Parameters
    ----------
    obj : VarNode or OpNode
        Variable or operator of any network.

    Returns
    -------
    VarNode
        The variable.

    Raises
    ------
    TypeError
        For an object that is neither.
    ValueError
        For an operator with no output or several.

    Examples
    --------
    >>> x = Network().make_input_node((2,), "float32", name="x")
    >>> as_varnode(x.owner) is x
    True
    """
    if isinstance(obj, VarNode):
        return obj
    if not isinstance(obj, OpNode):
        raise TypeError(f"as_varnode: {type(obj).__name__} is not a node of a network")
    if len(obj.outputs) != 1:
        raise ValueError(f"as_varnode: {obj!r} has {len(obj.outputs)} outputs")
    return obj.outputs[0]


def as_oprnode(obj: VarNode | OpNode) -> OpNode:
    """Returns an operator as it is, and for a variable the operator that makes it.

    Parameters
    ----------
    obj : VarNode or OpNode
        Variable or operator of any network.

    Returns
    -------
    OpNode
        The operator.

    Raises
    ------
    TypeError
        For an object that is neither.

    Examples
    --------
    >>> x = Network().make_input_node((2,), "float32", name="x")
    >>> type(as_oprnode(x)).__name__
    'Host2DeviceCopy'
    """
    if not isinstance(obj, (VarNode, OpNode)):
        raise TypeError(f"as_oprnode: {type(obj).__name__} is not a node of a network")
    return obj if isinstance(obj, OpNode) else obj.owner
