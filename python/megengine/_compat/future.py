"""A value that one thread sets and another one gets."""

from __future__ import annotations

import threading
from typing import Any


class Future:
    """One value, set once. ``get`` waits for it.

    Parameters
    ----------
    ack : bool
        Whether ``set`` returns only after some ``get`` has taken the value.
    """

    def __init__(self, ack: bool = True) -> None:
        self.ready = threading.Event()
        self.ack = threading.Event() if ack else None
        self._value: Any = None

    def set(self, value: Any) -> None:
        """Gives the value.

        Parameters
        ----------
        value : object
            Object that `get` returns.

        Raises
        ------
        RuntimeError
            When there is one already.
        """
        if self.ready.is_set():
            raise RuntimeError("this Future has a value already; make a new Future for each value")
        self._value = value
        self.ready.set()
        if self.ack is not None:
            self.ack.wait()

    def get(self) -> Any:
        """Waits for the value and returns it."""
        self.ready.wait()
        if self.ack is not None:
            self.ack.set()
        return self._value


class TensorFuture(Future):
    """A tensor that is still being computed; anything but ``get()`` raises RuntimeError."""

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
