"""from_torch: programs of torch.fx and torch.export on our tensors. torch is imported when it is called."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .._graph.redirect import original_of
from .._graph.tree import map_leaves
from ..module import Module
from ..reports.progress import Progress
from ..tensor import Tensor
from . import _intercept
from .graph import Graph
from .graph_module import GraphModule
from .node import attribute_at
from .proxy import Proxy
from .torch_memory import Memory
from .torch_modules import as_tensor, build
from .torchlike import FUNCTIONS, OPERATORS
from .tracer import Tracer

__all__ = ["from_torch"]

# methods, and functions outside torch.nn, take the arguments of operators
_OPERATORS = FUNCTIONS | OPERATORS
_PYTHON = ("_operator", "operator", "math", "builtins")
_IN_PLACE = {f"i{name.rstrip('_')}": getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
)}  # fmt: skip


# Operators of Python that give another number, or gradient, on tensors of torch than on ours.
_AS_IN_TORCH = {"floordiv": FUNCTIONS["floor_divide"], "mod": FUNCTIONS["remainder"], "abs": FUNCTIONS["abs"]}


def from_torch(gm: Any, *, rules: Mapping[Any, Callable[..., Any]] | None = None) -> GraphModule:
    """Converts a PyTorch model to a GraphModule on our tensors, with copies of its weights.

    Names of nodes, modules and parameters, shared weights and modes (eval, training) are kept.
    Layers become those of `megengine.module` if there is a counterpart, so that passes know them,
    and weights have their shapes. If an ExportedProgram cannot be converted as it is, torch's
    decompositions are applied first. 64-bit dtypes become 32-bit ones; num_batches_tracked is left
    out. Writes in place become new values: inputs are not changed.

    Parameters
    ----------
    gm : torch.fx.GraphModule, torch.export.ExportedProgram or torch.nn.Module
        The model; torch.fx traces another torch.nn.Module.
    rules : mapping or None
        Conversions that are missing or wanted otherwise. It maps a class of modules to a function
        that takes such a module and returns one of ours; and a function or operator of torch, or
        the name of a method, to a function with the same arguments on our tensors.

    Returns
    -------
    GraphModule
        The converted model.

    Raises
    ------
    ValueError
        If nodes cannot be converted; the message lists all of them, and why.
    TypeError
        For another kind of model.
    ImportError
        Without torch.

    Examples
    --------
    >>> import importlib.util, megengine.functional as F
    >>> from megengine import fx
    >>> if importlib.util.find_spec("torch"):
    ...     import torch
    ...     net = fx.from_torch(torch.nn.Linear(3, 2))
    ...     assert net(F.ones((1, 3))).shape == (1, 2)
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError("from_torch needs torch\n  fix: pip install torch") from error
    if isinstance(gm, torch.export.ExportedProgram):
        return _import_program(torch, gm, rules)
    if not isinstance(gm, torch.nn.Module):
        raise TypeError(
            f"from_torch takes a torch.fx.GraphModule, a torch.export.ExportedProgram or a torch.nn.Module, got {gm!r}"
        )
    name = type(gm).__name__
    modes = {path: module.training for path, module in gm.named_modules()}
    if not isinstance(gm, torch.fx.GraphModule):
        gm = torch.fx.symbolic_trace(gm)
    converted = _Import(torch, gm, rules).run(name)
    for path, module in converted.named_modules():
        module.training = modes.get(path, module.training)
    return converted


def _import_program(torch: Any, program: Any, rules: Mapping[Any, Callable[..., Any]] | None) -> GraphModule:
    """Imports a program as it is, so that layers stay whole; if that fails, after torch's
    decompositions, which have fewer operators and no writes in place.
    """

    def run(program: Any) -> GraphModule:
        known = inspect.signature(program.module).parameters
        options = {"check_guards": False} if "check_guards" in known else {}
        return _Import(torch, program.module(**options), rules, program.call_spec.out_spec).run("ExportedProgram")

    try:
        return run(program)
    except ValueError as refused:
        try:
            return run(program.run_decompositions())
        except ValueError:
            raise refused from None


