"""Lazy selections of a network's operators and variables; look them through with ``megengine.utils.network``."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from .._graph.selection import Selection, name_pattern
from ..core._telling import no_effect
from .network_node import (
    UNUSED,
    Host2DeviceCopy,
    ImmutableTensor,
    NetworkNode,
    OpNode,
    SharedDeviceTensor,
    VarNode,
    as_list,
)


class NodeFilter(Selection[Any]):
    """Iterates over nodes of a network; each method selects the nodes that it describes.

    Selections are lazy, and can be chained. `Network.opr_filter` and ``var_filter`` begin them.

    Parameters
    ----------
    node_iter : iterable of VarNode or OpNode
        The nodes to select from.

    Examples
    --------
    >>> import megengine.functional as F
    >>> from megengine.utils.network import Network
    >>> net = Network()
    >>> x = net.make_input_node((2,), "float32", name="x")
    >>> net.add_output(F.relu(x) + F.exp(x))
    >>> [opr.name for opr in net.opr_filter.has_input(x).name("*e*")]
    ['RELU', 'EXP']
    """

    _not_one = ValueError

    def __init__(self, node_iter: Iterable[Any]) -> None:
        super().__init__(node_iter)

    @classmethod
    def make_all_deps(cls, *dest_vars: VarNode) -> NodeFilter:
        """Selects all operators that variables are computed by.

        Parameters
        ----------
        *dest_vars : VarNode
            One or more variables of one network.

        Returns
        -------
        NodeFilter
            The operators as they can run.
        """
        return cls(dest_vars[0]._network._oprs_of(dest_vars))

    def type(self, node_type: Any) -> NodeFilter:
        """Selects instances of classes; among variables, it selects those that such operators make.

        Parameters
        ----------
        node_type : type or sequence of type
            Classes of operators or variables.

        Returns
        -------
        NodeFilter
            The selection.
        """
        return NodeFilterType(self, node_type)

    def check_type(self, node_type: Any) -> NodeFilter:
        """Selects all nodes, which must be instances of classes.

        Parameters
        ----------
        node_type : type or sequence of type
            Classes of operators or variables.

        Returns
        -------
        NodeFilter
            The selection; to iterate it raises TypeError at another node.
        """
        return NodeFilterCheckType(self, node_type)

    def not_type(self, node_type: Any) -> NodeFilter:
        """Selects all but instances of classes, the opposite of ``type``.

        Parameters
        ----------
        node_type : type or sequence of type
            Classes of operators or variables.

        Returns
        -------
        NodeFilter
            The selection.
        """
        return NodeFilterNotType(self, node_type)

    def param_provider(self) -> NodeFilter:
        """Selects operators that hold parameters, and numbers and arrays of the program, whose values may be set as well."""
        return self.type((SharedDeviceTensor, ImmutableTensor))

    def data_provider(self) -> NodeFilter:
        """Selects operators that stand for inputs."""
        return self.type(Host2DeviceCopy)

    def name(self, pattern: str | re.Pattern[str], ignorecase: bool = True) -> NodeFilter:
        """Selects nodes by name.

        Parameters
        ----------
        pattern : str or re.Pattern
            A glob pattern or a regular expression.
        ignorecase : bool
            Whether capitals count as small letters in glob patterns.

        Returns
        -------
        NodeFilter
            The selection.
        """
        return NodeFilterName(self, pattern, ignorecase)

    def has_input(self, var: VarNode) -> NodeFilter:
        """Selects operators that read a variable.

        Parameters
        ----------
        var : VarNode
            Variable that the operators read.

        Returns
        -------
        NodeFilter
            The selection.
        """
        return NodeFilterHasInput(self, var)

    def as_dict(self) -> OrderedDict[str, Any]:
        """Returns the nodes by name; of those with one name, the last."""
        return OrderedDict((node.name, node) for node in self)


class NodeFilterType(NodeFilter):
    """A selection of instances of classes, as `NodeFilter.type` makes it.

    Parameters
    ----------
    node_iter : iterable of VarNode or OpNode
        The nodes to select from.
    node_type : type or sequence of type
        Classes of operators or variables.

    Raises
    ------
    TypeError
        For other classes.

    Examples
    --------
    >>> from megengine.utils.network import Network
    >>> from megengine.utils.network_node import Host2DeviceCopy
    >>> net = Network()
    >>> net.add_output(net.make_input_node((2,), "float32", name="x") + 1)
    >>> [opr.name for opr in NodeFilterType(net.all_oprs, Host2DeviceCopy)]
    ['x']
    """

    def __init__(self, node_iter: Iterable[Any], node_type: Any) -> None:
        super().__init__(node_iter)
        self._classes = tuple(as_list(node_type))
        for wanted in self._classes:
            if not isinstance(wanted, type) or not issubclass(wanted, NetworkNode):
                raise TypeError(f"NodeFilter: {wanted!r} is not a class of network_node")
            no_effect("NodeFilter", "no graph holds one, several operators do its work", **{wanted.__name__: wanted in UNUSED})

    def _selects(self, node: NetworkNode) -> bool:
        return isinstance(node, self._classes) or (
            isinstance(node, VarNode) and isinstance(node.owner, self._classes)
        )


class NodeFilterNotType(NodeFilterType):
    """A selection of all but instances of classes, as `NodeFilter.not_type` makes it.

    Parameters
    ----------
    node_iter : iterable of VarNode or OpNode
        The nodes to select from.
    node_type : type or sequence of type
        Classes of operators or variables.

    Raises
    ------
    TypeError
        For other classes.

    Examples
    --------
    >>> from megengine.utils.network import Network
    >>> from megengine.utils.network_node import Host2DeviceCopy
    >>> net = Network()
    >>> net.add_output(net.make_input_node((2,), "float32", name="x") + 1)
    >>> [opr.name for opr in NodeFilterNotType(net.all_oprs, Host2DeviceCopy)]
    ['const', 'ADD']
    """

    def _selects(self, node: NetworkNode) -> bool:
        return not super()._selects(node)


class NodeFilterCheckType(NodeFilterType):
    """A selection of all nodes, which must be instances of classes, as `NodeFilter.check_type`
    makes it.

    Parameters
    ----------
    node_iter : iterable of VarNode or OpNode
        The nodes to select from.
    node_type : type or sequence of type
        Classes of operators or variables.

    Raises
    ------
    TypeError
        For other classes; and, when it is iterated, at a node that is not of these.

    Examples
    --------
    >>> from megengine.utils.network import Network
    >>> from megengine.utils.network_node import Host2DeviceCopy
    >>> net = Network()
    >>> net.add_output(net.make_input_node((2,), "float32", name="x") + 1)
    >>> inputs = [net.input_vars[0].owner]
    >>> [opr.name for opr in NodeFilterCheckType(inputs, Host2DeviceCopy)]
    ['x']
    """

    def _selects(self, node: NetworkNode) -> bool:
        if not super()._selects(node):
            names = ", ".join(wanted.__name__ for wanted in self._classes)
            raise TypeError(f"{node!r} is not of class {names}")
        return True


class NodeFilterHasInput(NodeFilter):
    """A selection of the operators that read a variable, as `NodeFilter.has_input` makes it.

    Parameters
    ----------
    node_iter : iterable of OpNode
        The operators to select from.
    var : VarNode
        Variable that the operators read.

    Examples
    --------
    >>> from megengine.utils.network import Network
    >>> net = Network()
    >>> x = net.make_input_node((2,), "float32", name="x")
    >>> net.add_output(x + 1)
    >>> [opr.name for opr in NodeFilterHasInput(net.all_oprs, x)]
    ['ADD']
    """

    def __init__(self, node_iter: Iterable[Any], var: VarNode) -> None:
        super().__init__(node_iter)
        self.var = var

    def _selects(self, node: NetworkNode) -> bool:
        if not isinstance(node, OpNode):
            raise TypeError(f"has_input: {node!r} is not an operator")
        return node._network is self.var._network and self.var.id in node._input_ids


class NodeFilterName(NodeFilter):
    """A selection of nodes by name, as `NodeFilter.name` makes it.

    Parameters
    ----------
    node_iter : iterable of VarNode or OpNode
        The nodes to select from.
    pattern : str or re.Pattern
        Glob pattern of names (``*``, ``?``), or a compiled regular expression.
    ignorecase : bool
        Whether capitals count as small letters in a glob pattern.

    Examples
    --------
    >>> from megengine.utils.network import Network
    >>> net = Network()
    >>> net.add_output(net.make_input_node((2,), "float32", name="x") + 1)
    >>> [opr.name for opr in NodeFilterName(net.all_oprs, "a*", ignorecase=True)]
    ['ADD']
    """

    def __init__(
        self, node_iter: Iterable[Any], pattern: str | re.Pattern[str], ignorecase: bool
    ) -> None:
        super().__init__(node_iter)
        self.pattern = self.make_re(pattern, ignorecase)
        self._literal = pattern  # the name "ADD[0]" as a pattern does not match itself

    @classmethod
    def make_re(cls, pattern: str | re.Pattern[str], ignorecase: bool = True) -> re.Pattern[str]:
        """Makes the regular expression of a glob pattern.

        Parameters
        ----------
        pattern : str or re.Pattern
            A regular expression stays as it is.
        ignorecase : bool
            Whether capitals count as small letters in a glob pattern.

        Returns
        -------
        re.Pattern
            The expression, which is to be matched with whole names.
        """
        return name_pattern(pattern, ignorecase)

    def _selects(self, node: Any) -> bool:
        return node.name == self._literal or self.pattern.match(node.name) is not None
