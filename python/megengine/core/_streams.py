"""Streams and events: the queues of devices, their order among each other, and time."""

from __future__ import annotations

from .. import _core

__all__ = ["Event", "Stream"]


class Event:
    """Marks a moment in the work of a stream: behind all that the stream was given so far.

    Parameters
    ----------
    stream : Stream
        Stream whose work so far comes before the event.

    Raises
    ------
    TypeError
        Unless it is a Stream.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> stream = mge.device.Stream("cpu0")
    >>> begin = stream.record_event()
    >>> y = F.ones((2, 2)) * 2
    >>> end = stream.record_event()
    >>> begin.elapsed_time(end) >= 0
    True
    """

    __slots__ = ("_device", "_ticket", "_time")

    def __init__(self, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise TypeError(f"Event: a Stream is wanted, not {stream!r}\n  fix: mge.device.Stream().record_event()")
        self._device = stream.device
        self._time = _core.stream_record_time(stream.device)
        self._ticket = _core.stream_record(stream.device)

    def query(self) -> bool:
        """Tells whether the work before the event is done, without waiting."""
        return _core.stream_is_past(self._device, self._ticket)

    def synchronize(self) -> None:
        """Waits until the work before the event is done, and raises its errors that were not raised
        before."""
        _core.stream_synchronize(self._device, self._ticket)

    def elapsed_time(self, end: Event) -> float:
        """Returns the time between two events of one stream.

        Parameters
        ----------
        end : Event
            Event of the same stream that was recorded later.

        Returns
        -------
        float
            Milliseconds, by the device's clock.

        Raises
        ------
        ValueError
            For events of two streams.
        """
        if end._device != self._device:
            raise ValueError(f"elapsed_time: events of one stream are compared, not of {self._device} and {end._device}")
        end.synchronize()
        return 1e3 * _core.stream_seconds(self._device, self._time, end._time)


class Stream:
    """A queue of a device's work, which runs in the order in which it was queued. The work of a CPU
    has run when a call returns.

    The driver's number identifies another library's stream on the same GPU: ``cuda_stream`` of
    torch, ``ptr`` of CuPy. `wait_stream` and `let_wait` order the work of both streams;
    `from_dlpack` and ``__dlpack__`` do so by themselves.

    Parameters
    ----------
    device : str or None
        ``"gpu0"`` is the first queue of a GPU, ``"gpu0:1"`` its second; None is the default device.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.device.Stream("cpu0").native
    0
    """

    __slots__ = ("device",)

    def __init__(self, device: str | None = None) -> None:
        self.device: str = _core.find_device(device or "xpux")

    def __repr__(self) -> str:
        return f"Stream({self.device!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.device == self.device

    def __hash__(self) -> int:
        return hash(self.device)

    @property
    def native(self) -> int:
        """The driver's number for it (a ``CUstream``); 0 on a CPU."""
        return _core.stream_native(self.device)

    def synchronize(self) -> None:
        """Waits for all that was queued so far, and raises its errors that were not raised
        before."""
        _core.stream_synchronize(self.device, _core.stream_record(self.device))

    def record_event(self) -> Event:
        """Returns an event behind all that was queued so far."""
        return Event(self)

    def wait_event(self, event: Event) -> None:
        """Makes work that is queued later wait for an event.

        Parameters
        ----------
        event : Event
            Event of any stream of the device.
        """
        _core.stream_wait(self.device, event._device, event._ticket)

    def wait_stream(self, other: Stream | int) -> None:
        """Makes work that is queued later wait for the work that another stream was given so far.

        Parameters
        ----------
        other : Stream or int
            A stream, or the driver's number for an existing stream of another library on the same
            GPU. 1 and 2 are the driver's default streams (the legacy one, and the thread's).

        Raises
        ------
        TypeError
            For other objects, and negative numbers.
        """
        if isinstance(other, Stream):
            _core.stream_wait(self.device, other.device, _core.stream_record(other.device))
        else:
            _core.stream_wait_for_native(self.device, _native(other))

    def let_wait(self, other: int) -> None:
        """Makes work that another library queues later wait for the work that this stream was given
        so far.

        Parameters
        ----------
        other : int
            The driver's number for a stream on the same GPU, as of `wait_stream`.

        Raises
        ------
        TypeError
            For other objects, and negative numbers.
        """
        _core.stream_let_native_wait(self.device, _native(other), _core.stream_record(self.device))


def _native(stream: int) -> int:
    if not isinstance(stream, int) or stream < 0:
        raise TypeError(
            f"Stream: {stream!r} is no stream\n  fix: pass a megengine.device.Stream, or the driver's number for one, such as torch's stream.cuda_stream"
        )
    return stream
