"""Graphs: calls in order, and for each value the calls that use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..reports.page import rows_table
from .page import diff_page, graph_page
from .rows import Row, dot, each_row, table
from .tree import Value, freeze, map_leaves, map_values, values_in

_COLUMNS = ("kind", "value", "call", "module", "type")
_MOST_LINES = 200  # that a notebook shows of a table


class GraphError(RuntimeError):
    """An edit that a graph cannot take, or a broken graph; the message names the call and its line.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine import fx
    >>> gm = fx.symbolic_trace(lambda x: F.relu(x))
    >>> relu = gm.graph.output_node.prev
    >>> try:
    ...     gm.graph.erase_node(relu)
    ... except fx.GraphError as error:  # the line of the program follows the name
    ...     print("is used by 'output'" in str(error))
    True
    """


class Call:
    """One step of a graph: arguments in, values out.

    op: what the step does. target: what it uses: a function, the name of an input or method, the
    path of an attribute.
    args, kwargs: trees (`tree`) that hold values; assigning them updates the values' users.
    graph: the graph that holds the call, None for a call that stands in none.
    source: "file:line" of the user's program, or "".
    """

    _holder: Graph | None = None
    op: str = ""
    target: Any = None
    source: str = ""
    name: str = ""

    def __init__(self, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> None:
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._inputs: dict[Value, None] = {}
        self._before: Call = self
        self._after: Call = self
        super().__init__()
        self.set_arguments(args, kwargs or {})

    @property
    def graph(self) -> Graph | None:
        return self._holder

    @property
    def outputs(self) -> Sequence[Value]:
        """The values this call makes; a call that is its own value has itself."""
        return (self,) if isinstance(self, Value) else ()

    @property
    def called(self) -> Graph | None:
        """The graph that runs inside of a call of a module, if it has one."""
        return None

    def reached(self) -> Any:
        """The module that "call_module" calls, what "get_attr" reads; None when no module is known.

        An AttributeError or LookupError when it is gone.
        """
        return None

    def handed(self) -> list[Any]:
        """The values that the inputs of `called` take."""
        return []

    def row(self) -> Row:
        """Returns what pictures show of the call."""
        return Row("function", self.name, source=self.source)

    def noted_types(self) -> str:
        """Returns the types of the results, if the call knows them without a run."""
        return ""

    _fields = ""  # the names in what `_written` gives

    def _written(self, writer: Any) -> dict[str, Any]:
        """Returns the parts of the call's record in a file beside op, name, target and arguments;
        ``writer``
        writes values.
        """
        return {}

    def _take(self, item: dict[str, Any], reader: Any) -> None:
        """Takes over what `_written` gave, from a record in a file."""

    def check_saved(self, what: str) -> None:
        """Raises an error of `_files` if a call of this class may not stand in a file; ``what``
        names it there.
        """

    def check(self) -> None:
        """Raises GraphError for faults that only calls of this class may have; order and `reached`
        were checked before.
        """

    @property
    def inputs(self) -> list[Any]:
        """The values in args and kwargs, each once, in order."""
        return list(self._inputs)

    @property
    def args(self) -> tuple[Any, ...]:
        return self._args

    @args.setter
    def args(self, args: Sequence[Any]) -> None:
        self.set_arguments(args, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict[str, Any]) -> None:
        self.set_arguments(self._args, kwargs)

    def set_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Replace args and kwargs together."""
        if not isinstance(args, (tuple, list)) or not isinstance(kwargs, dict):
            raise TypeError(
                f"{self.describe()}: args must be a tuple and kwargs a dict, got {args!r} and {kwargs!r}"
            )
        if not all(isinstance(key, str) for key in kwargs):
            raise TypeError(f"{self.describe()}: the keys of kwargs must be str, got {list(kwargs)}")
        frozen, kwargs = freeze(tuple(args)), freeze(dict(kwargs))
        for value in self._inputs:
            value.readers.pop(self, None)
        self._args, self._kwargs = frozen, kwargs
        self._inputs = dict.fromkeys(values_in((frozen, kwargs)))
        for value in self._inputs:
            value.readers[self] = None

    def replace_input(self, old: Value, new: Any) -> None:
        """Puts ``new`` wherever args and kwargs hold ``old``.

        Parameters
        ----------
        old : Node
            Value that is read now.
        new : object
            Value or constant to read instead.
        """
        self.set_arguments(
            *map_leaves((self._args, self._kwargs), lambda leaf: new if leaf is old else leaf)
        )

    def describe(self) -> str:
        """Returns the call and its line, for messages."""
        return f"{self.name or type(self).__name__!r}" + (
            f" ({self.source})" if self.source else ""
        )


