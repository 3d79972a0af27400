"""GraphModule: a module whose forward is the code of a graph; in files, nodes are records, functions go by name."""

from __future__ import annotations

import itertools
import linecache
import os
import types
from collections.abc import Mapping
from typing import IO, Any

from .. import module as M
from .._files import admitted, graphs, modules
from .._files.container import Damaged
from .._files.locations import MapLocation
from .._files.values import ValueReader, ValueWriter
from .._graph.rows import Measured
from ..core._registry import WrongKey
from ._running import measured
from .graph import Graph
from .node import Node, attribute_at

__all__ = ["GraphModule", "load"]

_versions = itertools.count(1)


def compile_forward(graph: Graph) -> tuple[str, Any]:
    """Returns (source, function) of a graph. Tracebacks show lines of the source."""
    code = graph.python_code("self")
    file = f"<fx generated {next(_versions)}>"
    namespace = dict(code.globals)
    exec(compile(code.src, file, "exec"), namespace)
    linecache.cache[file] = (len(code.src), None, code.src.splitlines(keepends=True), file)
    return code.src, namespace["forward"]


def _check_graph(graph: Any) -> None:
    if not isinstance(graph, Graph):
        raise TypeError(f"graph of a GraphModule must be a Graph, got {type(graph).__name__}")


