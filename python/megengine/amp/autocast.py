"""The switch of mixed precision."""

import functools

from ..core.tensor.amp import check_dtype, state


class autocast:
    """Mixed precision inside a ``with`` block or a decorated function; all settings are restored
    after it.

    enabled False turns it off inside. low_prec_dtype is for matrix products and convolutions,
    high_prec_dtype for transcendental functions and normalization.
    """

    def __init__(
        self,
        enabled: bool = True,
        low_prec_dtype: str = "float16",
        high_prec_dtype: str = "float32",
    ):
        self.enabled = enabled
        self.low_prec_dtype = check_dtype(low_prec_dtype)
        self.high_prec_dtype = check_dtype(high_prec_dtype)
        self._before = []

    def __enter__(self):
        self._before.append((state.enabled, state.low, state.high))
        state.enabled = bool(self.enabled)
        if self.enabled:
            state.low, state.high = self.low_prec_dtype, self.high_prec_dtype
        return self

    def __exit__(self, *args):
        state.enabled, state.low, state.high = self._before.pop()

    def __call__(self, func):
        @functools.wraps(func)
        def run(*args, **kwargs):
            with self:
                return func(*args, **kwargs)

        return run
