"""Some thousand mutated files: each is refused with the one error or loads, and no code runs. `make fuzz`: a million."""

import fuzzing
import pytest

import megengine as mge
from megengine.traced_module import trace_module


@pytest.fixture(scope="module", autouse=True)
def hook():
    fuzzing.install_audit_hook()


def test_mutated_files_load_or_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a failing file is left
    counts = fuzzing.fuzz(3000, seed=0)
    kinds = [("model", "json"), ("model", "bytes"), ("pickle", "bytes")]
    kinds += [("safetensors", "json"), ("safetensors", "bytes"), ("gguf", "bytes")]
    for kind in kinds:
        assert counts[*kind, "loaded"] > 5 and counts[*kind, "refused"] > 50, counts


def test_the_hook_sees_code_that_runs():
    def load(file):
        exec("1")

    with pytest.raises(AssertionError, match="exec"):
        fuzzing.judge(load, b"")


def test_a_graph_is_printed_without_code():
    """As in errors of files: Python compiles the documentation of methods in C when it is asked for their parameters."""

    class Net(mge.module.Module):
        def forward(self, x):
            return (x * 2)[0] + abs(x)

    graph = trace_module(Net(), mge.tensor([[1.0, 2.0]])).graph
    assert fuzzing.judge(lambda file: str(graph), b"") == "loaded"
    assert "__mul__" in str(graph)