class Pictured:
    """Base of graphs, which can be shown as a table, a drawing or a page."""

    def _rows(self, inputs: tuple[Any, ...], runs: int) -> list[Row]:
        """The rows of a picture, with types and times of ``runs`` runs when there are inputs."""
        raise NotImplementedError

    def html(
        self, *inputs: Any, before: Pictured | None = None, title: str = "Graph", runs: int = 5
    ) -> str:
        """Returns the graph as one HTML page that loads nothing; the calls in a module can be
        folded.

        Pointing at a call shows its line of the program, what it reads and what uses it.

        Parameters
        ----------
        *inputs : object
            Arguments on which the graph is run, to show shapes and the median time of each call;
            without them neither is measured. Tensors of the module are put back afterwards; streams
            of random numbers have moved on.
        before : Graph or None
            This graph before an edit, or another one: both are shown side by side, with what was
            removed, added and changed.
        title : str
            Heading of the page.
        runs : int
            Number of measured runs.

        Returns
        -------
        str
            The page, as HTML.

        Raises
        ------
        TypeError
            If ``before`` is no graph.
        """
        if not isinstance(before, Pictured | None):
            raise TypeError(f"html: before must be a graph, got {type(before).__name__}")
        note = f"median of {runs} runs" if inputs else ""
        rows = self._rows(inputs, runs)
        if before is None:
            return graph_page(title, rows, note)
        return diff_page(title, before._rows(inputs, runs), rows, note)

    def _lines(self) -> Iterator[tuple[str, ...]]:
        for depth, row in each_row(self._rows((), 0)):
            yield row.kind, "  " * depth + row.name, row.call, row.about, row.types

    def tabular(self) -> str:
        """A table: a line for each call, those inside of a module indented."""
        return table(_COLUMNS, self._lines())

    def _repr_html_(self) -> str:
        """Returns the table for notebooks, or its first lines; `html` shows all of them."""
        lines = list(self._lines())
        more = len(lines) - _MOST_LINES
        note = f"<p>and {more} more lines, which html() shows</p>" if more > 0 else ""
        return rows_table([[cell.replace("  ", "\u2003") for cell in line] for line in lines[:_MOST_LINES]], _COLUMNS) + note

    def print_tabular(self) -> None:
        """Prints the table."""
        print(self.tabular())

    def dot(self, name: str = "graph", ignore_getattr: bool = False) -> str:
        """Returns the graph as Graphviz text; calls in a module stand in a frame.

        Parameters
        ----------
        name : str
            Name of the drawing.
        ignore_getattr : bool
            Whether to leave out reads of attributes.

        Returns
        -------
        str
            The text, in Graphviz's language.
        """
        return dot(name, self._rows((), 0), without="attribute" if ignore_getattr else "")


