"""Base of image datasets: a folder, and which parts a sample has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..meta_dataset import Dataset


class VisionDataset(Dataset):
    """The base class of image datasets in a folder; subclasses define ``__getitem__`` and
    ``__len__``.

    Parameters
    ----------
    root : str, PathLike or None
        The folder; "~" stands for the user's home.
    order : sequence of str or None
        Names of the parts of a sample; None means ("image",).
    supported_order : sequence of str or None
        The names that ``order`` may hold.

    Raises
    ------
    ValueError
        For a name that is not supported or comes twice.

    Examples
    --------
    >>> class Faces(VisionDataset):
    ...     supported_order = ("image", "boxes")
    ...     def __getitem__(self, index):
    ...         ...
    ...     def __len__(self):
    ...         return 0
    >>> Faces("faces", order=("image", "boxes"), supported_order=Faces.supported_order).order
    ('image', 'boxes')
    """

    _default_order: tuple[str, ...] = ("image",)

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        *,
        order: Sequence[str] | None = None,
        supported_order: Sequence[str] | None = None,
    ) -> None:
        self.root = None if root is None else os.path.expanduser(os.fspath(root))
        if order is None:
            order = self._default_order
        if isinstance(order, str) or not isinstance(order, Sequence):
            raise ValueError(
                f'order must be a sequence of names such as ("image", "mask"), got {order!r}'
            )
        for name in order:
            if supported_order is not None and name not in supported_order:
                raise ValueError(
                    f"{type(self).__name__} has no part {name!r}; it has {', '.join(supported_order)}"
                )
        if len(set(order)) != len(order):
            raise ValueError(f"order names a part twice: {order!r}")
        self.order = order

    def __getitem__(self, index: int) -> Any:
        raise TypeError(f"{type(self).__name__} does not define __getitem__")

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} does not define __len__")


class DatasetInMemory(VisionDataset):
    """A dataset whose samples are rows of ``arrays``."""

    arrays: tuple[np.ndarray, ...]

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(array[index] for array in self.arrays)

    def __len__(self) -> int:
        return len(self.arrays[0])
