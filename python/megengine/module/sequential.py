"""Containers that call modules and functions one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, overload

from ..tensor import Tensor
from .module import Module

__all__ = ["Sequential"]

_Layer = Module | Callable[..., Any]


class Sequential(Module):
    """Calls modules or functions one after the other, each on the result of the one before.

    Parameters
    ----------
    *args : Module, callable or OrderedDict of str to Module or callable
        Layers, which get the names "0", "1", ...; or one OrderedDict from names to layers.
    **kwargs : object
        Only ``name``: str or None, the name of the module in dumped graphs.

    Raises
    ------
    TypeError
        For anything that cannot be called.

    See Also
    --------
    Module : The base of layers whose forward is not a chain.

    Notes
    -----
    ``seq[i]``, ``seq[a:b]`` (a Sequential), ``seq[i] = layer``, ``del seq[i]``, ``len`` and
    iteration work as for lists.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F, megengine.module as M
    >>> model = M.Sequential(M.Linear(4, 8), F.relu, M.Linear(8, 2))
    >>> model(F.ones((3, 4))).shape
    (3, 2)
    >>> model[:2](F.ones((3, 4))).shape
    (3, 8)
    """

    def __init__(self, *args: _Layer | OrderedDict[str, _Layer], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer_keys: list[str] = []
        items: list[tuple[str, Any]]
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            items = list(args[0].items())
        else:
            items = [(str(index), module) for index, module in enumerate(args)]
        for key, module in items:
            self._check(module)
            self.layer_keys.append(key)
            setattr(self, key, module)

    @staticmethod
    def _check(module: Any) -> None:
        if isinstance(module, type):
            raise TypeError(f"Sequential takes modules and functions, got the class {module.__name__}\n  fix: make a layer of it, {module.__name__}(...)")
        if not callable(module):
            raise TypeError(
                f"Sequential takes modules and functions, got {type(module).__name__}\n"
                "  fix: for a list write Sequential(*layers)"
            )

    @overload
    def __getitem__(self, idx: int) -> Module: ...
    @overload
    def __getitem__(self, idx: slice) -> Sequential: ...
    def __getitem__(self, idx: int | slice) -> Module:
        """Returns a layer, or a Sequential of some. Type checkers see modules, as nearly all are.
        """
        if isinstance(idx, slice):
            return Sequential(
                OrderedDict((key, getattr(self, key)) for key in self.layer_keys[idx])
            )
        if not -len(self.layer_keys) <= idx < len(self.layer_keys):
            raise IndexError(f"list index out of range\n  why: index {idx} of a Sequential with {len(self.layer_keys)} layers")
        return getattr(self, self.layer_keys[idx])

    def __setitem__(self, idx: int, module: _Layer) -> None:
        self._check(module)
        setattr(self, self.layer_keys[idx], module)

    def __delitem__(self, idx: int | slice) -> None:
        for key in self.layer_keys[idx] if isinstance(idx, slice) else [self.layer_keys[idx]]:
            delattr(self, key)
        del self.layer_keys[idx]

    def __len__(self) -> int:
        return len(self.layer_keys)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layer_values)

    @property
    def layer_values(self) -> list[Module]:
        """The layers in the order of calls."""
        return [getattr(self, key) for key in self.layer_keys]

    if TYPE_CHECKING:  # nearly all layers make a tensor of a tensor

        @overload
        def __call__(self, inp: Tensor) -> Tensor: ...
        @overload
        def __call__(self, inp: Any) -> Any: ...
        def __call__(self, inp: Any) -> Any: ...

    def forward(self, inp: Any) -> Any:
        """Returns what the last layer makes of ``inp``; ``inp`` itself when there are no layers.

        Parameters
        ----------
        inp : object
            Input of the first layer.

        Returns
        -------
        object
            Result of the last layer; ``inp`` itself if there are no layers.
        """
        attributes = self.__dict__
        for key in self.layer_keys:
            inp = attributes[key](inp)
        return inp
