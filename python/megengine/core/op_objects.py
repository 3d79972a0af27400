"""Ops as objects with parameters, such as users' libraries define and module graphs hold: ``apply(op, x, y)``."""

from typing import Any


class OpDef:
    """An op with its parameters; ``run(*tensors)`` applies it."""

    def __init__(self, **params: Any) -> None:
        self.__dict__.update(params)

    def run(self, *inputs: Any) -> Any:
        """The op's result for ``inputs``."""
        raise TypeError(f"{type(self).__name__} is abstract; use a class that has `run`")

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self.__dict__.items()))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


def apply(op: OpDef, *inputs: Any) -> list[Any]:
    """Returns the outputs of ``op`` as a list.

    Parameters
    ----------
    op : OpDef
        The operation, whose ``run`` is called.
    *inputs : object
        Operands of the operation, in order.

    Returns
    -------
    list
        One Tensor for each output.
    """
    out = op.run(*inputs)
    return list(out) if isinstance(out, (tuple, list)) else [out]
