"""Colour spaces. Images are [n, h, w, channels]; integer images are rounded and clipped."""

import math

import numpy as np
from numpy.typing import ArrayLike

from ..core import apply_const, ops
from ..core.tensor.array_method import require_tensors
from ..tensor import Tensor
from ._sample import back_to_dtype

_GRAY = np.array([[0.299, 0.587, 0.114]])
_SWAP = np.eye(3)[::-1]
# ITU-R BT.601, as analog YUV: Y = gray, U = 0.492 (B - Y), V = 0.877 (R - Y), both about `mid`.
_YUV = np.array([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.100]])
_RGB = np.array([[1, 0, 1.14], [1, -0.395, -0.581], [1, 2.032, 0]])
# Full-range BT.601 of YCrCb: R = Y + 1.403 Cr, G = Y - 0.714 Cr - 0.344 Cb, B = Y + 1.773 Cb.
_FROM_YCRCB = np.array([[1, 1.403, 0], [1, -0.714, -0.344], [1, 0, 1.773]])
# Video-range BT.601 of planar formats: Y from 16, U and V about 128.
_FROM_VIDEO = np.array([[1.164, 0, 1.596], [1.164, -0.391, -0.813], [1.164, 2.018, 0]])
_PICK = np.eye(3, 4)

# mode: (matrix, number subtracted from the input first, number added to the result last), in units of `mid`
_MATRICES = {
    "RGB2GRAY": (_GRAY, None, None),
    "BGR2GRAY": (_GRAY[:, ::-1], None, None),
    "RGBA2GRAY": (_GRAY @ _PICK, None, None),
    "RGB2BGR": (_SWAP, None, None),
    "BGR2RGB": (_SWAP, None, None),
    "RGBA2RGB": (_PICK, None, None),
    "RGBA2BGR": (_SWAP @ _PICK, None, None),
    "GRAY2RGB": (np.ones((3, 1)), None, None),
    "RGB2YUV": (_YUV, None, (0, 1, 1)),
    "YUV2RGB": (_RGB, (0, 1, 1), None),
    "YCrCb2RGB": (_FROM_YCRCB, (0, 1, 1), None),
    "YCrCb2BGR": (_SWAP @ _FROM_YCRCB, (0, 1, 1), None),
}
_PLANAR = ("NV21", "NV12", "YV12", "YU12")


def cvt_color(inp: Tensor, mode: str = "") -> Tensor:
    """Converts images from one colour space to another.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, h, w, channels], an integer or a float dtype.
    mode : str
        "RGB2GRAY", "BGR2RGB", "RGB2YUV", "YCrCb2RGB" and the like; or "YUV2RGB", "YUV2BGR" or
        "YUV2GRAY" with one of the planar formats NV12, NV21, YU12 and YV12, such as "YUV2RGB_NV12",
        which reads images [n, h * 3 / 2, w, 1].

    Returns
    -------
    Tensor
        [n, h, w, channels of the new space], the dtype of ``inp``; integers are rounded and clipped
        to their range.

    Raises
    ------
    ValueError
        For an unknown mode; it lists the modes.

    Notes
    -----
    Chroma is centred on 128 in integer images and on 0.5 in float images.

    References
    ----------
    ITU-R BT.601.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> red = Tensor([[[[1.0, 0.0, 0.0]]]])
    >>> F.vision.cvt_color(red, "RGB2GRAY").numpy()
    array([[[[0.299]]]], dtype=float32)
    >>> F.vision.cvt_color((red * 255).astype("uint8"), "RGB2GRAY").numpy()
    array([[[[76]]]], dtype=uint8)
    """
    require_tensors("cvt_color", inp)
    names = {name.upper(): name for name in _MATRICES}
    key = str(mode).upper()
    mid = 128.0 if inp.dtype.kind in "iu" else 0.5
    x = ops.cast(inp, dtype="float32")
    if key in names:
        matrix, before, after = _MATRICES[names[key]]
        y = _apply_matrix(x, matrix, before, after, mid)
    else:
        base, _, planes = key.removeprefix("BT601_").partition("_")
        if planes not in _PLANAR or base not in ("YUV2GRAY", "YUV2RGB", "YUV2BGR"):
            raise ValueError(
                f"cvt_color: no mode {mode!r}; there are {', '.join(_MATRICES)},\n"
                f"  and YUV2RGB, YUV2BGR, YUV2GRAY with _{', _'.join(_PLANAR)}, for example YUV2RGB_NV12"
            )
        y = _from_planes(x, base, planes, mid)
    return back_to_dtype(y, inp.dtype)


def _apply_matrix(
    x: Tensor, matrix: np.ndarray, before: ArrayLike | None, after: ArrayLike | None, mid: float
) -> Tensor:
    if x._tuple_shape[-1] != matrix.shape[1]:
        raise ValueError(
            f"cvt_color: images have {x._tuple_shape[-1]} channels, this mode takes {matrix.shape[1]}"
        )
    if before is not None:
        x = ops.sub(x, apply_const(np.array(before, np.float32) * np.float32(mid)))
    shape = x._tuple_shape
    flat = ops.reshape(x, shape=(math.prod(shape[:-1]), shape[-1]))
    y = ops.matmul(flat, apply_const(matrix.astype(np.float32)), transpose_b=True)
    y = ops.reshape(y, shape=shape[:-1] + (matrix.shape[0],))
    return (
        y
        if after is None
        else ops.add(y, apply_const(np.array(after, np.float32) * np.float32(mid)))
    )


def _from_planes(x: Tensor, base: str, planes: str, mid: float) -> Tensor:
    n, rows, w, c = x._tuple_shape
    h = rows * 2 // 3
    if c != 1 or rows % 3 or h % 2 or w % 2:
        raise ValueError(
            f"cvt_color: planar images are [n, h * 3 / 2, w, 1] with even h and w, not {[n, rows, w, c]}"
        )
    luma = ops.slice(x, begin=(0, 0, 0, 0), end=(n, h, w, 1), step=(1, 1, 1, 1))
    if base == "YUV2GRAY":
        return luma
    chroma = ops.reshape(
        ops.slice(x, begin=(0, h, 0, 0), end=(n, rows, w, 1), step=(1, 1, 1, 1)),
        shape=(n, h * w // 2),
    )
    if planes in ("NV12", "NV21"):  # interleaved pairs
        pairs = ops.reshape(chroma, shape=(n, h // 2, w // 2, 2))
    else:  # one plane after the other
        pairs = ops.transpose(ops.reshape(chroma, shape=(n, 2, h // 2, w // 2)), perm=(0, 2, 3, 1))
    if planes in ("NV21", "YV12"):  # V first
        pairs = ops.slice(
            pairs, begin=(0, 0, 0, 1), end=(n, h // 2, w // 2, -1), step=(1, 1, 1, -1)
        )
    pairs = ops.reshape(pairs, shape=(n, h // 2, 1, w // 2, 1, 2))
    pairs = ops.reshape(
        ops.broadcast_to(pairs, shape=(n, h // 2, 2, w // 2, 2, 2)), shape=(n, h, w, 2)
    )
    matrix = _FROM_VIDEO if base == "YUV2RGB" else _SWAP @ _FROM_VIDEO
    return _apply_matrix(ops.concat(luma, pairs, axis=3), matrix, (0.125, 1, 1), None, mid)
