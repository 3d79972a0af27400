"""Values that are known only in a run, and the questions that a program may not ask before."""

from __future__ import annotations

from typing import Any

# NumPy's name of an operator with an array on its left -> the method of the value on the right.
_REFLECTED = {
    "add": "__radd__", "subtract": "__rsub__", "multiply": "__rmul__", "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__", "remainder": "__rmod__", "power": "__rpow__", "matmul": "__rmatmul__",
    "less": "__gt__", "less_equal": "__ge__", "greater": "__lt__", "greater_equal": "__le__",
    "equal": "__eq__", "not_equal": "__ne__", "bitwise_and": "__rand__", "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__", "left_shift": "__rlshift__", "right_shift": "__rrshift__",
}  # fmt: skip


class Unknown:
    """Refuses what needs the value: numbers of Python, `in`, functions of NumPy, arrays.

    If an array of NumPy is the left operand, the operator of this class runs.
    """

    def _asked(self, what: str, fix: str) -> Exception:
        """The error for asking for ``what``."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = _REFLECTED.get(ufunc.__name__)
        if name is None or method != "__call__" or kwargs or inputs[-1] is not self:
            raise self._asked(f"numpy.{ufunc.__name__}", "use megengine.functional")
        return getattr(self, name)(inputs[0])

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._asked("an array of NumPy", "stay with tensors")

    def __contains__(self, item: Any) -> bool:
        raise self._asked("`in`", "use functions of tensors")

    def _number(self) -> Any:
        raise self._asked(
            "a Python number", "use functions of tensors (not those of math or numpy)"
        )

    __index__ = __int__ = __float__ = __complex__ = _number

    def numpy(self) -> Any:
        """Refused."""
        raise self._asked("numpy()", "stay with tensors")

    def item(self) -> Any:
        """Refused."""
        raise self._asked("item()", "stay with tensors")

    def tolist(self) -> Any:
        """Refused."""
        raise self._asked("tolist()", "stay with tensors")
