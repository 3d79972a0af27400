"""A traced call step by step: record, compile, run. ``trace`` does all of it by itself; these methods
are for programs that drive it by hand, and the places where a subclass may step in.
"""

from __future__ import annotations

from typing import Any, ParamSpec

from ..module._reach import tensors_in
from ..optimizer import Optimizer
from ..tensor import Tensor
from .parts import Part

_P = ParamSpec("_P")


class ManualSteps(Part[_P]):
    """The base of :class:`trace` that holds its single steps."""

    overall = True  # forward, backward and optimizer are one program (partial_trace: forward alone)

    @property
    def traced(self) -> bool:
        """Whether a call has been recorded."""
        return self._function.version_count > 0

    @property
    def ops(self) -> int:
        """Number of recorded operations."""
        return self._function.op_count

    @property
    def vars(self) -> int:
        """Number of recorded values: results of operations, tensors from outside and constants."""
        return self._function.value_count

    def compile(self) -> None:
        """Compiles what was recorded last, without running it. RuntimeError before the first call."""
        self._function.plans()

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one call of what was recorded.

        Parameters
        ----------
        *args : object
            Positional arguments of the call: the input tensors.
        **kwargs : object
            Keyword arguments of the call: modules, optimizers and other captured objects.

        Returns
        -------
        object
            The result of the function.

        Raises
        ------
        RuntimeError
            Before the first call.
        """
        if not self.traced:
            raise RuntimeError(
                f"trace: {self._name_of_function()} has not been recorded\n  fix: call it once, or use compile_and_exec"
            )
        self.setup_env()
        try:
            return self(*args, **kwargs)
        finally:
            self.unset_env()

    def compile_and_exec(self, *args: Any, **kwargs: Any) -> Any:
        """Records the call, compiles the record, and returns the result of the call.

        Parameters
        ----------
        *args : object
            Positional arguments of the call: the input tensors.
        **kwargs : object
            Keyword arguments of the call: modules, optimizers and other captured objects.

        Returns
        -------
        object
            The result of the function.
        """
        self.setup_env()
        try:
            result = self(*args, **kwargs)
        finally:
            self.unset_env()
        self.compile()
        return result

    def setup_env(self) -> None:
        """Runs before the call, from execute and compile_and_exec; subclasses may define it, here
        it does nothing."""

    def unset_env(self) -> None:
        """Runs after the call, even if it failed; subclasses may define it, here it does
        nothing."""

    def reset_third_party_variable(self) -> None:
        """Forgets all records and programs: the next call records again."""
        self._function.clear()
        self._guards = None
        self._known = {}

    def setup_without_host(self) -> None:
        """Makes later calls run the body only to record it, as with ``without_host=True``."""
        self._without_host = True
        self.reset_third_party_variable()

    def trace_without_host_overall(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one call of a whole training step without its body; see `trace_without_host`.

        Parameters
        ----------
        *args : object
            Positional arguments of the call: the input tensors.
        **kwargs : object
            Keyword arguments of the call: modules, optimizers and other captured objects.

        Returns
        -------
        object
            The result of the function.
        """
        self.convert_optimizer_state_to_tensor(*args, **kwargs)
        return self.trace_without_host(*args, **kwargs)

    def setup_io_without_trace(
        self, inputs: object, outputs: object
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the flat tensors of arguments and results, as a record would list them.

        The results of ``execute`` do not change.

        Parameters
        ----------
        inputs, outputs : object
            Arguments and results: nested lists, tuples and dicts of tensors.

        Returns
        -------
        inputs : list of Tensor
            The tensors of the arguments.
        outputs : list of Tensor
            The tensors of the results.
        """
        return tensors_in(inputs), tensors_in(outputs)

    def convert_optimizer_state_to_tensor(self, *args: Any, **kwargs: Any) -> None:
        """Makes Tensors of states that optimizers among the arguments hold as numbers or arrays.

        A record sees a Tensor as an input, and a number as a constant that may not change.

        Parameters
        ----------
        *args : object
            Positional arguments of the call.
        **kwargs : object
            Keyword arguments of the call.
        """
        for value in (*args, *kwargs.values()):
            if isinstance(value, Optimizer):
                for states in value._state.values():
                    for name, state in states.items():
                        if not isinstance(state, Tensor):
                            states[name] = Tensor(state)

    def _name_of_function(self) -> str:
        return getattr(self.__wrapped__, "__name__", "the function")
