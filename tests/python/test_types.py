"""What editors and type checkers see of the interface."""

import inspect
import re

import pytest

from megengine.jit import trace
from megengine.jit.configs import Options

PROGRAM = """
from megengine import Tensor
from megengine.jit import trace

@trace
def step(x: Tensor, n: int = 2) -> Tensor:
    return x * n

reveal_type(step(Tensor(1.0)))
reveal_type(trace(step, symbolic=True, opt_level=3, memory_limit="6GB", without_host="auto"))
trace(step, opt_levl=3)
step("a")
"""
SEEN = [
    r' note: Revealed type is "megengine.tensor.Tensor"',
    r' note: Revealed type is "megengine.jit.tracing.trace\[\[x: megengine.tensor.Tensor, n: int =\], megengine.tensor.Tensor\]"',
    r' error: Unexpected keyword argument "opt_levl"',
    r' error: Argument 1 to "__call__" of "trace" has incompatible type "str"; expected "Tensor"',
]


def test_the_options_of_trace_are_its_keywords():
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(trace.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert keywords == {name: value.__forward_arg__ for name, value in Options.__annotations__.items()}


def test_a_traced_function_has_the_types_of_the_function(tmp_path):
    api = pytest.importorskip("mypy.api")
    told, _, _ = api.run(["--cache-dir", str(tmp_path), "--config-file", "", "-c", PROGRAM])
    for line in SEEN:
        assert re.search(line, told), told
