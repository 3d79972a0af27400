"""Whether and how a trace is compared with the program."""

from __future__ import annotations

check_result = True
check_exprs = False


def enable_expr_checker() -> None:
    """Compare every expr of later traces with what the program computed, not only the results."""
    global check_exprs
    check_exprs = True


def disable_default_checker() -> None:
    """Do not run later traces for comparison."""
    global check_result
    check_result = False
