"""Whether and how a trace is compared with the program."""

from __future__ import annotations

check_result = True
check_exprs = False


def enable_expr_checker() -> None:
    """Compares every expr of later traces with what the program computed, not only the results.

    This finds the expr at which a trace goes wrong. It holds until the process ends, or until
    ``tm_config.check_exprs`` is False again.

    Examples
    --------
    >>> import megengine.traced_module as tm
    >>> tm.enable_expr_checker()
    >>> tm.tm_config.check_exprs = False
    """
    global check_exprs
    check_exprs = True


def disable_default_checker() -> None:
    """Turns off the run in which later traces are compared with the program.

    `trace_module` is faster then, and takes modules that give other results in each run. This holds
    until the process ends, or until ``tm_config.check_result`` is True again.

    Examples
    --------
    >>> import megengine.traced_module as tm
    >>> tm.disable_default_checker()
    >>> tm.tm_config.check_result = True
    """
    global check_result
    check_result = False