class _Import(Tracer):
    """Walks a graph of torch and calls what stands for each node on proxies; their calls become our nodes."""

    def __init__(self, torch: Any, gm: Any, rules: Mapping[Any, Callable[..., Any]] | None, out_spec: Any = None) -> None:
        self._torch, self._gm, self._rules, self._out_spec = torch, gm, dict(rules or {}), out_spec
        self._memory = Memory(gm.graph.nodes)
        self._called_paths = {n.target for n in gm.graph.nodes if n.op == "call_module"}
        self._env: dict[Any, Any] = {}  # node of torch -> our value
        self._things: dict[str, Any] = {}  # path -> our module or tensor
        self._layers: dict[int, Module] = {}  # id of a module of torch, which gm holds -> ours
        self._tensors_of: dict[tuple[int, tuple[int, ...]], tuple[Any, Tensor]] = {}  # (id of a tensor of torch, shape) -> it and ours
        self._named: set[Any] = set()  # our nodes that have got torch's names
        self._refused: list[str] = []

    def run(self, name: str) -> GraphModule:
        self._start(lambda: None)
        self.graph = Graph()
        take = self.graph._names.take
        self._names = {node: take(node.name) for node in self._gm.graph.nodes}
        nodes = self._gm.graph.nodes
        with _intercept.tracing(self), Progress("converting from torch", len(nodes), unit="node") as progress:
            for node in nodes:
                self._env[node] = self._convert(node)
                progress.update()
        if self._refused:
            raise ValueError(
                f"from_torch: {len(self._refused)} of {len(self._env)} nodes cannot be converted\n  "
                + "\n  ".join(self._refused)
                + "\n  fix: pass rules={class, function or name of a method: what stands for it on our tensors}"
            )
        constants = {k: v for k, v in vars(self.root).items() if k.startswith("_tensor_constant")}
        return GraphModule(constants | self._things, self.graph, name)

    # -- nodes -----------------------------------------------------------------------------------

    def _convert(self, node: Any) -> Any:
        """Returns our value for a node; if there is none, notes the reason and returns a stand-in.
        """
        try:
            value = getattr(self, f"_{node.op}")(node)
        except (ValueError, TypeError, AttributeError) as error:
            target = node.target if isinstance(node.target, str) else _name_of(node.target)
            reason = str(error).splitlines()[0]
            self._refused.append(f"{node.name} = {node.op} {target}: {reason}")
            return self.create_proxy("placeholder", node.name, (), {})
        if isinstance(value, Proxy) and value.node not in self._named:
            value.node.name = self._names[node]
            self._named.add(value.node)
        return value

    def _ours(self, tree: Any) -> Any:
        """Arguments with our values and dtypes; devices and memory formats are None."""
        torch = self._torch

        def leaf(value: Any) -> Any:
            if isinstance(value, torch.fx.Node):
                return self._env[value]
            if isinstance(value, torch.Tensor):
                return self._take(value)
            if isinstance(value, torch.dtype):
                name = str(value).removeprefix("torch.")
                return {"float64": "float32", "int64": "int32"}.get(name, name)
            dropped = isinstance(value, (torch.device, torch.memory_format, torch.layout))
            return None if dropped else value

        return map_leaves(tree, leaf)

    def _placeholder(self, node: Any) -> Proxy:
        return self.create_proxy("placeholder", node.target, self._ours(node.args), {})

    def _output(self, node: Any) -> Proxy:
        result = self._ours(node.args[0])
        if self._out_spec is not None:  # the graph's own result is flat
            result = self._out_spec.unflatten(list(result))
        return self.create_proxy("output", "output", (result,), {})

    def _get_attr(self, node: Any) -> Any:
        theirs = operator.attrgetter(node.target)(self._gm)
        if not node.users or not isinstance(theirs, self._torch.Tensor):
            return theirs
        steps = node.target.split(".")
        above = (".".join(steps[:depth]) for depth in range(1, len(steps)))
        layer = next((path for path in above if path in self._called_paths), None)
        if layer is None:
            ours: Any = self._take(theirs)
            self._things[node.target] = ours
            setattr(self.root, node.target, ours)  # constants of the walk must get other names
        else:
            ours = attribute_at(self._layer(layer), node.target.removeprefix(f"{layer}."))
        value = self.create_proxy("get_attr", node.target, (), {})
        shape = tuple(theirs.shape)
        return value if ours._tuple_shape == shape else value.reshape(shape)

    def _call_module(self, node: Any) -> Any:
        self._layer(node.target)
        theirs = self._gm.get_submodule(node.target)
        args, kwargs = self._ours((node.args, node.kwargs))
        if kwargs:  # our layers have other names for them
            bound = inspect.signature(theirs.forward).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        value = self.create_proxy("call_module", node.target, args, kwargs)
        return self._settle(node, type(theirs).__name__, value, getattr(theirs, "inplace", False))

    def _call_method(self, node: Any) -> Any:
        return self._call(node, node.target, _OPERATORS)

    def _call_function(self, node: Any) -> Any:
        module, name = getattr(node.target, "__module__", None) or "", _name_of(node.target)
        if module in _PYTHON and node.target not in self._rules:
            return self._call_python(node, name)
        of_networks = module.startswith(("torch.nn", "torch._C._nn"))
        return self._call(node, name, FUNCTIONS if of_networks else _OPERATORS)

    def _call(self, node: Any, name: str, table: Mapping[str, Callable[..., Any]]) -> Any:
        in_place = name.endswith("_") and not name.endswith("__")
        name = name.rstrip("_") if in_place else name
        function = self._rules.get(node.target) or table.get(name)
        if function is None:
            raise ValueError("no function of ours stands for it")
        args, kwargs = self._ours((node.args, node.kwargs))
        if kwargs.pop("out", None) is not None:
            raise ValueError("writes into out=")
        if not args:
            args = tuple(kwargs.pop(key) for key in ("input", "self") if key in kwargs)
        bound = inspect.signature(original_of(function)).bind(*args, **kwargs)
        in_place = in_place or bound.arguments.get("inplace", False)
        return self._settle(node, name, function(*args, **kwargs), in_place)

    def _call_python(self, node: Any, name: str) -> Any:
        """Operators, attributes, and functions of numbers."""
        args, kwargs = self._ours((node.args, node.kwargs))
        if node.target is getattr:
            return self._settle(node, name, _attribute(*args), False)
        writes = name in _IN_PLACE and not self._memory.is_number(node.args[0])
        function = _IN_PLACE.get(name, node.target)
        if not all(self._memory.is_number(each) for each in node.all_input_nodes):
            function = _AS_IN_TORCH.get(name.removeprefix("i") if writes else name, function)
        if function.__module__ in ("math", "builtins"):
            value = self.create_proxy("call_function", function, args, kwargs)
        else:
            value = function(*args, **kwargs)
        return self._settle(node, name, value, writes)

    # -- modules and tensors ---------------------------------------------------------------------

    def _layer(self, path: str) -> Module:
        theirs = self._gm.get_submodule(path)
        if id(theirs) not in self._layers:
            rule = self._rules.get(type(theirs))
            self._layers[id(theirs)] = rule(theirs) if rule else build(theirs, self._take)
        self._things[path] = self._layers[id(theirs)]
        return self._things[path]

    def _take(self, theirs: Any, shape: tuple[int, ...] | None = None) -> Tensor | None:
        """Returns our tensor for one of torch, the same object for each use in this shape."""
        if theirs is None:
            return None
        shape = tuple(theirs.shape) if shape is None else shape
        key = id(theirs), shape
        if key not in self._tensors_of:
            ours = as_tensor(theirs, shape)
            self._tensors_of[key] = theirs, ours
        return self._tensors_of[key][1]

    def _settle(self, node: Any, name: str, value: Any, in_place: bool) -> Any:
        """Notes which values share memory. After a write in place later readers get the new value.
        """
        source = node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("self"))
        source = source if isinstance(source, self._torch.fx.Node) else None
        self._memory.note(node, name, source, node.all_input_nodes)
        if not in_place or source is None:
            return value
        old = self._env[source]
        for other, read_later in self._memory.written(node, source):
            if self._env[other] is old:
                self._env[other] = value
                if other.op == "get_attr":
                    attribute = self.create_proxy("get_attr", other.target, (), {})
                    attribute[...] = value
            elif read_later:
                raise ValueError(
                    f"writes in place into memory that {other.name}, which is read later, shows as well; "
                    "torch.export.export(...).run_decompositions() is without such writes"
                )
        return value


def _name_of(target: Any) -> str:
    """Returns the name in the tables: operators without overload, functions outside torch with
    their module.
    """
    if hasattr(target, "overloadpacket"):
        namespace, _, name = target.name().split(".")[0].partition("::")
        return name if namespace == "aten" else f"{namespace}::{name}"
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", repr(target))
    known = module is None or module.split(".")[0] == "torch" or module in _PYTHON
    return name if known else f"{module}.{name}"


def _attribute(value: Any, name: str) -> Any:
    """``value.name`` of a tensor of torch."""
    if name == "device":
        return None
    if name == "mT":
        return FUNCTIONS[name](value)
    return value if name == "data" else getattr(value, name)
