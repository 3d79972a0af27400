"""Whether and how a trace is compared with the program."""

from __future__ import annotations

check_result = True
check_exprs = False


def enable_expr_checker() -> None:
    """Compares every expr of later traces with what the program computed, not only the results.

    It finds the expr that a wrong trace goes wrong at. In force until the process ends, or
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
    """Leaves out the run of later traces that compares them with the program.

    `trace_module` is faster then, and takes modules that give other results in each run. In force
    until the process ends, or ``tm_config.check_result`` is True again.

    Examples
    --------
    >>> import megengine.traced_module as tm
    >>> tm.disable_default_checker()
    >>> tm.tm_config.check_result = True
    """
    global check_result
    check_result = False
