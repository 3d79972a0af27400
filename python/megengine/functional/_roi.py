"""Regions of interest: sampling boxes of feature maps, and non-maximum suppression.

rois: [m, 5], each (batch index, x1, y1, x2, y2) in image units; feature map units are image units *
scale.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ..core import apply_const, ops
from ..core.tensor.array_method import require_tensors
from ..core.tensor.shapes import as_pair, cut
from ..tensor import Tensor
from ._sample import sample

IntPair = int | Sequence[int]  # one for both axes, or one each


def nms(boxes: Tensor, scores: Tensor, iou_thresh: float, max_output: int | None = None) -> Tensor:
    """Finds the boxes that non-maximum suppression keeps: a box is dropped when a kept box with a
    higher score overlaps it by more than ``iou_thresh``.

    Parameters
    ----------
    boxes : Tensor
        [n, 4] as (x1, y1, x2, y2).
    scores : Tensor
        Score of each box, [n].
    iou_thresh : float
        Intersection over union, 0 to 1, above which a box is dropped.
    max_output : int or None
        How many boxes to keep at most; traced functions must give it.

    Returns
    -------
    Tensor
        Int32 indices of the boxes, the highest score first; without a gradient.

    Raises
    ------
    AssertionError
        For other shapes.
    ValueError
        For an ``iou_thresh`` beyond 0 to 1, or a ``max_output`` below 0.

    See Also
    --------
    functional.vision.batched_nms : Only boxes of one class drop each other.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> boxes = Tensor([[0.0, 0.0, 9.0, 9.0], [1.0, 1.0, 9.0, 9.0], [20.0, 20.0, 29.0, 29.0]])
    >>> F.vision.nms(boxes, Tensor([0.6, 0.9, 0.3]), iou_thresh=0.5).numpy()
    array([1, 2], dtype=int32)
    """
    require_tensors("nms", boxes, scores)
    if boxes.ndim != 2 or boxes._tuple_shape[1] != 4:
        raise AssertionError(f"the expected shape of boxes is (N, 4), nms got {boxes._tuple_shape}")
    if scores.ndim != 1:
        raise AssertionError(f"nms: scores has {scores.ndim} axes, not 1")
    if boxes._tuple_shape[0] != scores._tuple_shape[0]:
        raise AssertionError(f"nms: {boxes._tuple_shape[0]} boxes but {scores._tuple_shape[0]} scores")
    threshold = float(iou_thresh)
    if not 0 <= threshold <= 1:
        raise ValueError(f"nms: iou_thresh is {threshold}\n  fix: give an intersection over union from 0 to 1, as 0.5")
    limit = boxes._tuple_shape[0] if max_output is None else int(max_output)
    if limit < 0:
        raise ValueError(f"nms: max_output is {limit}\n  fix: give how many boxes to keep at most, or None for all")
    return ops.nms(boxes.detach(), scores.detach(), iou_thresh=threshold, max_output=limit)


def batched_nms(
    boxes: Tensor, scores: Tensor, classes: Tensor, iou_thresh: float, max_output: int | None = None
) -> Tensor:
    """Finds the boxes that non-maximum suppression keeps when only boxes of one class drop each
    other.

    Parameters
    ----------
    boxes : Tensor
        [n, 4] as (x1, y1, x2, y2).
    scores : Tensor
        Score of each box, [n].
    classes : Tensor
        [n], integers: the class, or the image, of each box.
    iou_thresh : float
        Intersection over union, 0 to 1, above which a box is dropped.
    max_output : int or None
        How many boxes of all classes together to keep at most; traced functions must give it.

    Returns
    -------
    Tensor
        Int32 indices of the boxes, the highest score first; without a gradient.

    Raises
    ------
    AssertionError
        For other shapes.

    Notes
    -----
    Boxes of each class are moved to a place of their own, as torchvision does it. With thousands of
    classes float32 has few digits left for the box.

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> boxes = Tensor([[0.0, 0.0, 9.0, 9.0], [1.0, 1.0, 9.0, 9.0], [0.0, 1.0, 9.0, 9.0]])
    >>> F.vision.batched_nms(boxes, Tensor([0.6, 0.9, 0.3]), Tensor([0, 1, 1]), iou_thresh=0.5).numpy()
    array([1, 0], dtype=int32)
    """
    require_tensors("batched_nms", boxes, scores, classes)
    if classes._tuple_shape != scores._tuple_shape:
        raise AssertionError(f"batched_nms: {list(scores._tuple_shape)} scores but {list(classes._tuple_shape)} classes")
    if not boxes.size:
        return nms(boxes, scores, iou_thresh, max_output)
    low, high = (op(boxes, axes=(0, 1), keepdims=False) for op in (ops.reduce_min, ops.reduce_max))
    apart = ops.mul(ops.cast(classes, dtype="float32"), ops.add(ops.sub(high, low), 1.0))
    return nms(ops.add(boxes, ops.reshape(apart, shape=(*classes._tuple_shape, 1))), scores, iou_thresh, max_output)


def roi_align(
    inp: Tensor,
    rois: Tensor,
    output_shape: IntPair,
    mode: str = "average",
    spatial_scale: float = 1.0,
    sample_points: IntPair = 2,
    aligned: bool = True,
) -> Tensor:
    """Resamples boxes of feature maps to ``output_shape``: each bin is the mean of bilinear
    samples. Pixels outside of the map are 0.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    rois : Tensor
        [m, 5], each (index in the batch, x1, y1, x2, y2) in pixels of the image.
    output_shape : int or sequence of int
        (ph, pw), or one number for both.
    mode : str
        "average", or "max" of the samples.
    spatial_scale : float
        Pixels of the feature map per pixel of the image.
    sample_points : int or sequence of int
        Samples per bin along (y, x), or one number for both; at least 1.
    aligned : bool
        Whether to shift boxes by half a pixel, so that the centre of the first pixel is (0.5, 0.5).

    Returns
    -------
    Tensor
        [m, c, ph, pw]; no gradient flows to rois.

    Raises
    ------
    ValueError
        For an unknown mode or no samples.

    See Also
    --------
    functional.vision.roi_pooling : Takes pixels instead of interpolated samples.

    References
    ----------
    He et al., 2017, "Mask R-CNN".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = F.arange(16).reshape(1, 1, 4, 4)
    >>> F.vision.roi_align(x, Tensor([[0.0, 0.0, 0.0, 4.0, 4.0]]), 2).numpy()
    array([[[[ 2.5,  4.5],
             [10.5, 12.5]]]], dtype=float32)
    """
    return aligned_boxes(inp, rois, output_shape, mode, spatial_scale, sample_points, aligned, _faded_sample)


def aligned_boxes(
    inp: Tensor, rois: Tensor, output_shape: IntPair, mode: str, spatial_scale: float, sample_points: IntPair, aligned: bool,
    sample_at: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Computes `roi_align`; ``sample_at(inp, y, x, image)`` samples, and decides what lies beyond
    the border of the map.
    """
    require_tensors("roi_align", inp, rois)
    if mode.lower() not in ("max", "average"):
        raise ValueError(f"roi_align: mode {mode!r} is neither 'max' nor 'average'")
    ph, pw = as_pair(output_shape, "roi_align: output_shape")
    sh, sw = as_pair(sample_points, "roi_align: sample_points")
    if min(sh, sw) < 1:
        raise ValueError(
            f"roi_align: sample_points {sample_points!r} takes no samples\n"
            "  fix: give the pixels per bin of the largest box, such as 2"
        )
    batch, x1, y1, x2, y2 = (cut(rois.detach(), 1, i, i + 1) for i in range(5))
    shift = 0.5 if aligned else 0.0
    x1, y1, x2, y2 = (ops.sub(ops.mul(v, float(spatial_scale)), shift) for v in (x1, y1, x2, y2))
    width, height = ops.sub(x2, x1), ops.sub(y2, y1)
    if not aligned:
        width, height = ops.maximum(width, 1.0), ops.maximum(height, 1.0)
    y = _bin_samples(y1, height, ph, sh)  # [m, ph * sh]
    x = _bin_samples(x1, width, pw, sw)
    m = rois._tuple_shape[0]
    y = ops.broadcast_to(ops.reshape(y, shape=(m, ph * sh, 1)), shape=(m, ph * sh, pw * sw))
    x = ops.broadcast_to(ops.reshape(x, shape=(m, 1, pw * sw)), shape=(m, ph * sh, pw * sw))
    values = sample_at(inp, y, x, ops.reshape(ops.cast(batch, dtype="int32"), shape=(m,)))
    c = inp._tuple_shape[1]
    values = ops.reshape(values, shape=(m, ph, sh, pw, sw, c))
    reduce = ops.reduce_max if mode.lower() == "max" else ops.reduce_mean
    return ops.transpose(reduce(values, axes=(2, 4), keepdims=False), perm=(0, 3, 1, 2))


