"""Checks this installation without running a program."""

from .. import _core
from ..logger import get_logger


def check_misc() -> None:
    """Warns about what would make programs slow or fail: no kernel compiler, more threads than
    cores.

    Warnings go to the log. ``python -m megengine info`` tells more.

    Examples
    --------
    >>> import megengine as mge
    >>> mge.check_misc()
    """
    import os

    log = get_logger(__name__)
    if not _core.backends():
        log.warning("no kernel compiler is installed: opt_level=3 gives what opt_level=2 gives")
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if _core.thread_count() > cores:
        log.warning(
            "%d threads on %d cores; megengine.device.set_num_threads(None) takes what is there", _core.thread_count(), cores
        )
