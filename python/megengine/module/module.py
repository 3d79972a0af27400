"""Module: a tree of layers, with its tensors, its state dict, its hooks and its mode."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from .._words import missing_name, shows_no_unknown, unknown_keyword
from ..core import scopes
from ..core._telling import deprecated, no_effect
from ..core.row_gradient import set_to_zero
from ..tensor import Parameter, Tensor
from ..utils.hook import HookHandler
from . import _state
from ._failing import tell_layer
from ._reach import set_expand_structure
from ._scope import of_module
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

if TYPE_CHECKING:
    _P = ParamSpec("_P")
    _R = TypeVar("_R", covariant=True)

    class _Computes(Protocol[_P, _R]):
        def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...


class Module(Holder):
    """Base of all layers and models: make children in ``__init__``, compute in ``forward``.

    Modules, Parameters and Tensors that are attributes (also in lists, tuples and dicts with str
    keys) belong to the module: `parameters`, `state_dict`, `train` and `repr` find them.

    Parameters
    ----------
    name : str or None
        Part of the module's path in dumped graphs, a non-empty str; None takes the attribute's
        name.

    Raises
    ------
    AssertionError
        For another name.

    Notes
    -----
    ``training`` is True at first; ``quantize_disabled`` (False) keeps quantization off this module.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> class Net(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = M.Linear(4, 2)
    ...     def forward(self, x):
    ...         return self.fc(x)
    >>> net = Net()
    >>> net(mge.functional.ones((1, 4))).shape
    (1, 2)
    >>> [name for name, _ in net.named_parameters()]
    ['fc.bias', 'fc.weight']
    """

    name: str | None
    training: bool
    quantize_disabled: bool
    _modules: list[str]  # attributes that are or may hold modules, as they were set: the order of repr
    _short_name: str | None  # the attribute path under which a parent holds this module
    _forward_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _forward_hooks: OrderedDict[int, Callable[..., Any]]
    _packed_entry = ""  # MegEngine's entry that holds several parameters, see RNNBase
    _not_saved: frozenset[str] = frozenset()  # buffers that the state dict leaves out
    _flat_state = False  # entries of the state dict are 1-D, whatever the tensors' shapes
    _repr_prefix = ""  # before the class name in repr
    _repr_facts = ""  # key facts for repr, as str.format makes it of the module: "size={0.size}"

    @shows_no_unknown
    def __init__(self, name: str | None = None, **unknown: Any) -> None:
        if unknown:
            raise unknown_keyword(type(self), next(iter(unknown)))
        if name is not None and not (isinstance(name, str) and name.strip()):
            raise AssertionError(f"name of a module must be a non-empty str, got {name!r}")
        state = self.__dict__
        state["name"] = name
        state["training"] = True
        state["quantize_disabled"] = False
        state["_short_name"] = None
        state["_forward_pre_hooks"] = OrderedDict()
        state["_forward_hooks"] = OrderedDict()
        self._list_holders()

    def _list_holders(self) -> None:
        """Lists anew which attributes are or may hold modules; where they were not set one by one."""
        holders = [
            name
            for name, value in self.__dict__.items()
            if name not in INTERNAL and isinstance(value, (Module, *_CONTAINERS))
        ]
        self.__dict__["_modules"] = ["_forward_pre_hooks", "_forward_hooks", *holders]

    @property
    def _name(self) -> str | None:
        """The attribute path under which a parent holds this module."""
        return self._short_name

    if TYPE_CHECKING:  # subclasses have arguments of their own

        def forward(self, *args: Any, **kwargs: Any) -> Any: ...
    else:

        def forward(self, inputs: Any) -> Any:
            """Computes the result; subclasses define it, with arguments of their own.

            Parameters
            ----------
            inputs : object
                Arguments of the call; a subclass names its own.

            Returns
            -------
            object
                Result of the call.

            Raises
            ------
            TypeError
                In this base class.
            """
            raise TypeError(
                f"{type(self).__name__} does not say what it computes\n"
                "  fix: define forward(self, ...) in the class"
            )

    # -- calling ---------------------------------------------------------------------------------

    if TYPE_CHECKING:  # a call has the types of the class's forward; a class whose forward has type parameters or overloads declares its own

        def __call__(self: _Computes[_P, _R], *inputs: _P.args, **kwargs: _P.kwargs) -> _R: ...
    else:

        def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
            """Runs the forward pre-hooks, ``forward`` and the forward hooks."""
            try:
                named = scopes.recording.get()
                if self._forward_pre_hooks or self._forward_hooks or named:
                    with of_module(self) if named else nullcontext():
                        return self._call_with_hooks(inputs, kwargs)
                return self.forward(*inputs, **kwargs)
            except Exception as error:
                tell_layer(error, self)
                raise

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

    def register_forward_pre_hook(self, hook: Callable[[Self, tuple[Any, ...]], Any]) -> HookHandler:
        """Calls ``hook(module, inputs)`` before each forward.

        Parameters
        ----------
        hook : callable
            Function that takes the module and the tuple of positional arguments; a result other
            than None replaces them.

        Returns
        -------
        HookHandler
            Its ``remove()`` undoes this.
        """
        return HookHandler(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Self, tuple[Any, ...], Any], Any]) -> HookHandler:
        """Calls ``hook(module, inputs, outputs)`` after each forward.

        Parameters
        ----------
        hook : callable
            Function that takes the module, the tuple of positional arguments and the outputs; a
            result other than None replaces the outputs.

        Returns
        -------
        HookHandler
            Its ``remove()`` undoes this.

        Examples
        --------
        >>> import megengine as mge, megengine.module as M
        >>> layer, shapes = M.Linear(4, 2), []
        >>> handle = layer.register_forward_hook(lambda module, args, out: shapes.append(out.shape))
        >>> y = layer(mge.functional.ones((3, 4)))
        >>> handle.remove(); y = layer(y @ layer.weight)
        >>> shapes
        [(3, 2)]
        """
        return HookHandler(self._forward_hooks, hook)

    # -- listing ---------------------------------------------------------------------------------

    def parameters(self, recursive: bool = True, **kwargs: Any) -> Iterable[Parameter]:
        """Iterates over every Parameter once: attributes in the order of their names, depth first.

        Parameters
        ----------
        recursive : bool
            Whether to go on in the modules below.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of Parameter
            Each once.
        """
        return self._listed(_is_parameter, recursive, None, kwargs)

    def named_parameters(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterable[tuple[str, Parameter]]:
        """Iterates over (dotted path, Parameter) in the order of `parameters`.

        Parameters
        ----------
        prefix : str or None
            Path in front of all paths; None for none.
        recursive : bool
            Whether to go on in the modules below.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of (str, Parameter)
            Pairs of a dotted path and what it names.
        """
        return self._named(_is_parameter, recursive, prefix, kwargs)

    def buffers(self, recursive: bool = True, **kwargs: Any) -> Iterable[Tensor]:
        """Iterates over every Tensor that is not a Parameter, such as running statistics.

        Parameters
        ----------
        recursive : bool
            Whether to go on in the modules below.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of Tensor
            Each once.

        Examples
        --------
        >>> import megengine.module as M
        >>> [name for name, _ in M.BatchNorm2d(3).named_buffers()]
        ['running_mean', 'running_var']
        """
        return self._listed(_is_buffer, recursive, None, kwargs)

    def named_buffers(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterable[tuple[str, Tensor]]:
        """Iterates over (dotted path, buffer), as `named_parameters` does.

        Parameters
        ----------
        prefix : str or None
            Path in front of all paths; None for none.
        recursive : bool
            Whether to go on in the modules below.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of (str, Tensor)
            Pairs of a dotted path and what it names.
        """
        return self._named(_is_buffer, recursive, prefix, kwargs)

    def register_buffer(self, name: str, tensor: Tensor, persistent: bool = True) -> None:
        """Makes ``tensor`` the attribute ``name``, and says whether it belongs to the state dict.

        Parameters
        ----------
        name : str
            Name of the attribute, an identifier.
        tensor : Tensor
            The buffer, a Tensor that is not a Parameter.
        persistent : bool
            Whether the state dict has it. False is for a table that ``__init__`` computes:
            `state_dict` leaves it out, and `load_state_dict` does not ask for it.

        Raises
        ------
        TypeError
            If it is not a Tensor, or is a Parameter.

        Notes
        -----
        ``self.name = tensor`` makes a persistent buffer, too. `buffers` lists both kinds.

        Examples
        --------
        >>> import megengine as mge, megengine.module as M
        >>> class Masked(M.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("mask", mge.Tensor([1.0, 0.0]), persistent=False)
        >>> net = Masked()
        >>> net.mask.tolist(), list(net.state_dict())
        ([1.0, 0.0], [])
        """
        if not _is_buffer(tensor):
            raise TypeError(
                f"register_buffer: {name!r} must be a Tensor that is not a Parameter, got a "
                f"{type(tensor).__name__}\n  fix: write self.{name} = value"
            )
        setattr(self, name, tensor)
        kept = self._not_saved - {name}
        object.__setattr__(self, "_not_saved", kept if persistent else kept | {name})

    def tensors(self, recursive: bool = True, **kwargs: Any) -> Iterable[Tensor]:
        """Iterates over all Parameters and buffers; recursive: also those of modules below.

        Parameters
        ----------
        recursive : bool
            Whether to go on in the modules below.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of Tensor
            Each once.
        """
        return self._listed(_is_tensor, recursive, None, kwargs)

    def named_tensors(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterable[tuple[str, Tensor]]:
        """Iterates over (dotted path, Parameter or buffer), as `named_parameters` does.

        Parameters
        ----------
        prefix : str or None
            Path in front of all paths; None for none.
        recursive : bool
            Whether to go on in the modules below.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of (str, Tensor)
            Pairs of a dotted path and what it names.
        """
        return self._named(_is_tensor, recursive, prefix, kwargs)

    def children(self, **kwargs: Any) -> Iterable[Module]:
        """Iterates over the modules that this one holds directly.

        Parameters
        ----------
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of Module
            The modules, in the order of their names.
        """
        return self._listed(_is_module, False, None, kwargs)

    def named_children(self, **kwargs: Any) -> Iterable[tuple[str, Module]]:
        """Iterates over (key, module) of the modules that this one holds directly.

        Parameters
        ----------
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of (str, Module)
            Pairs of a key and a module.
        """
        return self._named(_is_module, False, None, kwargs)

    def modules(self, **kwargs: Any) -> Iterable[Module]:
        """Iterates over this module, then all below it.

        Parameters
        ----------
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Returns
        -------
        iterable of Module
            Each once.
        """
        return (found[1] if len(found) == 2 else found[1:] for found in self.named_modules(**kwargs))

    def named_modules(
        self, prefix: str | None = None, **kwargs: Any
    ) -> Iterable[tuple[str, Module]]:
        """Iterates over (dotted path, module): this one under ``prefix``, then all below it.

        Parameters
        ----------
        prefix : str or None
            Path in front of all paths; None for none.
        **kwargs : object
            Only ``with_parent``, bool: True gives pairs with the module that holds them.

        Yields
        ------
        (str, Module)
            Pairs of a dotted path and a module.

        Examples
        --------
        >>> import megengine.module as M
        >>> model = M.Sequential(M.Linear(4, 8), M.ReLU())
        >>> [(path, type(module).__name__) for path, module in model.named_modules()]
        [('', 'Sequential'), ('0', 'Linear'), ('1', 'ReLU')]
        """
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
        named = self._named(predicate, recursive, prefix, kwargs)
        return (found[1] if len(found) == 2 else found[1:] for found in named)

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
        """Calls ``fn(module)`` for this module and all below it, for example to initialize weights.

        Parameters
        ----------
        fn : callable
            Function of a module, called once for each.
        """
        for module in list(self.modules()):
            fn(module)

    @deprecated("Module.zero_grad")
    def zero_grad(self) -> None:
        """Sets the gradients of all parameters to zero."""
        for parameter in self.parameters():
            if parameter.grad is not None:
                set_to_zero(parameter.grad)

    def train(self, mode: bool = True, recursive: bool = True) -> Self:
        """Sets ``training`` to ``mode`` here and, if recursive, in all modules below.

        Layers such as `Dropout` and `BatchNorm2d` act differently in the two modes.

        Parameters
        ----------
        mode : bool
            True for training, False for evaluation.
        recursive : bool
            Whether to set it in the modules below, too.

        Returns
        -------
        Self
            The module itself.

        Examples
        --------
        >>> import megengine.module as M
        >>> model = M.Sequential(M.Linear(4, 4), M.Dropout(0.5)).eval()
        >>> model[1].training, model.train()[1].training
        (False, True)
        """
        if not recursive:
            self.training = mode
            return self
        for module in list(self.modules()):
            module.train(mode, recursive=False)
        return self

    def eval(self) -> Self:
        """Switches to evaluation mode: ``train(False)``.

        Returns
        -------
        Self
            The module itself.
        """
        return self.train(False)

    def disable_quantize(self, value: bool = True) -> None:
        """Sets ``quantize_disabled`` of this module and all below it to ``value``.

        Parameters
        ----------
        value : bool
            Whether quantization leaves these modules as they are.
        """
        for module in self.modules():
            module.quantize_disabled = value

    @deprecated("Module.replace_param")
    def replace_param(self, params: Sequence[Parameter] | Mapping[int, Parameter], start_pos: int, seen: set[int] | None = None) -> int:
        """Puts ``params[start_pos]`` and following in the places of the parameters.

        Parameters
        ----------
        params : sequence of Parameter or mapping of int to Parameter
            New parameters by their place in the order of `parameters`.
        start_pos : int
            Place of the first one that is taken.
        seen : set of int or None
            Ids of modules to leave out.

        Returns
        -------
        int
            How many were replaced.
        """
        places = list(self.named_parameters(seen=seen))
        for offset, (path, _) in enumerate(places):
            set_expand_structure(self, path, params[start_pos + offset])
        return len(places)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(
        self, rst: dict[str, Any] | None = None, prefix: str = "", keep_var: bool = False
    ) -> dict[str, np.ndarray | Tensor]:
        """Returns a dict from dotted path to ndarray, of all parameters and buffers.

        Parameters
        ----------
        rst : dict of str or None
            A dict to fill, and to return, instead of a new one.
        prefix : str
            Text in front of all paths, with its dot if there shall be one.
        keep_var : bool
            Whether to give the Tensors themselves instead of arrays.

        Returns
        -------
        dict of str to numpy.ndarray or Tensor
            Paths to values.

        See Also
        --------
        module.Module.load_state_dict : Writes such a dict into a module.
        megengine.save : Writes it to a file.

        Notes
        -----
        Entries of batch, group, layer and instance normalization are 1-D.

        Examples
        --------
        >>> import megengine.module as M
        >>> {path: array.shape for path, array in M.Linear(4, 2).state_dict().items()}
        {'bias': (2,), 'weight': (2, 4)}
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
        """Writes a state dict into the parameters and buffers of this module, in place.

        Parameters
        ----------
        state_dict : mapping of str or callable
            Mapping of paths to arrays or Tensors, such as `megengine.load` returns for a
            safetensors file; or a function of (path, tensor) that returns an array, or None to
            leave the tensor as it is.
        strict : bool
            Whether missing and unused keys are errors; False only warns of them.

        Raises
        ------
        KeyError
            For missing or unused keys, if strict.
        ValueError
            If shapes differ.

        See Also
        --------
        module.Module.state_dict : Returns such a dict.
        megengine.load : Reads it from a file.

        Notes
        -----
        Tensors keep device and format, and take the arrays' dtypes. After either error nothing has
        been written, unless by a function. A Tensor of the same shape and device is not copied:
        both have one value in memory until one of them is written to. So weights of a mapped file
        stay pages of it until an optimizer updates them.

        Examples
        --------
        >>> import megengine.module as M
        >>> one, other = M.Linear(4, 2), M.Linear(4, 2)
        >>> one.load_state_dict(other.state_dict())
        >>> bool((one.weight == other.weight).numpy().all())
        True
        """
        _state.load(self, state_dict, strict)

    # -- attributes ------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        may_hold = isinstance(value, (Module, *_CONTAINERS))
        if may_hold:
            self._adopt(name, value)
        elif isinstance(value, Tensor) and "_forward_hooks" not in self.__dict__:
            raise _not_initialized(self, f"tensor {name!r}")
        object.__setattr__(self, name, value)
        holders = self.__dict__.get("_modules")
        if holders is not None and (name in holders) is not may_hold and name != "_modules":
            (holders.append if may_hold else holders.remove)(name)

    def _adopt(self, attribute: str, value: Any) -> None:
        """Gives the modules in ``value`` the names under which this module holds them."""
        modules = [found for found in _expand_structure(attribute, value) if _is_module(found[1])]
        if modules and "_forward_hooks" not in self.__dict__:
            raise _not_initialized(self, f"module {attribute!r}")
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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in Module.__annotations__:
                raise _not_initialized(self, "")
            raise missing_name(f"{type(self).__name__!r} object", name, "net", self)

    def __delattr__(self, name: str) -> None:
        value = self.__dict__.get(name)
        object.__delattr__(self, name)
        if name in (holders := self.__dict__.get("_modules", ())):
            holders.remove(name)
        if isinstance(value, Module) and value._short_name == name:
            value.__dict__["_short_name"] = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickle, also one whose writer knew fewer of Module's own attributes."""
        own = self.__dict__
        Module.__init__(self)
        own.update(state)
        if "_modules" not in state:
            self._list_holders()

    # -- text ------------------------------------------------------------------------------------

    def _module_info_string(self) -> str:
        """Key facts for repr, such as sizes; "" for none."""
        return self._repr_facts.format(self)

    def __repr__(self) -> str:
        """Class name and key facts; children indented below."""
        head, facts = f"{self._repr_prefix}{type(self).__name__}(", self._module_info_string()
        lines = []
        for name in self._modules:
            if name in INTERNAL:
                continue
            for key, module in _expand_structure(name, self.__dict__[name]):
                if _is_module(module):
                    lines.append(f"  ({key}): " + repr(module).replace("\n", "\n  "))
        if not lines:
            return f"{head}{facts})"
        return "\n".join([head, *([f"  {facts}"] if facts else []), *lines, ")"])


def _no_more(kwargs: dict[str, Any]) -> None:
    if "requires_grad" in kwargs:
        no_effect("Module", "gradients are those that a GradManager is attached to", requires_grad=kwargs.pop("requires_grad") is not None)
    if kwargs:
        raise TypeError(f"unexpected keyword argument {next(iter(kwargs))!r}")


def _not_initialized(module: Module, assigned: str) -> AttributeError:
    """Returns the error of a subclass whose ``__init__`` did not call that of Module before it
    assigned ``assigned``.
    """
    kind, _, name = assigned.partition(" ")
    what = f"{type(module).__name__} assigns {name}" if name else f"{type(module).__name__} is used"
    return AttributeError(
        f"cannot assign {kind or 'attributes'} before Module.__init__() call\n"
        f"  why: {what} before the __init__ of Module has run\n"
        "  fix: call super().__init__() first in the __init__ of the class"
    )