class GraphModule(M.Module):
    """A module that runs a graph.

    After edits of the graph call `recompile`. ``gm.graph = other`` installs another graph and
    recompiles.

    Parameters
    ----------
    root : Module or mapping of str
        A module, or a mapping of dotted paths to modules and tensors. The new module shares what
        the graph names with it, at the same paths; the modules on the way are new, plain ones.
    graph : Graph
        Graph to run, which belongs to the new module afterwards.
    class_name : str
        Name of the class in generated code.

    Raises
    ------
    TypeError
        If ``graph`` is no graph.
    KeyError
        For a name in the graph that a mapping lacks.
    AttributeError
        For a name in the graph that a module lacks.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(lambda x, y: F.relu(x) + y)
    >>> print(gm.code)
    import megengine
    <BLANKLINE>
    def forward(self, x, y):
        relu = megengine.functional.relu(x);  x = None
        add = relu + y;  relu = y = None
        return add
    <BLANKLINE>
    """

    _class_name: str
    _graph: Graph
    _code: str

    def __init__(
        self,
        root: M.Module | Mapping[str, Any],
        graph: Graph,
        class_name: str = "GraphModule",
    ) -> None:
        super().__init__()
        _check_graph(graph)
        self.__dict__["_class_name"] = class_name
        self.training = getattr(root, "training", True)
        named = [node for node in graph.nodes if node.op in ("call_module", "get_attr")]
        for node in sorted(
            named, key=lambda node: node.target.count(".")
        ):  # a module before its parts
            self._take(root, node)
        self.graph = graph

    def _take(self, root: M.Module | Mapping[str, Any], node: Any) -> None:
        if attribute_at(self, node.target, default=None) is not None:
            return
        if isinstance(root, Mapping):
            if node.target not in root:
                raise WrongKey(f"{node.describe()} names {node.target!r}, which root does not give")
            found = root[node.target]
        else:
            try:
                found = attribute_at(root, node.target)
            except AttributeError as error:
                raise AttributeError(f"{node.describe()}: {error}") from None
        self._put(node.target, found, root)

    def _put(self, path: str, thing: Any, root: Any = None) -> None:
        """Set ``thing`` at a dotted path, with plain modules on the way."""
        *steps, last = path.split(".")
        holder: Any = self
        for depth, step in enumerate(steps, 1):
            below = holder.__dict__.get(step)
            if not isinstance(below, M.Module):
                below = M.Module()
                original = None
                if isinstance(root, M.Module):
                    original = attribute_at(root, ".".join(steps[:depth]), default=None)
                below.training = getattr(original, "training", self.training)
                setattr(holder, step, below)
            holder = below
        setattr(holder, last, thing)

    # -- running ---------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run forward, with hooks. What a node raises is raised, with a note that names the node and its line."""
        try:
            return super().__call__(*inputs, **kwargs)
        except Exception as error:
            self._note_node(error)
            raise

    def _note_node(self, error: Exception) -> None:
        forward: Any = self.forward  # the method that recompile made
        code = forward.__func__.__code__
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code is not code:
            step = step.tb_next
        if step is None:
            return
        statement = self._code.splitlines()[step.tb_lineno - 1].strip()
        name = statement.partition(" = ")[0]
        for node in self._graph.nodes:
            if node.name == name:
                error.add_note(f"while running {node.describe()}: {node.format_node()}")

    # -- graph and code --------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The graph; assigning another graph recompiles. TypeError for other objects."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        _check_graph(graph)
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source that was generated from the graph by the last `recompile`."""
        return self._code

    def recompile(self) -> Any:
        """Generates the code again, after edits of the graph; returns the source.

        GraphError, naming the node, for a graph that is out of order.
        """
        source, function = compile_forward(self._graph)
        # An attribute of the object, so that forward has the parameters of the graph.
        self.__dict__["forward"] = types.MethodType(function, self)
        self.__dict__["_code"] = source
        return source

    def print_readable(self, print_output: bool = True) -> str:
        """Prints and returns the code, as that of a class.

        Parameters
        ----------
        print_output : bool
            Whether to print it.

        Returns
        -------
        str
            The code.
        """
        lines = self._code.splitlines()
        text = f"class {self._class_name}(Module):\n" + "".join(
            f"    {line}".rstrip() + "\n" for line in lines
        )
        if print_output:
            print(text)
        return text

    # -- submodules ------------------------------------------------------------------------------

    def add_submodule(self, target: str, m: M.Module) -> bool:
        """Puts a module at a dotted path.

        Parameters
        ----------
        target : str
            Dotted path of the module; modules on the way that are missing are made.
        m : Module
            Module that is put there.

        Returns
        -------
        bool
            False if something else is in the way; then nothing is done.
        """
        holder: Any = self
        for step in target.split(".")[:-1]:
            below = holder.__dict__.get(step) if isinstance(holder, M.Module) else None
            if below is None:
                break
            if not isinstance(below, M.Module):
                return False
            holder = below
        self._put(target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Deletes the module at a dotted path.

        Parameters
        ----------
        target : str
            Dotted path of the module.

        Returns
        -------
        bool
            False if there is no module at the path.
        """
        path, _, last = target.rpartition(".")
        holder = attribute_at(self, path, default=None)
        if not isinstance(holder, M.Module) or not isinstance(holder.__dict__.get(last), M.Module):
            return False
        delattr(holder, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Deletes modules that the graph neither calls nor reads from; those below and above
        modules in use stay."""
        used: set[str] = set()
        kept: set[str] = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                steps = node.target.split(".")
                used.update(".".join(steps[:depth]) for depth in range(1, len(steps) + 1))
                if node.op == "call_module":
                    kept.add(node.target)
        for path in [path for path, _ in self.named_modules() if path]:
            inside = any(path.startswith(f"{above}.") for above in kept)
            if path not in used and not inside:
                self.delete_submodule(path)

    # -- copies and files ------------------------------------------------------------------------

    def save(self, f: str | os.PathLike[str] | IO[bytes]) -> None:
        """Writes graph, modules and tensors to a file, for `megengine.fx.load`.

        The file is data without code, in the safetensors format (docs/files.md). A path gets its
        new content at once: an error leaves the old file.

        Parameters
        ----------
        f : str, path or binary file
            Where to write; a file must be open for writing.

        Raises
        ------
        ModelFileError
            If the module holds what is not data, such as hooks; the error is a ValueError.
        """
        modules.save(self, f)

    def _runs(self, graph: Graph) -> bool:
        return self._graph is graph

    def _measured(self, inputs: tuple[Any, ...], runs: int) -> Measured:
        return measured(self, inputs, runs)

    def __getstate__(self) -> dict[str, Any]:
        return {
            key: value for key, value in self.__dict__.items() if key not in ("forward", "_code")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.graph = self._graph

    def __repr__(self) -> str:
        return super().__repr__().replace(type(self).__name__, self._class_name, 1)


# -- files ---------------------------------------------------------------------------------------


def load(f: str | os.PathLike[str] | IO[bytes], trusted: admitted.Trusted = (), map_location: MapLocation = None) -> GraphModule:
    """Reads the GraphModule that `GraphModule.save` wrote.

    No code that the file chooses is run.

    Parameters
    ----------
    f : str, path or binary file
        Where to read; a file must be open for reading.
    trusted : iterable or mapping of str
        Functions and classes of the program that the graph calls: a list, or a mapping from the
        names in the file.
    map_location : str, mapping of str to str, callable or None
        Where tensors go: a device, a mapping of devices, or a function from logical device name to
        device, as in `megengine.load`. None: where they were.

    Returns
    -------
    GraphModule
        The module, with tensors of its own.

    Raises
    ------
    ModelFileError
        For a file that cannot be read; the error is a ValueError.

    See Also
    --------
    fx.GraphModule.save : Writes such a file.
    onnx.load : Reads an ONNX model.

    Examples
    --------
    >>> import io, megengine as mge, megengine.module as M
    >>> from megengine import fx
    >>> file = io.BytesIO()
    >>> fx.symbolic_trace(M.Sequential(M.Linear(3, 2), M.ReLU())).save(file)
    >>> _ = file.seek(0)
    >>> fx.load(file)(mge.functional.ones((1, 3))).shape
    (1, 2)
    """
    return modules.load(f, GraphModule, trusted, map_location)


def _write(owner: GraphModule, writer: ValueWriter) -> Any:
    return graphs.write_graph(owner.graph, writer)


def _read(owner: GraphModule, data: Any, reader: ValueReader) -> None:
    graph = owner.__dict__["_graph"] = Graph(owner)
    graphs.read_graph(data, reader, reader.admission.function, Node, graph._read)


def _finish(owner: GraphModule, version: str) -> None:
    owner.graph.lint()
    parameters = ["self", *(node.name for node in owner.graph.nodes if node.op == "placeholder")]
    # otherwise Python would look for the line of its error in a file
    if len(set(parameters)) < len(parameters):
        raise Damaged(f"two parameters of a graph have one name: {', '.join(parameters)}")
    owner.recompile()


modules.FORMS[GraphModule] = modules.Form(frozenset({"_graph", "_code", "forward"}), _write, _read, _finish)
