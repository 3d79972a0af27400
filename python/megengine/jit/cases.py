"""Test cases inside dumped models: inputs, and the outputs that a runtime must reproduce."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._core import Model, ModelFile
from ..logger import get_logger
from ..tensor import Tensor
from ..utils._opencv import opencv


def _random(text: str, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Draws the uniform numbers of ``#rand(lo, hi[, shape...])``."""
    try:
        low, high, *extents = (float(part) for part in text[len("#rand(") : -1].split(","))
    except ValueError:
        raise ValueError(
            f"dump: input_data of {name} must be '#rand(lo, hi[, shape...])', got {text!r}"
        ) from None
    shape = tuple(int(extent) for extent in extents) or shape
    return np.random.uniform(low, high, shape).astype(dtype)


def _image(path: str, shape: tuple[int, ...], resize: bool) -> np.ndarray:
    """An image file as an array [1, channels, height, width], or [1, height, width, channels]."""
    cv2 = opencv()
    channels_last = len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
    height, width, channels = (
        (shape[1], shape[2], shape[3]) if channels_last else (shape[2], shape[3], shape[1])
    )
    image = cv2.imread(path, cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR)
    if image is None:
        raise ValueError(f"dump: {os.path.basename(path)} is not an image")
    if resize:
        image = cv2.resize(image, (width, height))
    image = image.reshape(*image.shape[:2], channels)
    return image[None] if channels_last else image.transpose(2, 0, 1)[None]


def _array(
    value: Any,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    resize: bool,
    transform: Callable[..., Any] | None,
) -> np.ndarray:
    if isinstance(value, str) and value.startswith("#rand(") and value.endswith(")"):
        array = _random(value, name, dtype, shape)
    elif isinstance(value, str) and value.endswith(".npy"):
        array = np.load(value, allow_pickle=False)
    elif isinstance(value, str):
        array = _image(value, shape, resize)
        if transform is not None:
            array = np.asarray(transform(array))
    else:
        array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    array = array.astype(dtype)
    if array.shape != shape:
        raise ValueError(
            f"dump: input_data of {name} has shape {array.shape}, the model has {shape}\n  fix: use resize_input=True for images"
        )
    return array


def _lines(input_data: Any) -> Iterator[str | Any]:
    """Returns one entry for each case. "@list" names a file with one case a line."""
    for entry in input_data if isinstance(input_data, (list, tuple)) else [input_data]:
        if isinstance(entry, str) and entry.startswith("@"):
            with open(entry[1:], encoding="utf-8") as stream:
                yield from (line.strip() for line in stream if line.strip())
        else:
            yield entry


def _assignments(entry: Any, names: list[str]) -> dict[str, Any]:
    """Parses ``value`` for a model of one input, or ``name:value;name:value``."""
    if isinstance(entry, dict):
        found = dict(entry)
    elif isinstance(entry, str) and (";" in entry or ":" in entry):
        found = dict(part.strip().split(":", 1) for part in entry.split(";") if part.strip())
    else:
        found = dict(zip(names[:1], [entry]))
    if set(found) != set(names):
        raise ValueError(
            f"dump: input_data gives [{', '.join(found)}], the inputs are [{', '.join(names)}]"
        )
    return found


def make_cases(
    file: ModelFile,
    input_data: object,
    repeat: int,
    expected: bool,
    maxerr: float,
    resize: bool,
    transform: Callable[..., Any] | None,
    silent: bool,
) -> bytes:
    """The cases as bytes: an archive of arrays "case<i>.input.<name>", "case<i>.expect.<name>", and "maxerr".

    input_data: one case or a list of them: ``"#rand(lo, hi[, shape...])"``, an image or ``.npy`` path, an
    array, ``"name:value;name:value"`` for several inputs, or ``"@file"`` with one case a line.
    """
    model = file.function()
    types = dict(zip(model.inputs, model.input_types))
    program = file.program("", list(range(len(model.outputs))), 2)
    arrays: dict[str, Any] = {"maxerr": np.float64(maxerr)}
    entries = [entry for entry in _lines(input_data) for _ in range(repeat)]
    for index, entry in enumerate(entries):
        given = _assignments(entry, model.inputs)
        inputs = [
            _array(given[name], name, types[name][0], types[name][1], resize, transform)
            for name in model.inputs
        ]
        arrays.update(
            {f"case{index}.input.{name}": array for name, array in zip(model.inputs, inputs)}
        )
        if expected:
            outputs = program.run([Tensor(array) for array in inputs])
            arrays.update(
                {
                    f"case{index}.expect.{name}": value.numpy()
                    for name, value in zip(model.outputs, outputs)
                }
            )
    if not silent:
        get_logger(__name__).info("dump: %d test case(s)", len(entries))
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def read_cases(model: Model) -> dict[str, np.ndarray]:
    """The arrays of make_cases, or an empty dict."""
    if not model.cases:
        return {}
    with np.load(io.BytesIO(model.cases), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
