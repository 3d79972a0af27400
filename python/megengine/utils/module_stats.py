"""Counts what a model costs: parameters, multiply-adds and results of its layers, printed as tables.

>>> import megengine.module as M
>>> total, details = module_stats(M.Linear(3, 4), input_shapes=[(2, 3)], logging_to_stdout=False)
>>> total.flops, total.param_dims
(28, 16)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import module as M
from ..core._registry import enters
from ..core.tensor.shapes import as_pair
from ..logger import get_logger
from ..module._conv_base import _ConvNd, _ConvTransposeNd
from ..module._reach import set_module_mode_safe, tensors_in
from ..module.adaptive_pooling import _AdaptivePoolNd
from ..module.batchnorm import _BatchNorm
from ..module.pooling import _PoolNd
from ..tensor import Tensor

logger = get_logger(__name__)

Row = dict[str, Any]
_Counter = Callable[[Any, Any, Any], Any]


class total_stats(NamedTuple):
    """Holds sums over the layers that `module_stats` counts.

    Parameters
    ----------
    param_size : int
        Bytes of the parameters.
    param_dims : int
        Number of elements of the parameters.
    flops : int
        Number of operations, where a multiply-add is one.
    act_size : int
        Bytes of the layers' results.
    act_dims : int
        Number of elements of the layers' results.
    """

    param_size: int
    param_dims: int
    flops: int
    act_size: int
    act_dims: int


class stats(NamedTuple):
    """Holds the rows of `module_stats`, a dict for each layer.

    Parameters
    ----------
    params : list of dict of str
        Rows of `get_param_stats`, one for each parameter.
    flops : list of dict of str
        Rows of `get_op_stats`, one for each call of a layer.
    activations : list of dict of str
        Rows of `get_activation_stats`, one for each result.
    """

    params: list[dict[str, Any]]
    flops: list[dict[str, Any]]
    activations: list[dict[str, Any]]


stats.__name__ = "module_stats"  # the name that is printed

_flops: dict[type, _Counter] = {}
_receptive_fields: dict[type, _Counter] = {}
_shows_receptive_fields = False
# Id of a tensor of the current run -> its field and stride; tensors are kept alive, so that ids stay valid.
_fields: dict[int, tuple[Tensor, tuple[int, ...], tuple[int, ...]]] = {}

hook_modules: list[type] = [
    _ConvNd, M.Linear, M.BatchMatMulActivation, _BatchNorm, M.LayerNorm, M.GroupNorm, M.InstanceNorm,
    _PoolNd, _AdaptivePoolNd,
]  # fmt: skip


def register_flops(*modules: type) -> Callable[[_Counter], _Counter]:
    """Makes ``counter(module, inputs, outputs)`` count the operations of these classes and their
    subclasses.

    Use it as a decorator. Layers are counted if their class is in `hook_modules`: see
    `register_hook_module`.

    Parameters
    ----------
    *modules : type
        Classes of layers that the decorated function counts.

    Returns
    -------
    callable
        A decorator of the counter.

    Examples
    --------
    >>> import megengine.module as M
    >>> class Square(M.Module):
    ...     def forward(self, x):
    ...         return x * x
    >>> @register_flops(Square)
    ... def flops_square(module, inputs, outputs):
    ...     return outputs[0].size
    >>> register_hook_module(Square)
    >>> module_stats(Square(), input_shapes=[(2, 3)], logging_to_stdout=False)[0].flops
    6
    """
    return enters(_flops, modules)


def register_receptive_field(*modules: type) -> Callable[[_Counter], _Counter]:
    """Makes ``counter(module, inputs, outputs)`` tell (receptive field, stride) of these classes, a
    tuple each.

    Use it as a decorator. `receptive_field_of` returns both for an input.

    Parameters
    ----------
    *modules : type
        Classes of layers that the decorated function counts.

    Returns
    -------
    callable
        A decorator of the counter.

    Examples
    --------
    >>> import megengine.module as M
    >>> class PadOne(M.Module):
    ...     def forward(self, x):
    ...         return x
    >>> @register_receptive_field(PadOne)
    ... def field_of_pad(module, inputs, outputs):
    ...     return receptive_field_of(inputs[0])  # it looks at one place
    """
    return enters(_receptive_fields, modules)


def enable_receptive_field() -> None:
    """Adds ``receptive_field`` and ``stride`` to the rows of operations, in pixels of the model's
    input.

    References
    ----------
    Araujo, Norris and Sim, 2019, "Computing Receptive Fields of Convolutional Neural Networks",
    equation 2.

    Examples
    --------
    >>> import megengine.module as M
    >>> enable_receptive_field()
    >>> net = M.Sequential(M.Conv2d(3, 8, 3, stride=2), M.Conv2d(8, 8, 3))
    >>> total, rows = module_stats(net, input_shapes=[(1, 3, 9, 9)], logging_to_stdout=False)
    >>> [row["receptive_field"] for row in rows.flops[:2]]
    [(3, 3), (7, 7)]
    >>> disable_receptive_field()
    """
    global _shows_receptive_fields
    _shows_receptive_fields = True


def disable_receptive_field() -> None:
    """Undoes `enable_receptive_field`.

    Examples
    --------
    >>> import megengine.module as M
    >>> enable_receptive_field()
    >>> disable_receptive_field()
    >>> rows = module_stats(M.Linear(2, 3), input_shapes=[(1, 2)], logging_to_stdout=False)[1]
    >>> "receptive_field" in rows.flops[0]
    False
    """
    global _shows_receptive_fields
    _shows_receptive_fields = False


def register_hook_module(module: type | Iterable[type]) -> None:
    """Counts layers of this class, or these classes, too.

    Parameters
    ----------
    module : type or iterable of type
        A class or several. `register_flops` says how the operations are counted.

    Examples
    --------
    >>> import megengine.module as M
    >>> class Head(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = M.Linear(2, 3).weight
    ...     def forward(self, x):
    ...         return x @ self.weight.T
    >>> register_hook_module(Head)
    >>> module_stats(Head(), input_shapes=[(1, 2)], logging_to_stdout=False)[0].param_dims
    6
    """
    hook_modules.extend([module] if isinstance(module, type) else module)


def _counter_of(table: dict[type, _Counter], module: M.Module) -> _Counter | None:
    return next((table[kind] for kind in type(module).__mro__ if kind in table), None)


# -- operations of a layer -----------------------------------------------------------------------


@register_flops(M.Conv1d, M.Conv2d, M.Conv3d, M.LocalConv2d, M.DeformableConv2d)
def flops_convNd(module: M.Conv2d, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Returns the operations of a convolution: one for each multiply-add and for each addition of
    the bias.

    Parameters
    ----------
    module : Conv2d
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> conv, x = M.Conv2d(3, 8, 3), F.zeros((1, 3, 6, 6))
    >>> flops_convNd(conv, [x], [conv(x)]) == 8 * 4 * 4 * (3 * 3 * 3 + 1)
    True
    """
    taps = module.in_channels // module.groups * math.prod(module.kernel_size)
    return outputs[0].size * (taps + (module.bias is not None))


@register_flops(_ConvTransposeNd)
def flops_convNdTranspose(module: M.Conv2d, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Returns the operations of a transposed convolution, as `flops_convNd` counts them.

    Every input element is spread over a window.

    Parameters
    ----------
    module : Conv2d
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> conv, x = M.ConvTranspose2d(3, 8, 2, stride=2, bias=False), F.zeros((1, 3, 4, 4))
    >>> flops_convNdTranspose(conv, [x], [conv(x)]) == 3 * 4 * 4 * (8 * 2 * 2)
    True
    """
    taps = module.out_channels // module.groups * math.prod(module.kernel_size)
    return inputs[0].size * taps + outputs[0].size * (module.bias is not None)


@register_flops(_BatchNorm, M.SyncBatchNorm, M.GroupNorm, M.LayerNorm, M.InstanceNorm)
def flops_norm(module: M.Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Returns the operations of a normalization: seven for each element, for mean, variance and
    affine map.

    Parameters
    ----------
    module : Module
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> norm, x = M.LayerNorm(5), F.zeros((2, 5))
    >>> flops_norm(norm, [x], [norm(x)])
    70
    """
    return inputs[0].size * 7


@register_flops(_PoolNd)
def flops_pool(module: M.AvgPool2d, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Returns the operations of a pooling layer: one for each element of each window.

    Parameters
    ----------
    module : AvgPool2d
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> pool, x = M.MaxPool2d(2), F.zeros((1, 3, 4, 4))
    >>> flops_pool(pool, [x], [pool(x)])
    48
    """
    return outputs[0].size * math.prod(as_pair(module.kernel_size, "kernel_size", 2))


@register_flops(_AdaptivePoolNd)
def flops_adaptivePool(
    module: M.AdaptiveAvgPool2d, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> int:
    """Returns the operations of adaptive pooling: one for each result.

    Parameters
    ----------
    module : AdaptiveAvgPool2d
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> pool, x = M.AdaptiveAvgPool2d(1), F.zeros((1, 3, 4, 4))
    >>> flops_adaptivePool(pool, [x], [pool(x)])
    3
    """
    return outputs[0].size


@register_flops(M.Linear)
def flops_linear(module: M.Linear, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Returns the operations of a linear layer: one for each multiply-add, and one for each element
    of the bias.

    Parameters
    ----------
    module : Linear
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> linear, x = M.Linear(3, 4), F.zeros((2, 3))
    >>> flops_linear(linear, [x], [linear(x)]) == 2 * 4 * 3 + 4
    True
    """
    return outputs[0].size * module.in_features + (0 if module.bias is None else module.out_features)


@register_flops(M.BatchMatMulActivation)
def flops_batchmatmul(
    module: M.BatchMatMulActivation, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> int:
    """Returns the operations of a batched product: one for each multiply-add and each addition of
    the bias.

    Parameters
    ----------
    module : BatchMatMulActivation
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    int
        Their number for the whole batch.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> layer, x = M.BatchMatMulActivation(2, 3, 4, bias=False), F.zeros((2, 3, 5))
    >>> y = layer(x)
    >>> y.shape, flops_batchmatmul(layer, [x], [y]) == y.size * 3
    ((2, 4, 5), True)
    """
    return outputs[0].size * (module.in_features + (module.bias is not None))


# -- receptive fields ----------------------------------------------------------------------------


def receptive_field_of(x: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns (field, stride) of the tensor ``x`` while `module_stats` runs; None if it is not
    known.

    It is not known outside of a run, and for a tensor that a function between layers made.

    Parameters
    ----------
    x : Tensor
        Any tensor of the run.

    Returns
    -------
    (tuple of int, tuple of int) or None
        Field and stride, in pixels.

    Examples
    --------
    >>> import megengine as mge
    >>> print(receptive_field_of(mge.Tensor(1.0)))
    None
    """
    known = _fields.get(id(x))
    return None if known is None else known[1:]


def preprocess_receptive_field(
    module: M.Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the largest field and stride of a layer's inputs; None if they are not known.

    The results of a layer that reads a single place have the same.

    Parameters
    ----------
    module : Module
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    (tuple of int, tuple of int) or None
        Field and stride, or None.

    Examples
    --------
    >>> import megengine as mge, megengine.module as M
    >>> x = mge.Tensor([-1.0])
    >>> print(preprocess_receptive_field(M.ReLU(), [x], [x]))  # outside of a run
    None
    """
    known = [field for x in inputs if (field := receptive_field_of(x)) is not None]
    return max(known, default=None)


@register_receptive_field(_ConvNd, _PoolNd)
def _window_field(module: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
    """Araujo, Norris and Sim, 2019, "Computing Receptive Fields of Convolutional Neural Networks", equation 2."""
    before = preprocess_receptive_field(module, inputs, outputs)
    if before is None or isinstance(module, _ConvTransposeNd):
        return None
    sizes, strides = before
    rank = inputs[0].ndim - 2
    kernel, stride, dilation = (
        as_pair(getattr(module, name, 1), name, rank) for name in ("kernel_size", "stride", "dilation")
    )
    sizes, strides = (value * rank if len(value) == 1 else value for value in (sizes, strides))
    return (
        tuple(r + (k - 1) * d * s for r, k, d, s in zip(sizes, kernel, dilation, strides, strict=True)),
        tuple(s * t for s, t in zip(strides, stride, strict=True)),
    )


def _note_fields(module: M.Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
    counter = _counter_of(_receptive_fields, module) or preprocess_receptive_field
    field = counter(module, inputs, outputs)
    if field is not None:
        for y in outputs:
            _fields[id(y)] = (y, *field)
    return field


# -- one row for each layer ----------------------------------------------------------------------


def get_op_stats(module: M.Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Row | None:
    """Returns the cost of one call of a layer; None for a class whose operations are not counted.

    Parameters
    ----------
    module : Module
        Layer that was called once.
    inputs, outputs : sequence of Tensor
        Tensors that the call took and returned.

    Returns
    -------
    dict of str or None
        Entries input_shapes, output_shapes and flops_num, and with `enable_receptive_field`
        receptive_field and stride.

    Examples
    --------
    >>> import megengine.functional as F, megengine.module as M
    >>> linear, x = M.Linear(3, 4), F.zeros((2, 3))
    >>> get_op_stats(linear, [x], [linear(x)])
    {'input_shapes': [(2, 3)], 'output_shapes': [(2, 4)], 'flops_num': 28}
    """
    counter = _counter_of(_flops, module)
    if counter is None:
        return None
    row: Row = {
        "input_shapes": [x._tuple_shape for x in inputs],
        "output_shapes": [y._tuple_shape for y in outputs],
        "flops_num": counter(module, inputs, outputs),
    }
    if _shows_receptive_fields:
        row["receptive_field"], row["stride"] = _note_fields(module, inputs, outputs) or ("?", "?")
    return row


def _values(x: Tensor) -> Row:
    values = x.numpy().astype(np.float64)
    return {"mean": f"{values.mean():.3g}", "std": f"{values.std():.3g}"} if values.size else {}


def _bits(x: Tensor) -> Row:
    itemsize = np.dtype(x.dtype).itemsize
    return {"nbits": itemsize * 8, "size": x.size * itemsize}


def get_param_stats(param: Tensor) -> Row:
    """Returns the row of a parameter.

    Parameters
    ----------
    param : Tensor
        Parameter of any shape.

    Returns
    -------
    dict of str
        Entries dtype, shape, mean and std (as text), param_dim (elements), nbits (of one) and size
        (bytes).

    Examples
    --------
    >>> import megengine as mge
    >>> row = get_param_stats(mge.Parameter([[1.0, 3.0]]))
    >>> row["shape"], row["mean"], row["param_dim"], row["nbits"], row["size"]
    ((1, 2), '2', 2, 32, 8)
    """
    head = {"dtype": np.dtype(param.dtype), "shape": param._tuple_shape, **_values(param)}
    return {**head, "param_dim": param.size, **_bits(param)}


def get_activation_stats(output: Tensor, has_input: bool = False) -> Row:
    """Returns the row of a layer's result.

    Parameters
    ----------
    output : Tensor
        Result of a layer, of any shape.
    has_input : bool
        Whether to read values, for mean and std.

    Returns
    -------
    dict of str
        Entries dtype, shape, act_dim (elements), nbits (of one) and size (bytes); with has_input
        also mean and std.

    Examples
    --------
    >>> import megengine.functional as F
    >>> row = get_activation_stats(F.zeros((2, 3)))
    >>> row["shape"], row["act_dim"], row["size"]
    ((2, 3), 6, 24)
    """
    row = {"dtype": np.dtype(output.dtype), "shape": output._tuple_shape, "act_dim": output.size}
    return {**row, **_bits(output), **(_values(output) if has_input else {})}


# -- tables --------------------------------------------------------------------------------------


def dict2table(list_of_dict: Iterable[Row], header: Sequence[str]) -> list[list[Any]]:
    """Makes a table of dicts: the header, and below it the values of each dict, "" for a missing
    one.

    Parameters
    ----------
    list_of_dict : iterable of dict of str
        A dict for each row.
    header : sequence of str
        The keys that are shown.

    Returns
    -------
    list of list
        Rows, the header first.

    Examples
    --------
    >>> dict2table([{"name": "conv", "flops": 8}, {"name": "relu"}], ["name", "flops"])
    [['name', 'flops'], ['conv', 8], ['relu', '']]
    """
    return [list(header), *([row.get(name, "") for name in header] for row in list_of_dict)]


def sizeof_fmt(num: float, suffix: str = "B") -> str:
    """Returns the number ``num`` as text, with three decimals and a prefix.

    Parameters
    ----------
    num : float
        Number to write as text.
    suffix : str
        "B" counts in 1024 (KiB, MiB), others in 1000 (K, M).

    Returns
    -------
    str
        The text, with three decimals and a prefix.

    Examples
    --------
    >>> sizeof_fmt(2048), sizeof_fmt(2048, "OPs")
    ('2.000 KiB', '2.048 KOPs')
    """
    base, mark = (1024, "i") if suffix == "B" else (1000, "")
    for prefix in ("", "K", "M", "G", "T", "P", "E", "Z"):
        if abs(num) < base:
            return f"{num:.3f} {prefix}{mark if prefix else ''}{suffix}"
        num /= base
    return f"{num:.3f} Y{mark}{suffix}"


def _text_of(table: list[list[Any]]) -> str:
    cells = [[str(cell) for cell in row] for row in table]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    line = "  ".join("-" * width for width in widths)
    rows = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "\n".join([line, *rows, line])


def _with_shares(
    rows: list[Row], amount: str, total: float, text: str, show: Callable[[float], str], length: int
) -> None:
    """Adds running sums, shares and bars of ``amount`` to the rows, and puts it in words under ``text``."""
    largest, sum_so_far = max((row[amount] for row in rows), default=0), 0
    bar = "bar" if text == "flops" else f"{text}_bar"
    for row in rows:
        value = row[amount]
        sum_so_far += value
        ratio = value / total if total else 0.0
        row[f"{text}_cum"], row["ratio"], row["percentage"] = show(sum_so_far), ratio, f"{ratio:.2%}"
        row[bar] = "#" * (int(value / largest * length) if largest else 0)
        row[text] = show(value)


_as_ops = partial(sizeof_fmt, suffix="OPs")


def sum_op_stats(flops: list[Row], bar_length_max: int = 20) -> tuple[int, list[Row]]:
    """Sums the operations of rows, and adds shares, bars and a last row of totals to them.

    Parameters
    ----------
    flops : list of dict of str
        Rows of `get_op_stats`, which are changed.
    bar_length_max : int
        Length of the longest bar, in characters.

    Returns
    -------
    flops_num : int
        Sum of the operations.
    rows : list of dict
        The rows, with shares and bars.

    Examples
    --------
    >>> row = {"name": "fc", "flops_num": 3000, "output_shapes": [(1, 10)]}
    >>> total, rows = sum_op_stats([row, {**row, "flops_num": 1000}])
    >>> total, rows[0]["percentage"], rows[-1]["flops"]
    (4000, '75.00%', '4.000 KOPs')
    """
    total = int(sum(row["flops_num"] for row in flops))
    _with_shares(flops, "flops_num", total, "flops", _as_ops, bar_length_max)
    channels = sum(shape[1] for row in flops for shape in row["output_shapes"][:1] if len(shape) > 1)
    flops.append({"name": "total", "flops": _as_ops(total), "output_shapes": channels})
    return total, flops


def _sum_sizes(rows: list[Row], dim: str, length: int) -> tuple[int, int, list[Row]]:
    dims, size = (sum(row[name] for row in rows) for name in (dim, "size"))
    _with_shares(rows, "size", size, "size", sizeof_fmt, length)
    rows.append({"name": "total", dim: dims, "size": sizeof_fmt(size)})
    return dims, size, rows


def sum_param_stats(params: list[Row], bar_length_max: int = 20) -> tuple[int, int, list[Row]]:
    """Sums the parameters of rows, and adds shares, bars and a last row of totals to them.

    Parameters
    ----------
    params : list of dict of str
        Rows of `get_param_stats`, which are changed.
    bar_length_max : int
        Length of the longest bar, in characters.

    Returns
    -------
    param_dim : int
        Sum of the elements.
    size : int
        Sum of the bytes.
    rows : list of dict
        The rows, with shares and bars.

    Examples
    --------
    >>> dims, size, rows = sum_param_stats([{"name": "fc-w", "param_dim": 256, "size": 1024}])
    >>> dims, size, rows[-1]["size"]
    (256, 1024, '1.000 KiB')
    """
    return _sum_sizes(params, "param_dim", bar_length_max)


def sum_activations_stats(
    activations: list[Row], bar_length_max: int = 20
) -> tuple[int, int, list[Row]]:
    """Sums the results of rows, and adds shares, bars and a last row of totals to them.

    Parameters
    ----------
    activations : list of dict of str
        Rows of `get_activation_stats`, which are changed.
    bar_length_max : int
        Length of the longest bar, in characters.

    Returns
    -------
    act_dim : int
        Sum of the elements.
    size : int
        Sum of the bytes.
    rows : list of dict
        The rows, with shares and bars.

    Examples
    --------
    >>> dims, size, rows = sum_activations_stats([{"name": "fc", "act_dim": 256, "size": 1024}])
    >>> dims, size, rows[-1]["size"]
    (256, 1024, '1.000 KiB')
    """
    return _sum_sizes(activations, "act_dim", bar_length_max)


_SHARE = "size size_cum percentage size_bar"


def print_op_stats(flops: list[Row]) -> None:
    """Logs the rows of `sum_op_stats` as a table, at level INFO.

    Parameters
    ----------
    flops : list of dict of str
        Rows that `sum_op_stats` returned.

    Examples
    --------
    >>> row = {"name": "fc", "flops_num": 3000, "output_shapes": [(1, 10)]}
    >>> print_op_stats(sum_op_stats([row])[1])
    """
    fields = "receptive_field stride " if _shows_receptive_fields else ""
    header = f"name class_name input_shapes output_shapes {fields}flops flops_cum percentage bar"
    logger.info("flops stats: \n%s", _text_of(dict2table(flops, header.split())))


def print_param_stats(params: list[Row]) -> None:
    """Logs the rows of `sum_param_stats` as a table, at level INFO.

    Parameters
    ----------
    params : list of dict of str
        Rows that `sum_param_stats` returned.

    Examples
    --------
    >>> row = {"name": "fc-w", "param_dim": 256, "size": 1024}
    >>> print_param_stats(sum_param_stats([row])[2])
    """
    header = f"name dtype shape mean std param_dim nbits {_SHARE}"
    logger.info("param stats: \n%s", _text_of(dict2table(params, header.split())))


def print_activations_stats(activations: list[Row], has_input: bool = False) -> None:
    """Logs the rows of `sum_activations_stats` as a table, at level INFO.

    Parameters
    ----------
    activations : list of dict of str
        Rows that `sum_activations_stats` returned.
    has_input : bool
        Whether to show means and deviations.

    Examples
    --------
    >>> row = {"name": "fc", "act_dim": 256, "size": 1024}
    >>> print_activations_stats(sum_activations_stats([row])[2])
    """
    header = f"name class_name dtype shape {'mean std ' if has_input else ''}nbits act_dim {_SHARE}"
    logger.info("activations stats: \n%s", _text_of(dict2table(activations, header.split())))


def print_summary(**kwargs: Any) -> None:
    """Logs names and values as a table, at level INFO.

    Parameters
    ----------
    **kwargs : object
        Values by the names that the table shows.

    Examples
    --------
    >>> print_summary(total_flops="3.456 KOPs", total_param_size="864.000 B")
    """
    logger.info("summary\n%s", _text_of([["item", "value"], *map(list, kwargs.items())]))


# -- a model -------------------------------------------------------------------------------------


def _as_inputs(inputs: Any, input_shapes: Any) -> list[Any]:
    """Arguments of the model: those given, else random numbers of the shapes."""
    if inputs is None and input_shapes is None:
        raise ValueError("module_stats: give inputs, or input_shapes for random ones")
    if inputs is None:
        shapes = [input_shapes] if isinstance(input_shapes[0], int) else input_shapes
        return [Tensor(np.random.random(shape).astype(np.float32)) for shape in shapes]

    def tensor(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: tensor(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)) and any(isinstance(p, (np.ndarray, Tensor, dict)) for p in value):
            return type(value)(map(tensor, value))
        return value if isinstance(value, Tensor) else Tensor(value)

    return [tensor(value) for value in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]


class _Recorder:
    """Rows of the layers that a run of the model calls; parameters of each layer once."""

    def __init__(self, model: M.Module, has_input: bool) -> None:
        self.params: list[Row] = []
        self.flops: list[Row] = []
        self.activations: list[Row] = []
        self._has_input = has_input
        self._seen: set[int] = set()
        watched = M.Module if _shows_receptive_fields else tuple(hook_modules)
        self.handles = [
            module.register_forward_hook(partial(self._note, name))
            for name, module in model.named_modules()
            if isinstance(module, watched)
        ]

    def _note(self, name: str, module: M.Module, inputs: Any, outputs: Any) -> None:
        given, made = tensors_in(inputs), tensors_in(outputs)
        if not isinstance(module, tuple(hook_modules)):
            if not any(True for _ in module.children()):  # a container's results are noted by its layers
                _note_fields(module, given, made)
            return
        names = {"name": name, "class_name": type(module).__name__}
        if (row := get_op_stats(module, given, made)) is not None:
            self.flops.append({**row, **names})
        self.activations.extend({**get_activation_stats(y, self._has_input), **names} for y in made)
        for attribute in ("weight", "bias"):
            param = getattr(module, attribute, None)
            if isinstance(param, Tensor) and id(param) not in self._seen:
                self._seen.add(id(param))
                self.params.append({**get_param_stats(param), "name": f"{name}-{attribute[0]}"})


def module_stats(
    model: M.Module,
    inputs: object = None,
    input_shapes: object = None,
    cal_params: bool = True,
    cal_flops: bool = True,
    cal_activations: bool = True,
    logging_to_stdout: bool = True,
    bar_length_max: int = 20,
) -> tuple[Any, Any]:
    """Runs ``model`` once in evaluation mode and counts its layers; the modes of its modules are
    kept.

    Parameters
    ----------
    model : Module
        Module whose layers are counted.
    inputs : object
        Arrays or tensors (also in dicts and lists), one for each argument.
    input_shapes : object
        Shapes of random float32 inputs, where none are given.
    cal_params, cal_flops, cal_activations : bool
        Whether to count parameters, operations and results.
    logging_to_stdout : bool
        Whether to log each table, not the summary alone.
    bar_length_max : int
        Length of the longest bar, in characters.

    Returns
    -------
    totals : total_stats
        Sums.
    rows : stats
        Lists of dicts, a dict for each layer.

    Raises
    ------
    ValueError
        Without inputs.

    Notes
    -----
    A multiply-add counts as one operation.

    Examples
    --------
    >>> import megengine.module as M
    >>> net = M.Sequential(M.Conv2d(3, 8, 3, bias=False), M.ReLU())
    >>> total, rows = module_stats(net, input_shapes=[(1, 3, 6, 6)], logging_to_stdout=False)
    >>> total.flops, total.param_dims, total.act_size  # 4 * 4 * 8 results of 27 taps each
    (3456, 216, 512)
    >>> rows.flops[0]["name"], rows.flops[0]["output_shapes"]
    ('0', [(1, 8, 4, 4)])
    """
    arguments = _as_inputs(inputs, input_shapes)
    has_input = inputs is not None
    recorder = _Recorder(model, has_input)
    _fields.update((id(x), (x, (1,), (1,))) for x in tensors_in(arguments))
    try:
        with set_module_mode_safe(model):
            model(*arguments)
    finally:
        _fields.clear()
        for handle in recorder.handles:
            handle.remove()
    flops = recorder.flops if cal_flops else []
    activations = recorder.activations if cal_activations else []
    summary: Row = {"#params": len(recorder.params)}
    flops_total = param_dims = param_size = act_dims = act_size = 0
    if cal_params:
        param_dims, param_size, _ = sum_param_stats(recorder.params, bar_length_max)
        summary |= {"total_param_dims": sizeof_fmt(param_dims, ""), "total_param_size": sizeof_fmt(param_size)}
        if logging_to_stdout:
            print_param_stats(recorder.params)
    if cal_flops:
        flops_total, _ = sum_op_stats(flops, bar_length_max)
        summary["total_flops"] = _as_ops(flops_total)
        if logging_to_stdout:
            print_op_stats(flops)
    if cal_activations:
        act_dims, act_size, _ = sum_activations_stats(activations, bar_length_max)
        summary |= {"total_act_dims": sizeof_fmt(act_dims, ""), "total_act_size": sizeof_fmt(act_size)}
        if logging_to_stdout:
            print_activations_stats(activations, has_input)
    if cal_flops and param_size:
        summary["flops/param_size"] = f"{flops_total / param_size:.3f}"
    print_summary(**summary)
    total = total_stats(param_size, param_dims, flops_total, act_size, act_dims)
    return total, stats(recorder.params, flops, activations)
