"""Lazy selections of a network's operators and variables; look them through with ``megengine.utils.network``."""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from .network_node import Host2DeviceCopy, NetworkNode, OpNode, SharedDeviceTensor, VarNode, as_list


class NodeFilter:
    """Nodes to iterate; each method gives those of them that it describes."""

    def __init__(self, node_iter: Iterable[Any]) -> None:
        self._iter = node_iter

    @classmethod
    def make_all_deps(cls, *dest_vars: VarNode) -> NodeFilter:
        """All operators that ``dest_vars`` are made of."""
        network = dest_vars[0]._network
        return cls(
            [
                network._opr(number)
                for number in network.graph.order([network._id_of(var) for var in dest_vars])
            ]
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iter)

    def type(self, node_type: Any) -> NodeFilter:
        """Instances of a class or of several; variables: those made by such operators."""
        return NodeFilterType(self, node_type)

    def check_type(self, node_type: Any) -> NodeFilter:
        """All nodes; TypeError when one is no instance of ``node_type``."""
        return NodeFilterCheckType(self, node_type)

    def not_type(self, node_type: Any) -> NodeFilter:
        return NodeFilterNotType(self, node_type)

    def param_provider(self) -> NodeFilter:
        """Operators that hold parameters."""
        return self.type(SharedDeviceTensor)

    def data_provider(self) -> NodeFilter:
        """Operators that stand for inputs."""
        return self.type(Host2DeviceCopy)

    def name(self, pattern: str | re.Pattern[str], ignorecase: bool = True) -> NodeFilter:
        """Nodes whose name fits a glob pattern or a regular expression."""
        return NodeFilterName(self, pattern, ignorecase)

    def has_input(self, var: VarNode) -> NodeFilter:
        """Operators that read ``var``."""
        return NodeFilterHasInput(self, var)

    def as_list(self) -> list[Any]:
        return list(self)

    def as_unique(self) -> Any:
        """The only node. ValueError when there is none, or several."""
        nodes = list(self)
        if len(nodes) != 1:
            raise ValueError(
                f"there are {len(nodes)} of these, not one"
                + "".join(f"\n  {node!r}" for node in nodes[:5])
            )
        return nodes[0]

    def as_dict(self) -> OrderedDict[str, Any]:
        """By name; of nodes with one name, the last."""
        return OrderedDict((node.name, node) for node in self)

    def as_count(self) -> int:
        return sum(1 for _ in self)


class NodeFilterType(NodeFilter):
    """Instances of classes."""

    def __init__(self, node_iter: Iterable[Any], node_type: Any) -> None:
        super().__init__(node_iter)
        self._classes = tuple(as_list(node_type))
        for wanted in self._classes:
            if not isinstance(wanted, type) or not issubclass(wanted, NetworkNode):
                raise TypeError(f"NodeFilter: {wanted!r} is no class of network_node")

    def _is_wanted(self, node: NetworkNode) -> bool:
        return isinstance(node, self._classes) or (
            isinstance(node, VarNode) and isinstance(node.owner, self._classes)
        )

    def __iter__(self) -> Iterator[Any]:
        return (node for node in self._iter if self._is_wanted(node))


class NodeFilterNotType(NodeFilterType):
    """All but instances of classes."""

    def __iter__(self) -> Iterator[Any]:
        return (node for node in self._iter if not self._is_wanted(node))


class NodeFilterCheckType(NodeFilterType):
    """All nodes, which must be instances of classes."""

    def __iter__(self) -> Iterator[Any]:
        for node in self._iter:
            if not self._is_wanted(node):
                names = ", ".join(wanted.__name__ for wanted in self._classes)
                raise TypeError(f"{node!r} is no {names}")
            yield node


class NodeFilterHasInput(NodeFilter):
    """Operators that read a variable."""

    def __init__(self, node_iter: Iterable[Any], var: VarNode) -> None:
        super().__init__(node_iter)
        self.var = var

    def __iter__(self) -> Iterator[Any]:
        for node in self._iter:
            if not isinstance(node, OpNode):
                raise TypeError(f"has_input: {node!r} is no operator")
            if node._network is self.var._network and self.var.id in node._input_ids:
                yield node


class NodeFilterName(NodeFilter):
    """Nodes by name."""

    def __init__(
        self, node_iter: Iterable[Any], pattern: str | re.Pattern[str], ignorecase: bool
    ) -> None:
        super().__init__(node_iter)
        self.pattern = self.make_re(pattern, ignorecase)
        self._literal = pattern  # "ADD[0]" is a name, and as a pattern would not fit itself

    @classmethod
    def make_re(cls, pattern: str | re.Pattern[str], ignorecase: bool = True) -> re.Pattern[str]:
        """A glob pattern as a regular expression; one of these as it is."""
        if isinstance(pattern, re.Pattern):
            return pattern
        return re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignorecase else 0)

    def __iter__(self) -> Iterator[Any]:
        return (
            node
            for node in self._iter
            if node.name == self._literal or self.pattern.match(node.name)
        )