def _bin_samples(start: Tensor, extent: Tensor, bins: int, points: int) -> Tensor:
    """Returns sample places along one axis: ``points`` evenly spread in each of ``bins``."""
    share = (np.arange(bins)[:, None] + (np.arange(points)[None, :] + 0.5) / points).reshape(
        1, -1
    ) / bins
    return ops.add(start, ops.mul(extent, apply_const(share.astype(np.float32))))


def _faded_sample(images: Tensor, y: Tensor, x: Tensor, batch: Tensor) -> Tensor:
    """Samples bilinearly, with 0 around the image."""
    return sample(images, y, x, "constant", batch=batch)


def clamped_sample(images: Tensor, y: Tensor, x: Tensor, batch: Tensor) -> Tensor:
    """Samples bilinearly, clamped to the image; more than one pixel outside it gives 0."""
    h, w = images._tuple_shape[2:]
    inside_y = ops.logical_and(ops.greater_equal(y, -1.0), ops.less_equal(y, float(h)))
    inside_x = ops.logical_and(ops.greater_equal(x, -1.0), ops.less_equal(x, float(w)))
    inside = ops.logical_and(inside_y, inside_x)
    y = ops.minimum(ops.maximum(y, 0.0), float(h - 1))
    x = ops.minimum(ops.maximum(x, 0.0), float(w - 1))
    values = sample(images, y, x, "replicate", batch=batch)
    mask = ops.cast(ops.reshape(inside, shape=inside._tuple_shape + (1,)), dtype=values.dtype.name)
    return ops.mul(values, mask)


