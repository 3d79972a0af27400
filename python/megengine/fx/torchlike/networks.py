"""Functions of neural networks, with the arguments of torch's. Inputs have a batch axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import DTypeLike

from ... import functional as F
from ...core import ops
from ...tensor import Tensor
from .._intercept import wrap

Sizes = int | Sequence[int]

# -- linear maps -------------------------------------------------------------------------------------


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    product = F.matmul(mat1, mat2)
    return input * beta + (product if alpha == 1 else product * alpha)


@wrap
def grouped_mm(mat_a: Tensor, mat_b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DTypeLike | None = None) -> Tensor:
    """The products of a mixture's experts: group e of the axis that both share, or that only one
    has, ends at offs[e]. ValueError for a bias, which torch refuses, too.
    """
    if bias is not None:
        raise ValueError("grouped_mm: there is no bias")
    product = F.matmul(mat_a, mat_b) if offs is None else _by_groups(mat_a, mat_b, offs.astype("int32"))
    return product if out_dtype is None else product.astype(out_dtype)


def _by_groups(mat_a: Tensor, mat_b: Tensor, ends: Tensor) -> Tensor:
    if mat_a.ndim == 2:
        return ops.grouped_matmul(mat_a, mat_b, ends)
    # groups of columns are groups of rows of the transposed product
    return F.transpose(ops.grouped_matmul(mat_b, mat_a, ends, transpose_a=1, transpose_b=1), (1, 0))


def einsum(equation, *operands):
    given = operands[0] if isinstance(operands[0], (tuple, list)) else operands
    return F.einsum(equation, *given)


@wrap
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table. IndexError for an index that is negative or too large: torch does not count
    from the end here.
    """
    if max_norm is not None:
        raise ValueError("max_norm renormalizes the table in place, which is not supported")
    if scale_grad_by_freq:
        raise ValueError("scale_grad_by_freq is not supported")
    return _looked_up("embedding", input, weight, lambda places: F.embedding(places, weight, padding_idx, sparse=sparse))


def _looked_up(op: str, input: Tensor, weight: Tensor, look_up: Callable[[Tensor], Tensor]) -> Tensor:
    rows = weight._tuple_shape[0]
    # a place before the first row; it does not count from the end
    places = F.where(input < 0, input - rows, input)
    try:
        return look_up(places)
    except IndexError:
        outside = [place for place in input.numpy().reshape(-1).tolist() if not 0 <= place < rows]
        raise IndexError(f"{op}: index {outside[0]} is out of range: the table has {rows} rows\n  fix: give indices from 0 to {rows - 1}") from None


# -- convolutions ------------------------------------------------------------------------------------

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _one(value: Any) -> Any:
    """Returns an argument of conv1d as one int, or as the name of the padding."""
    return value[0] if isinstance(value, (tuple, list)) else value


def _convolution(rank: int):
    def convolution(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        settings: Any = (stride, padding, dilation)
        if rank == 1:
            settings = map(_one, settings)
        weight, bias = _parameters(weight, bias, groups, rank)
        return _CONVOLUTIONS[rank](input, weight, bias, *settings, groups)

    return convolution


def _parameters(weight, bias, groups, rank):
    """Returns weight and bias in the shapes that our functions take."""
    weight = weight if groups == 1 else grouped(weight, groups)
    return weight, bias if bias is None else F.reshape(bias, (1, -1) + (1,) * rank)


conv1d, conv2d, conv3d = _convolution(1), _convolution(2), _convolution(3)


@wrap
def grouped(weight: Tensor, groups: int) -> Tensor:
    """Weights of a grouped convolution with an axis for the groups in front."""
    first, *rest = weight._tuple_shape
    return weight.reshape(groups, first // groups, *rest)


def _transposed(rank: int):
    function: Any = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[rank]

    def transposed(
        input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
    ):
        weight, bias = _parameters(weight, bias, groups, rank)
        return function(input, weight, bias, stride, padding, output_padding, dilation, groups)

    return transposed


conv_transpose1d, conv_transpose2d, conv_transpose3d = _transposed(1), _transposed(2), _transposed(3)




# -- normalization -----------------------------------------------------------------------------------


def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    given = {"training": training, "momentum": 1 - momentum, "eps": eps}
    return F.batch_norm(input, running_mean, running_var, weight, bias, **given)


def _scaled(y: Any, weight: Any, bias: Any) -> Any:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if weight is not None and bias is not None:
        return F.layer_norm(input, normalized_shape, True, weight, bias, eps)
    return _scaled(F.layer_norm(input, normalized_shape, False, eps=eps), weight, bias)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    return F.rms_norm(input, tuple(normalized_shape), weight, eps)


@wrap
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of a table."""
    if max_norm is not None or scale_grad_by_freq:
        raise ValueError("max_norm or scale_grad_by_freq")
    if include_last_offset and offsets is not None:
        offsets = offsets[:-1]
    given = (offsets, mode, per_sample_weights, padding_idx, sparse)
    return _looked_up("embedding_bag", input, weight, lambda places: F.embedding_bag(places, weight, *given))


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    return F.unfold(input, kernel_size, dilation, padding, stride)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    return F.fold(input, output_size, kernel_size, dilation, padding, stride)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    return F.group_norm(input, num_groups, weight is not None, weight, bias, eps)


@wrap
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel of each sample by its own statistics, or by the running ones."""
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    return F.instance_norm(input, weight is not None, weight, bias, eps)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    return F.local_response_norm(input, size, k, alpha / size, beta)


# -- attention ---------------------------------------------------------------------------------------


def attended(scores: Tensor, value: Tensor, dropout_p: float) -> tuple[Tensor, Tensor]:
    """Returns softmax(scores) @ value, and the weights."""
    weights = F.softmax(scores, axis=-1)
    if dropout_p:
        weights = F.dropout(weights, dropout_p)
    return F.matmul(weights, value), weights


def one_hot(input, num_classes=-1):
    if num_classes == -1:
        raise ValueError("the number of classes depends on the values; pass num_classes")
    return F.one_hot(input, num_classes)


FUNCTIONS = {
    "linear": lambda input, weight, bias=None: F.linear(input, weight, bias),
    "matmul": lambda input, other: F.matmul(input, other),
    "addmm": addmm,
    "outer": lambda input, vec2: F.expand_dims(input, -1) * vec2,
    "einsum": einsum, "_grouped_mm": grouped_mm, "grouped_mm": grouped_mm,
    "embedding": embedding, "embedding_bag": embedding_bag, "unfold": unfold, "fold": fold,
    "bilinear": lambda input1, input2, weight, bias=None: F.bilinear(input1, input2, weight, bias),
    "one_hot": one_hot,
    "conv1d": conv1d, "conv2d": conv2d, "conv3d": conv3d, "conv_transpose1d": conv_transpose1d,
    "conv_transpose2d": conv_transpose2d, "conv_transpose3d": conv_transpose3d,
    "batch_norm": batch_norm, "layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm,
    "instance_norm": instance_norm, "local_response_norm": local_response_norm,
    "scaled_dot_product_attention": F.scaled_dot_product_attention,
}  # fmt: skip
