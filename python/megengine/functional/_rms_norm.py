"""Root mean square normalization."""

from collections.abc import Sequence

from ..core import ops
from ..core.tensor.amp import to_high as _to_high
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import as_ints
from ..tensor import Tensor

_EPS = 2.0**-23  # the distance of float32 numbers at 1


def rms_norm(
    inp: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divides by the root of the mean square over the last axes: ``x / sqrt(mean(x ** 2) + eps) *
    weight``, a `layer_norm` without a mean and a bias.

    Parameters
    ----------
    inp : Tensor
        [..., *normalized_shape], float dtype; halves are squared and summed in float32.
    normalized_shape : int or sequence of int
        The extents of the last axes.
    weight : Tensor or None
        Factor of each element, of shape normalized_shape; None is 1.
    eps : float or None
        Added to the mean square; None is float32's machine epsilon, 2 ** -23.

    Returns
    -------
    Tensor
        The shape and dtype of ``inp``.

    Raises
    ------
    ValueError
        For a shape that does not end in normalized_shape.

    References
    ----------
    Zhang and Sennrich, 2019, "Root Mean Square Layer Normalization".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> F.rms_norm(Tensor([[3.0, 4.0], [0.0, 100.0]]), 2).numpy().round(4)
    array([[0.8485, 1.1314],
           [0.    , 1.4142]], dtype=float32)
    """
    require_tensors("rms_norm", inp)
    inp, weight = _to_high(inp), _to_high(weight)
    shape = as_ints(normalized_shape, "rms_norm: normalized_shape")
    if not shape or inp._tuple_shape[-len(shape) :] != shape:
        raise ValueError(
            f"rms_norm: inp has shape {list(inp._tuple_shape)}, which does not end in {list(shape)}\n"
            "  fix: normalized_shape of the layer must be the last extents of its input"
        )
    x = inp if inp.dtype.name == "float32" else ops.cast(inp, dtype="float32")
    axes = tuple(range(inp.ndim - len(shape), inp.ndim))
    squares = ops.reduce_mean(ops.square(x), axes=axes, keepdims=True)
    y = ops.true_div(x, ops.sqrt(ops.add(squares, _EPS if eps is None else float(eps))))
    y = y if weight is None else ops.mul(y, weight)
    return y if y.dtype == inp.dtype or inp.dtype.kind in "iub" else ops.cast(y, dtype=inp.dtype.name)