def roi_pooling(
    inp: Tensor, rois: Tensor, output_shape: IntPair, mode: str = "max", scale: float = 1.0
) -> Tensor:
    """Resamples boxes of feature maps to ``output_shape``: each bin is the largest of its pixels.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    rois : Tensor
        [m, 5], each (index in the batch, x1, y1, x2, y2) in pixels of the image; after scaling
        corners are rounded to whole pixels, both included.
    output_shape : int or sequence of int
        (ph, pw), or one number for both.
    mode : str
        What a bin is of its pixels: "max" or "average".
    scale : float
        Pixels of the feature map per pixel of the image.

    Returns
    -------
    Tensor
        [m, c, ph, pw], 0 for empty bins; no gradient flows to rois.

    Raises
    ------
    ValueError
        For an unknown mode.

    References
    ----------
    Girshick, 2015, "Fast R-CNN".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x = F.arange(16).reshape(1, 1, 4, 4)
    >>> F.vision.roi_pooling(x, Tensor([[0.0, 0.0, 0.0, 3.0, 3.0]]), 2).numpy()
    array([[[[ 5.,  7.],
             [13., 15.]]]], dtype=float32)
    """
    require_tensors("roi_pooling", inp, rois)
    kind = mode.lower()
    if kind not in ("max", "average"):
        raise ValueError(f"only max/average mode is supported, roi_pooling got {mode!r}")
    ph, pw = as_pair(output_shape, "roi_pooling: output_shape")
    h, w = inp._tuple_shape[2:]
    m = rois._tuple_shape[0]
    batch, x1, y1, x2, y2 = (cut(rois.detach(), 1, i, i + 1) for i in range(5))
    x1, y1, x2, y2 = (ops.round(ops.mul(v, float(scale))) for v in (x1, y1, x2, y2))
    rows = _bin_mask(y1, y2, ph, h)  # [m, ph, h]
    cols = _bin_mask(x1, x2, pw, w)
    maps = ops.index_get(inp, ops.reshape(ops.cast(batch, dtype="int32"), shape=(m,)), axes=(0,))
    if kind == "average":
        return _mean_of_bins(maps, rows, cols)
    low = ops.full(shape=(), value=-3e38, dtype=maps.dtype.name, device=maps)
    bands = _joined([_masked_max(maps, rows, i, 2, low) for i in range(ph)], 2)  # [m, c, ph, w]
    bins = _joined([_masked_max(bands, cols, j, 3, low) for j in range(pw)], 3)
    empty = ops.less_equal(bins, -2e38)
    return ops.where(empty, ops.full(shape=(), value=0.0, dtype=maps.dtype.name, device=maps), bins)


