"""Helpers of data-parallel training: average gradients, share parameters, wait for each other."""

from __future__ import annotations

import functools
import math
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..utils.deprecation import deprecated_func
from ..utils.future import Future
from .functional import all_reduce_sum, broadcast
from .group import WORLD, Group, _check_backend, group_barrier, override_backend

if TYPE_CHECKING:
    from ..tensor import Tensor

get_device_count_by_fork = deprecated_func("1.5", "megengine.device", "get_device_count", False)


def get_free_ports(num: int) -> list[int]:
    """``num`` different ports of this machine that nobody listens on now.

    >>> from megengine import distributed as dist
    >>> first, second = dist.get_free_ports(2)
    >>> first != second
    True
    """
    sockets = [socket.create_server(("", 0)) for _ in range(num)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def group_start() -> None:
    """Begin a batch of collective operations. Here each runs at once, so there is nothing to begin.

    >>> from megengine import distributed as dist
    >>> dist.group_start()
    >>> dist.group_end()
    """


def group_end() -> None:
    """End a batch of collective operations.

    >>> from megengine import distributed as dist
    >>> dist.group_start()
    >>> dist.group_end()
    """


def get_offsets(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Where tensors of these shapes begin and end in one flat tensor: [begin, end, begin, end, ...], in elements."""
    offsets, position = [], 0
    for shape in shapes:
        size = math.prod(int(edge) for edge in shape)
        offsets += [position, position + size]
        position += size
    return offsets


def param_pack_split(
    inp: Tensor, offsets: Sequence[int], shapes: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Cut a flat tensor into tensors of these shapes; offsets as of ``get_offsets``."""
    if len(offsets) != 2 * len(shapes):
        raise ValueError(f"{len(shapes)} shapes need {2 * len(shapes)} offsets, got {len(offsets)}")
    return [
        inp[begin:end].reshape(tuple(shape))
        for begin, end, shape in zip(offsets[::2], offsets[1::2], shapes, strict=True)
    ]


def param_pack_concat(inps: Sequence[Tensor], offsets: Any, offsets_val: Sequence[int]) -> Tensor:
    """Join tensors into one flat tensor; the inverse of ``param_pack_split``. The offsets are those of the shapes."""
    from ..core import ops

    if offsets_val[-1] != sum(math.prod(inp._tuple_shape) for inp in inps):
        raise ValueError(f"the tensors do not fill offsets up to {offsets_val[-1]}")
    return ops.concat(*(inp.reshape(-1) for inp in inps), axis=0)


def pack_allreduce_split(
    pack_list: Sequence[Tensor], shapes: Sequence[Sequence[int]], group: Group, reduce_method: str
) -> list[Tensor]:
    """Sum or average tensors over the group in one operation. shapes: those of the tensors."""
    offsets = get_offsets(shapes)
    total = all_reduce_sum(param_pack_concat(pack_list, offsets, offsets), group)
    if reduce_method == "mean":
        total = total / group.size
    return param_pack_split(total, offsets, shapes)


class TensorFuture(Future):
    """A tensor that is not there yet; asking for anything but ``get()`` is an error."""

    def device(self) -> Any:
        """Raises RuntimeError: take the tensor with ``get()`` first."""
        raise self._too_early("device")

    def numpy(self) -> Any:
        """Raises RuntimeError: take the tensor with ``get()`` first."""
        raise self._too_early("numpy")

    def shape(self) -> Any:
        """Raises RuntimeError: take the tensor with ``get()`` first."""
        raise self._too_early("shape")

    def dtype(self) -> Any:
        """Raises RuntimeError: take the tensor with ``get()`` first."""
        raise self._too_early("dtype")

    def _too_early(self, name: str) -> RuntimeError:
        return RuntimeError(
            f"cannot read {name} of a gradient that is still being reduced; call get() first"
        )


def synchronized(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: after the function, every process waits for all others.

    >>> from megengine import distributed as dist
    >>> @dist.synchronized
    ... def download():
    ...     return "once a machine"
    >>> download()
    'once a machine'
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        group_barrier()
        return result

    return wrapper


def bcast_list_(inps: Iterable[Tensor], group: Group = WORLD) -> None:
    """Give all tensors, in place, the values that they have in the group's first process.

    >>> from megengine import distributed as dist, module
    >>> net = module.Linear(2, 3)
    >>> dist.bcast_list_(net.parameters())  # every process starts with the first one's weights
    """
    if group.size == 1:
        return
    for inp in inps:
        inp[...] = broadcast(inp.detach(), group)


class AllreduceCallback:
    """Callback for ``GradManager.attach``: gradients become their sum or mean over the group.

    reduce_method: "sum" or "mean". backend: use another backend's name. In a group of one process gradients stay.

    >>> from megengine import autodiff, distributed as dist, module
    >>> net = module.Linear(2, 3)
    >>> gm = autodiff.GradManager()
    >>> _ = gm.attach(net.parameters(), callbacks=[dist.make_allreduce_cb("mean")])
    """

    def __init__(
        self, reduce_method: str, group: Group = WORLD, backend: str | None = None
    ) -> None:
        if not isinstance(reduce_method, str) or reduce_method.lower() not in ("sum", "mean"):
            raise ValueError(f'reduce_method must be "sum" or "mean", got {reduce_method!r}')
        if backend is not None:
            _check_backend(backend)
        self._reduce_method = reduce_method.lower()
        self._group = group
        self._backend = backend

    def __call__(self, param: Tensor, grad: Tensor) -> Tensor:
        if self._group.size == 1:
            return grad
        if self._backend is None:
            return self._reduced(grad)
        with override_backend(self._backend):
            return self._reduced(grad)

    def _reduced(self, grad: Tensor) -> Tensor:
        total = all_reduce_sum(grad, self._group)
        return total / self._group.size if self._reduce_method == "mean" else total


make_allreduce_cb = AllreduceCallback
