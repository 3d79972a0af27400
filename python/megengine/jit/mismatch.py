"""Lists the usual causes of a call that differs from its record, by the error and its place."""

from __future__ import annotations

import re
from types import TracebackType

_FIX = re.compile(r"\n  fix: .*")
_BY_MODE = re.compile(r"\bop (dropout|batch_norm)\w*|in place of (dropout|batch_norm)")
TRAINING = (
    "a layer as Dropout or BatchNorm did something else: has train() or eval() been called since the recording? "
    "Trace training and evaluation as two functions, or pass module.training as a keyword argument"
)
ACCUMULATION = (
    "the recorded call found no gradients to add to: call optimizer.clear_grad() behind step() in the traced function, "
    "or accumulate in every call, from gradients that are there before the first (docs/accumulation.md)"
)
CONSTANT = (
    "numbers and NumPy arrays are constants of the record: pass what varies as a tensor, as in f(megengine.tensor(value)), "
    "put it under exclude_from_trace(), or trace each variant on its own"
)
READ = (
    "what the body reads of a tensor, as x.item() or int(x), is a number, and so a constant of the record: compute with the tensor itself, "
    "put it under exclude_from_trace(), or trace each variant on its own"
)


def _functions(trace: TracebackType | None) -> set[str]:
    """Returns the names of the functions that were running."""
    names = set()
    while trace is not None:
        names.add(trace.tb_frame.f_code.co_qualname)
        trace = trace.tb_next
    return names


def explain(error: BaseException) -> None:
    """Replaces the fix of a TraceError where the cause is one of the usual ones."""
    text, running = str(error), _functions(error.__traceback__)
    # also sums of gradients by rows
    if "GradManager.backward" in running and re.search(r"\bop,? (add|concat|index_add)\b", text):
        fix = ACCUMULATION
    elif running & {"batch_norm", "dropout"} or _BY_MODE.search(text):
        fix = TRAINING
    elif "a constant of op" in text:
        fix = READ if "the body reads a value" in text else CONSTANT
    else:
        return
    error.args = (_FIX.sub(lambda _: f"\n  fix: {fix}", text, count=1),)
