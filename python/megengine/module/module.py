"""Module: a tree of layers, with its tensors, its state dict, its hooks and its mode."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..tensor import Parameter, Tensor
from ..utils.hook import HookHandler
from ..utils.naming import AutoNaming
from ..utils.naming import recording as _naming
from . import _state
from ._structure import (
    _CONTAINERS,
    INTERNAL,
    Holder,
    _expand_structure,
    _flatten,
    _is_buffer,
    _is_module,
    _is_parameter,
    _is_tensor,
)

__all__ = ["Module"]


class Module(Holder):
    """Base of all layers and models: subclass it, make children in ``__init__``, compute in ``forward``.

    name: part of the path of this module in dumped graphs; None takes the attribute's name.
        AssertionError unless it is a non-empty str.
    ``training`` is True at first; ``quantize_disabled`` keeps quantization off this module.
    """

    name: str | None
    training: bool
    quantize_disabled: bool
    _short_name: str | None  # the attribute path under which a parent holds this module
    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _flat_state = False  # entries of the state dict are 1-D, whatever the tensors' shapes
    _repr_prefix = ""  # before the class name in repr
    _repr_facts = ""  # key facts for repr, as str.format makes it of the module: "size={0.size}"

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not (isinstance(name, str) and name.strip()):
            raise AssertionError(f"name of a module must be a non-empty str, got {name!r}")
        state = self.__dict__
        state["name"] = name
        state["training"] = True
        state["quantize_disabled"] = False
        state["_short_name"] = None
        state["_forward_pre_hooks"] = OrderedDict()
        state["_forward_hooks"] = OrderedDict()

    @property
    def _name(self) -> str | None:
        """The attribute path under which a parent holds this module."""
        return self._short_name

    if TYPE_CHECKING:  # subclasses have arguments of their own

        def forward(self, *args: Any, **kwargs: Any) -> Any: ...
    else:

        def forward(self, inputs: Any) -> Any:
            """What the module computes; subclasses define it, with arguments of their own.

            TypeError in this base class.
            """
            raise TypeError(
                f"{type(self).__name__} does not say what it computes\n"
                "  fix: define forward(self, ...) in the class"
            )

    # -- calling ---------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the forward pre-hooks, ``forward`` and the forward hooks."""
        named = _naming.get()
        if self._forward_pre_hooks or self._forward_hooks or named:
            with AutoNaming.scope_of(self) if named else nullcontext():
                return self._call_with_hooks(inputs, kwargs)
        return self.forward(*inputs, **kwargs)

    def _call_with_hooks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook in tuple(self._forward_pre_hooks.values()):
            changed = hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        outputs = self.forward(*inputs, **kwargs)
        for hook in tuple(self._forward_hooks.values()):
            changed = hook(self, inputs, outputs)
            if changed is not None:
                outputs = changed
        return outputs

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandler:
        """Call ``hook(module, inputs)`` before forward; what it returns, if not None, are the new inputs.

        inputs: tuple of the positional arguments. Returns a handle with ``remove()``.
        """
        return HookHandler(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandler:
        """Call ``hook(module, inputs, outputs)`` after forward; a result other than None replaces outputs.

        Returns a handle with ``remove()``.
        """
        return HookHandler(self._forward_hooks, hook)

    # -- listing ---------------------------------------------------------------------------------

    def parameters(self, recursive: bool = True, **kwargs: Any) -> Iterable[Parameter]:
        """Every Parameter once, attributes in order of their names, depth first."""
        return self._listed(_is_parameter, recursive, None, kwargs)

    def named_parameters(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterable[tuple[str, Parameter]]:
        """(dotted path, Parameter) in the order of `parameters`; ``prefix`` goes before the paths."""
        return self._named(_is_parameter, recursive, prefix, kwargs)

    def buffers(self, recursive: bool = True, **kwargs: Any) -> Iterable[Tensor]:
        """Every Tensor that is not a Parameter, such as running statistics."""
        return self._listed(_is_buffer, recursive, None, kwargs)

    def named_buffers(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterable[tuple[str, Tensor]]:
        """(dotted path, buffer)."""
        return self._named(_is_buffer, recursive, prefix, kwargs)

    def tensors(self, recursive: bool = True, **kwargs: Any) -> Iterable[Tensor]:
        """Parameters and buffers."""
        return self._listed(_is_tensor, recursive, None, kwargs)

    def named_tensors(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterable[tuple[str, Tensor]]:
        """(dotted path, Parameter or buffer)."""
        return self._named(_is_tensor, recursive, prefix, kwargs)

    def children(self, **kwargs: Any) -> Iterable[Module]:
        """The modules held by this one directly."""
        return self._listed(_is_module, False, None, kwargs)

    def named_children(self, **kwargs: Any) -> Iterable[tuple[str, Module]]:
        """(key, module) of the modules held by this one directly."""
        return self._named(_is_module, False, None, kwargs)

    def modules(self, **kwargs: Any) -> Iterable[Module]:
        """This module, then all below it."""
        return (module for _, module in self.named_modules(**kwargs))

    def named_modules(
        self, prefix: str | None = None, **kwargs: Any
    ) -> Iterable[tuple[str, Module]]:
        """(dotted path, module): this one under ``prefix`` (""), then all below it."""
        with_parent = kwargs.pop("with_parent", False)
        seen = kwargs.pop("seen", None)
        _no_more(kwargs)
        seen = set() if seen is None else seen
        path = prefix or ""
        if id(self) not in seen:
            seen.add(id(self))
            own: Any = (path, self, None) if with_parent else (path, self)
            yield own
        found: Any
        for found in _flatten(self, _is_module, prefix=path, seen=seen):
            yield found if with_parent else found[:2]

    def _listed(
        self,
        predicate: Callable[..., Any],
        recursive: bool,
        prefix: str | None,
        kwargs: dict[str, Any],
    ) -> Iterator[Any]:
        return (found[1] for found in self._named(predicate, recursive, prefix, kwargs))

    def _named(
        self,
        predicate: Callable[..., Any],
        recursive: bool,
        prefix: str | None,
        kwargs: dict[str, Any],
    ) -> Iterator[Any]:
        with_parent = kwargs.pop("with_parent", False)
        seen = kwargs.pop("seen", None)
        _no_more(kwargs)
        found = _flatten(self, predicate, prefix=prefix or "", recursive=recursive, seen=seen)
        return found if with_parent else (item[:2] for item in found)

    # -- the whole tree --------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], Any]) -> None:
        """Call ``fn`` on this module and all below it."""
        for module in list(self.modules()):
            fn(module)

    def zero_grad(self) -> None:
        """Deprecated: `Optimizer.clear_grad`. Sets the gradients of all parameters to zero."""
        warnings.warn(
            "Module.zero_grad is deprecated, use Optimizer.clear_grad", DeprecationWarning, 2
        )
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.reset_zero()

    def train(self, mode: bool = True, recursive: bool = True) -> Self:
        """Set ``training`` of this module and, if recursive, of all below it; returns this module."""
        if not recursive:
            self.training = mode
            return self
        for module in list(self.modules()):
            module.train(mode, recursive=False)
        return self

    def eval(self) -> Self:
        """``train(False)``."""
        return self.train(False)

    def disable_quantize(self, value: bool = True) -> None:
        """Set ``quantize_disabled`` of this module and all below it."""
        for module in self.modules():
            module.quantize_disabled = value

    def replace_param(self, params: Any, start_pos: int, seen: set[int] | None = None) -> int:
        """Deprecated. Put ``params[start_pos]``, ... in the places of the parameters, in their order.

        params: sequence, or mapping by position. Returns the number of replaced ones.
        """
        from ..utils.module_utils import set_expand_structure

        places = list(self.named_parameters(seen=seen))
        for offset, (path, _) in enumerate(places):
            set_expand_structure(self, path, params[start_pos + offset])
        return len(places)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(
        self, rst: dict[str, Any] | None = None, prefix: str = "", keep_var: bool = False
    ) -> dict[str, np.ndarray | Tensor]:
        """Dotted path -> ndarray of all parameters and buffers; with keep_var the Tensors themselves.

        Entries of batch, group, layer and instance normalization are 1-D.
        rst: a dict to fill, and to return, instead of a new one.
        """
        return _state.collect(self, rst, prefix, keep_var)[0]

    def _state_dict(
        self, rst: dict[str, Any] | None = None, prefix: str = "", keep_var: bool = False
    ) -> tuple[dict[str, Any], set[str]]:
        return _state.collect(self, rst, prefix, keep_var)

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any] | Callable[[str, Tensor], np.ndarray | None],
        strict: bool = True,
    ) -> None:
        """Write a state dict into this module, in place.

        state_dict: path -> array or Tensor; or a function of (path, tensor) that gives an array, or None
            to leave the tensor as it is. Tensors keep device and format, and take the arrays' dtypes.
        strict: KeyError for missing or unused keys; otherwise a warning.
        ValueError if shapes differ; nothing is written then.
        """
        _state.load(self, state_dict, strict)

    # -- attributes ------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module) or isinstance(value, _CONTAINERS):
            self._adopt(name, value)
        object.__setattr__(self, name, value)

    def _adopt(self, attribute: str, value: Any) -> None:
        """Give the modules in ``value`` the names under which this module holds them."""
        modules = [found for found in _expand_structure(attribute, value) if _is_module(found[1])]
        if modules and "_forward_hooks" not in self.__dict__:
            raise AttributeError(
                f"{type(self).__name__}: cannot assign module {attribute!r} before Module.__init__()\n"
                "  fix: call super().__init__() first"
            )
        for key, module in modules:
            held_as = module._short_name
            if held_as is None:
                module.__dict__["_short_name"] = key
            elif held_as != key and self.__dict__.get(held_as) is module:
                warnings.warn(
                    f"{type(self).__name__}: {key!r} is the module that {held_as!r} holds "
                    "already; it keeps that name",
                    stacklevel=4,
                )

    def __delattr__(self, name: str) -> None:
        value = self.__dict__.get(name)
        object.__delattr__(self, name)
        if isinstance(value, Module) and value._short_name == name:
            value.__dict__["_short_name"] = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle, also one whose writer knew fewer of Module's own attributes."""
        own = self.__dict__
        Module.__init__(self)
        own.update(state)

    # -- text ------------------------------------------------------------------------------------

    def _module_info_string(self) -> str:
        """Key facts for repr, such as sizes; "" for none."""
        return self._repr_facts.format(self)

    def __repr__(self) -> str:
        """Class name and key facts; children indented below."""
        head, facts = f"{self._repr_prefix}{type(self).__name__}(", self._module_info_string()
        lines = []
        for name, value in self.__dict__.items():
            if name in INTERNAL or not isinstance(value, (Module, *_CONTAINERS)):
                continue
            for key, module in _expand_structure(name, value):
                if _is_module(module):
                    lines.append(f"  ({key}): " + repr(module).replace("\n", "\n  "))
        if not lines:
            return f"{head}{facts})"
        return "\n".join([head, *([f"  {facts}"] if facts else []), *lines, ")"])


def _no_more(kwargs: dict[str, Any]) -> None:
    kwargs.pop("requires_grad", None)  # older releases filtered by it
    if kwargs:
        raise TypeError(f"unexpected keyword argument {next(iter(kwargs))!r}")
