"""The switch of mixed precision."""

import functools
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from ..core.tensor.amp import State, check_dtype, state, switched

_Function = TypeVar("_Function", bound=Callable[..., Any])


class autocast:
    """Computes with mixed precision inside a ``with`` block or a decorated function.

    Parameters
    ----------
    enabled : bool
        Whether to compute with mixed precision; False turns it off inside.
    low_prec_dtype : str
        Data type of matrix products and convolutions: "float16", "bfloat16" or "float32". They
        accumulate in float32 in any case.
    high_prec_dtype : str
        Data type of transcendental functions and normalization. Other functions compute in the
        dtype of their inputs.

    Raises
    ------
    ValueError
        For another dtype.

    See Also
    --------
    GradScaler : Keeps float16 gradients from underflow.

    Notes
    -----
    Blocks nest, and all settings are restored at their end.

    Examples
    --------
    >>> import megengine as mge, megengine.functional as F
    >>> from megengine.amp import autocast
    >>> x = F.ones((2, 2))
    >>> with autocast():
    ...     y = F.matmul(x, x)
    ...     z = F.exp(y)
    >>> y.dtype.name, z.dtype.name
    ('float16', 'float32')
    """

    def __init__(
        self,
        enabled: bool = True,
        low_prec_dtype: str = "float16",
        high_prec_dtype: str = "float32",
    ) -> None:
        self.enabled = enabled
        self.low_prec_dtype = check_dtype(low_prec_dtype)
        self.high_prec_dtype = check_dtype(high_prec_dtype)

    def __enter__(self) -> Self:
        outer = state.get()
        if switched(self.enabled):
            state.set(State(True, self.low_prec_dtype, self.high_prec_dtype, outer))
        else:
            state.set(State(False, outer.low, outer.high, outer))
        return self

    def __exit__(self, *args: object) -> None:
        inner = state.get()
        state.set(inner.outer or inner)

    def __call__(self, func: _Function) -> _Function:
        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return cast(_Function, run)