def _joined(parts: list[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=axis)


def _bin_mask(first: Tensor, last: Tensor, bins: int, extent: int) -> Tensor:
    """Returns [m, bins, extent], bool: the pixels that each bin covers."""
    size = ops.true_div(ops.maximum(ops.add(ops.sub(last, first), 1.0), 1.0), float(bins))
    steps = np.arange(bins, dtype=np.float32)[None]
    begin = ops.add(ops.floor(ops.mul(size, apply_const(steps))), first)
    end = ops.add(ops.ceil(ops.mul(size, apply_const(steps + 1))), first)
    m = first._tuple_shape[0]
    begin, end = (ops.reshape(v, shape=(m, bins, 1)) for v in (begin, end))
    pixels = apply_const(np.arange(extent, dtype=np.float32)[None, None])
    return ops.logical_and(ops.greater_equal(pixels, begin), ops.less(pixels, end))


def _masked_max(x: Tensor, mask: Tensor, i: int, axis: int, low: Tensor) -> Tensor:
    m, _, extent = mask._tuple_shape
    own = ops.reshape(cut(mask, 1, i, i + 1), shape=(m, 1, extent, 1) if axis == 2 else (m, 1, 1, extent))
    return ops.reduce_max(ops.where(own, x, low), axes=(axis,), keepdims=True)


def _mean_of_bins(maps: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    m, ph, h = rows._tuple_shape
    pw, w = cols._tuple_shape[1:]

    def share(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
        mask = ops.cast(mask, dtype=maps.dtype.name)
        count = ops.maximum(ops.reduce_sum(mask, axes=(2,), keepdims=True), 1.0)
        return ops.reshape(ops.true_div(mask, count), shape=shape)

    bands = ops.matmul(share(rows, (m, 1, ph, h)), maps)
    return ops.matmul(bands, share(cols, (m, 1, pw, w)), transpose_b=True)


def deformable_psroi_pooling(
    inp: Tensor,
    rois: Tensor,
    trans: Tensor,
    no_trans: bool,
    part_size: int,
    pooled_h: int,
    pooled_w: int,
    sample_per_part: int,
    spatial_scale: float,
    trans_std: float = 0.1,
) -> Tensor:
    """Averages samples of feature maps inside boxes, in bins that learned offsets move.

    Parameters
    ----------
    inp : Tensor
        Tensor of shape [n, c, h, w], float dtype.
    rois : Tensor
        [m, 5], each (index in the batch, x1, y1, x2, y2) in pixels of the image.
    trans : Tensor
        Offsets, [m or more, 2 * k, part_size, part_size]. Row n belongs to box n and holds the
        offsets x and y of each of k classes, among which the channels are split evenly. Multiplied
        by trans_std they are in extents of the box.
    no_trans : bool
        Whether to ignore ``trans``.
    part_size : int
        Number of parts of a box along each axis that have an offset of their own.
    pooled_h, pooled_w : int
        Number of bins along height and width.
    sample_per_part : int
        Number of samples per bin along each axis.
    spatial_scale : float
        Number of pixels of the feature map per pixel of the image. Samples more than half a pixel
        outside of the map do not count.
    trans_std : float
        Factor that the offsets are multiplied by.

    Returns
    -------
    Tensor
        [m, c, pooled_h, pooled_w].

    References
    ----------
    Dai et al., 2017, "Deformable Convolutional Networks".

    Examples
    --------
    >>> from megengine import Tensor, functional as F
    >>> x, offsets = F.ones((1, 2, 8, 8)), F.zeros((1, 2, 3, 3))
    >>> box = Tensor([[0.0, 0.0, 0.0, 7.0, 7.0]])
    >>> F.deformable_psroi_pooling(x, box, offsets, False, 3, 3, 3, 4, spatial_scale=1.0).shape
    (1, 2, 3, 3)
    """
    require_tensors("deformable_psroi_pooling", inp, rois)
    m = rois._tuple_shape[0]
    c = inp._tuple_shape[1]
    batch, x1, y1, x2, y2 = (cut(rois.detach(), 1, i, i + 1) for i in range(5))
    x1, y1 = (ops.sub(ops.mul(ops.round(v), spatial_scale), 0.5) for v in (x1, y1))
    x2, y2 = (ops.sub(ops.mul(ops.add(ops.round(v), 1.0), spatial_scale), 0.5) for v in (x2, y2))
    width, height = ops.maximum(ops.sub(x2, x1), 0.1), ops.maximum(ops.sub(y2, y1), 0.1)
    batch = ops.reshape(ops.cast(batch, dtype="int32"), shape=(m,))
    if not no_trans and trans._tuple_shape[0] > m:
        trans = cut(trans, 0, 0, m)
    classes = 1 if no_trans else trans._tuple_shape[1] // 2
    outs = []
    for k in range(classes):
        dx = dy = None
        if not no_trans:
            dx, dy = (
                _part_offsets(trans, 2 * k + i, part_size, pooled_h, pooled_w, trans_std)
                for i in (0, 1)
            )
        y = _moved_samples(y1, height, pooled_h, sample_per_part, dy, 2, (pooled_h, pooled_w))
        x = _moved_samples(x1, width, pooled_w, sample_per_part, dx, 3, (pooled_h, pooled_w))
        first, last = k * c // classes, (k + 1) * c // classes
        maps = cut(inp, 1, first, last)
        outs.append(_mean_of_samples(maps, y, x, batch))
    return outs[0] if classes == 1 else ops.concat(*outs, axis=1)


def _part_offsets(trans: Tensor, channel: int, part: int, ph: int, pw: int, std: float) -> Tensor:
    """Returns [m, ph, pw]: the offsets of the part that each bin lies in."""
    m = trans._tuple_shape[0]
    own = ops.slice(
        trans, begin=(0, channel, 0, 0), end=(m, channel + 1, part, part), step=(1, 1, 1, 1)
    )
    own = ops.reshape(own, shape=(m, part, part))
    rows = (np.arange(ph) * part // ph).astype(np.int32)[:, None]
    cols = (np.arange(pw) * part // pw).astype(np.int32)[None, :]
    return ops.mul(
        ops.index_get(own, apply_const(rows), apply_const(cols), axes=(1, 2)), float(std)
    )


def _moved_samples(
    start: Tensor,
    extent: Tensor,
    bins: int,
    points: int,
    offset: Tensor | None,
    axis: int,
    pooled: tuple[int, ...],
) -> Tensor:
    """Returns [m, ph, pw, points]: places along one axis (2: rows, 3: columns)."""
    m = start._tuple_shape[0]
    share = (np.arange(bins)[:, None] + np.arange(points)[None, :] / points) / bins
    share = share.reshape((1, bins, 1, points) if axis == 2 else (1, 1, bins, points)).astype(
        np.float32
    )
    start, extent = (ops.reshape(v, shape=(m, 1, 1, 1)) for v in (start, extent))
    place = ops.add(start, ops.mul(extent, apply_const(share)))
    if offset is not None:
        place = ops.add(place, ops.mul(ops.reshape(offset, shape=(m,) + pooled + (1,)), extent))
    return ops.broadcast_to(place, shape=(m,) + pooled + (points,))


def _mean_of_samples(maps: Tensor, y: Tensor, x: Tensor, batch: Tensor) -> Tensor:
    m, ph, pw, points = y._tuple_shape
    h, w = maps._tuple_shape[2:]
    shape = (m, ph, pw, points, points)
    y = ops.broadcast_to(ops.reshape(y, shape=(m, ph, pw, points, 1)), shape=shape)
    x = ops.broadcast_to(ops.reshape(x, shape=(m, ph, pw, 1, points)), shape=shape)
    inside_y = ops.logical_and(ops.greater_equal(y, -0.5), ops.less_equal(y, h - 0.5))
    inside = ops.logical_and(
        inside_y, ops.logical_and(ops.greater_equal(x, -0.5), ops.less_equal(x, w - 0.5))
    )
    inside = ops.cast(ops.reshape(inside, shape=shape + (1,)), dtype="float32")
    y, x = ops.minimum(ops.maximum(y, 0.0), h - 1.0), ops.minimum(ops.maximum(x, 0.0), w - 1.0)
    total = ops.reduce_sum(
        ops.mul(sample(maps, y, x, "replicate", batch=batch), inside), axes=(3, 4), keepdims=False
    )
    count = ops.maximum(ops.reduce_sum(inside, axes=(3, 4), keepdims=False), 1.0)
    return ops.transpose(ops.true_div(total, count), perm=(0, 3, 1, 2))
