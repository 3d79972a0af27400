"""Several traced functions in one file, with the state that they share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import IO, Any

from .. import _core
from .dump import DumpInfo, info_of, metadata_bytes, write_model
from .tracing import trace


def dump_functions(
    file: str | os.PathLike[str] | IO[bytes],
    functions: Mapping[str, trace[..., Any]],
    *,
    arg_names: Mapping[str, Sequence[str]] | None = None,
    output_names: Mapping[str, Sequence[str]] | None = None,
    user_info: object = None,
) -> dict[str, DumpInfo]:
    """Writes traced functions to one file, which C, C++ and `GraphInference` open by name.

    All functions share the state that any of them updates: parameters, buffers, states of an
    optimizer, random generators, learning rate ("lr") and weight decay. After a step, the others
    see the new values. A state has the name that its module or variable gives it; the state of an
    optimizer has its parameter's name in front: "fc.weight", "fc.weight.momentum_buffer". The file
    has the values that the state has now; `GraphInference.state_dict` reads it.

    Parameters
    ----------
    file : str, PathLike or IO
        A path or an object with ``write``.
    functions : mapping of str to trace
        Functions by name. Each was made by ``trace(..., capture_as_const=True)`` and called once,
        or was made by ``trace(..., record_only=True)``, which leaves the state as it is.
    arg_names, output_names : mapping of str to sequence of str or None
        Names of the inputs and of the outputs, by function; None names inputs like the parameters
        of the function.
    user_info : object
        Numbers, text, arrays and containers of them, which the file's metadata keeps.

    Returns
    -------
    dict of str to DumpInfo
        What was written, for each function, as `trace.dump` returns it.

    Raises
    ------
    ValueError
        If there is no function, or if arg_names or output_names name one that is not there.
    TypeError
        If a function is not traced, and as for `trace.dump`.

    See Also
    --------
    utils.network.Network : Reads and edits what was written.

    Examples
    --------
    >>> import io, megengine as mge, megengine.functional as F, megengine.optimizer as optim
    >>> from megengine.autodiff import GradManager
    >>> from megengine.jit import dump_functions, trace
    >>> from megengine.utils.comp_graph_tools import GraphInference
    >>> w = mge.Parameter([2.0])
    >>> opt, gm = optim.SGD([w], lr=0.5), GradManager().attach([w])
    >>> @trace(record_only=True)
    ... def step(x):
    ...     with gm:
    ...         loss = F.sum(w * x)
    ...         gm.backward(loss)
    ...     opt.step().clear_grad()
    ...     return loss
    >>> @trace(record_only=True)
    ... def predict(x):
    ...     return w * x
    >>> results = step(mge.tensor([1.0])), predict(mge.tensor([1.0]))
    >>> file = io.BytesIO(); info = dump_functions(file, {"step": step, "predict": predict})
    >>> train = GraphInference(io.BytesIO(file.getvalue()), function="step")
    >>> for _ in range(2):
    ...     print(*train.run([1.0]).values())
    2.0
    1.5
    >>> print(*train.function("predict").run([10.0]).values(), sorted(train.state_dict()))
    [10.] ['lr', 'w', 'weight_decay']
    """
    if not functions:
        raise ValueError("dump_functions: no function was given")
    for given, what in ((arg_names, "arg_names"), (output_names, "output_names")):
        unknown = sorted(set(given or {}) - set(functions))
        if unknown:
            raise ValueError(f"dump_functions: {what} names {', '.join(unknown)}, the functions are {', '.join(functions)}")
    for name, function in functions.items():
        if not isinstance(function, trace):
            raise TypeError(f"dump_functions: {name!r} is a {type(function).__name__}, not a traced function")
        function._version_to_dump()
    states = _core.FileStates([function._function for function in functions.values()])
    models = []
    for name, function in functions.items():
        model = function._exported(
            states,
            (arg_names or {}).get(name) or _parameter_names(function),
            (output_names or {}).get(name),
        )
        model.name = name
        model.metadata = metadata_bytes(user_info, {}, True)
        models.append(model)
    data = _core.ModelFile.of(models, states).to_bytes()
    write_model(file, data)
    return {model.name: info_of(model, data, _core.checksum(data)) for model in models}


def _parameter_names(function: trace[..., Any]) -> list[str] | None:
    """Returns the names of the positional arguments of the recorded call; None if they are not
    known.
    """
    try:
        parameters = list(inspect.signature(function.__wrapped__).parameters.values())
    except (TypeError, ValueError):
        return None
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    count = sum(not keyword for keyword, _ in function._recorded_inputs)
    return names[:count] if len(names) >= count else None