class Graph(Pictured):
    """Calls in the order in which they run. Iterating takes edits: erased calls are skipped."""

    def __init__(self) -> None:
        self._root = Call()  # stands before the first call and after the last
        self._length = 0

    @property
    def owner(self) -> Any:
        """The module whose graph this is, or None."""
        return None

    def each_graph(self) -> Iterator[Any]:
        """Iterates over this graph and those that it calls, each once; it looks into a graph after
        giving it."""
        found: dict[Graph, None] = {self: None}
        waiting = [self]
        for graph in waiting:
            yield graph
            for call in graph:
                inner = call.called
                if inner is not None and inner not in found:
                    found[inner] = None
                    waiting.append(inner)

    def check_ends(self) -> None:
        """Raises GraphError for faults that only graphs of this class may have."""

    # -- order -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        call = self._root._after
        while call is not self._root:
            if call._holder is self:
                yield call
            call = call._after

    def __reversed__(self) -> Iterator[Any]:
        call = self._root._before
        while call is not self._root:
            if call._holder is self:
                yield call
            call = call._before

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> Any:
        """The first call; None in an empty graph."""
        return None if self._root._after is self._root else self._root._after

    @property
    def last(self) -> Any:
        """The last call; None in an empty graph."""
        return None if self._root._before is self._root else self._root._before

    def following(self, call: Call) -> Any:
        """Returns the call after another one.

        Parameters
        ----------
        call : Node
            A call of this graph.

        Returns
        -------
        Node or None
            The next call; None after the last one.
        """
        return None if call._after is self._root else call._after

    def preceding(self, call: Call) -> Any:
        """Returns the call before another one.

        Parameters
        ----------
        call : Node
            A call of this graph.

        Returns
        -------
        Node or None
            The call before it; None before the first one.
        """
        return None if call._before is self._root else call._before

    # -- edits -----------------------------------------------------------------------------------

    def insert(self, call: Call, before: Call | None = None) -> None:
        """Put ``call`` before another one, or at the end."""
        anchor = self._root if before is None else before
        if before is not None and before._holder is not self:
            raise GraphError(f"cannot insert before {before.describe()}: it is not in this graph")
        if call._holder is not None:
            raise GraphError(f"cannot insert {call.describe()}: it is in a graph already")
        call._before, call._after = anchor._before, anchor
        anchor._before._after = call
        anchor._before = call
        call._holder = self
        self._length += 1

    def move(self, call: Call, before: Call | None = None) -> None:
        """Takes a call of this graph to another place.

        Parameters
        ----------
        call : Node
            The call that is moved.
        before : Node or None
            Call that follows it afterwards; None is for the end.
        """
        if before is call:
            return
        self._unlink(call)
        self.insert(call, before)

    def erase(self, call: Call) -> None:
        """Takes ``call`` out. GraphError if another call reads one of its values."""
        self._must_hold(call)
        users = [user for value in call.outputs for user in value.readers]
        if users:
            raise GraphError(
                f"cannot erase {call.describe()}: it is used by "
                + ", ".join(user.describe() for user in users[:5])
                + (f" and {len(users) - 5} more" if len(users) > 5 else "")
                + "\n  fix: give its users another input first, or erase them"
            )
        call.set_arguments((), {})
        self._unlink(call)

    def _unlink(self, call: Call) -> None:
        """Takes a call out; it keeps its links, so that an iteration that stands on it goes on."""
        self._must_hold(call)
        call._before._after, call._after._before = call._after, call._before
        call._holder = None
        self._length -= 1

    def _must_hold(self, call: Call) -> None:
        if call._holder is not self:
            raise GraphError(f"{call.describe()} is not in this graph (any more)")

    # -- questions -------------------------------------------------------------------------------

    def positions(self) -> dict[Any, int]:
        """Returns the place of each call in the order."""
        return {call: place for place, call in enumerate(self)}

    def check(self, known: Iterable[Value] = ()) -> None:
        """Checks that every input is made before it is read, and that users are right.

        Parameters
        ----------
        known : iterable of Node
            Values that exist before the first call.

        Raises
        ------
        GraphError
            If that is not so; the message names the call.
        """
        made = set(known)
        for call in self:
            for value in call._inputs:
                if value not in made:
                    raise GraphError(self._why_not_made(call, value))
                if call not in value.readers:
                    raise GraphError(f"{value.name!r} does not list its user {call.describe()}")
            made.update(call.outputs)
        for call in self:
            for value in call.outputs:
                for user in value.readers:
                    if user._holder is not self or value not in user._inputs:
                        raise GraphError(
                            f"{call.describe()} lists the user {user.describe()}, which does not read it "
                            "in this graph"
                        )

    def _why_not_made(self, call: Call, value: Value) -> str:
        if value in call.outputs:
            return f"{call.describe()} reads its own result: the edit made a cycle"
        if any(value in other.outputs for other in self):
            return (
                f"{call.describe()} reads {value.name!r} before it is made: the order is wrong, or an edit "
                "made a cycle"
            )
        return f"{call.describe()} reads {value.name!r}, which is not in this graph (any more)"

    def running(self, env: dict[Any, Any], kept: Iterable[Value] = (), forgets: bool = True) -> Iterator[Any]:
        """Iterates over the calls in order, for a caller that puts the values they make into
        ``env``.

        Parameters
        ----------
        env : dict
            Mapping of a value to what it is in this run; values that no later call reads are
            removed from it.
        kept : iterable of Node
            Values that are not removed.
        forgets : bool
            Whether to remove values; False keeps all of them.

        Yields
        ------
        Node
            The call to run.
        """
        left: dict[Any, int] = dict.fromkeys(kept, -1)  # how many calls have still to read a value
        for call in self:
            yield call
            if forgets:
                for value in call.outputs:
                    left.setdefault(value, len(value.readers))
                for value in call._inputs:
                    left[value] = left.get(value, 0) - 1
                for value in (*call.outputs, *call._inputs):
                    if left[value] == 0:
                        env.pop(value, None)

    def erase_dead(self, is_needed: Callable[[Any], bool]) -> int:
        """Erases, from the end, calls whose values no call reads unless they are needed; returns
        their number.
        """
        before = self._length
        for call in reversed(self):
            if not any(value.readers for value in call.outputs) and not is_needed(call):
                self.erase(call)
        return before - self._length


def copy_calls(
    calls: Iterable[Any],
    env: dict[Any, Any],
    clone: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any],
) -> None:
    """Copy ``calls`` in order; ``env`` maps old values to new ones and is added to.

    clone: makes the copy of a call from its arguments, in which values are new ones already; returns a
        call with as many outputs.
    GraphError for an input that neither ``env`` nor an earlier call gives.
    """
    for call in calls:
        for value in call.inputs:
            if value not in env:
                raise GraphError(
                    f"{call.describe()} reads {value.name!r}, which is not copied before it\n  fix: graph.lint()"
                )
        args, kwargs = map_values((call.args, call.kwargs), env.__getitem__)
        copied = clone(call, args, kwargs)
        env.update(zip(call.outputs, copied.outputs, strict=True))
