"""Some thousand mutated files: each is refused with the one error or loads, and no code runs. `make fuzz`: a million."""

import fuzzing
import pytest


@pytest.fixture(scope="module", autouse=True)
def hook():
    fuzzing.install_audit_hook()


def test_mutated_files_load_or_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a failing file is left
    counts = fuzzing.fuzz(3000, seed=0)
    for kind in (("model", "json"), ("model", "bytes"), ("pickle", "bytes")):
        assert counts[*kind, "loaded"] > 5 and counts[*kind, "refused"] > 100


def test_the_hook_sees_code_that_runs():
    def load(file):
        exec("1")

    with pytest.raises(AssertionError, match="exec"):
        fuzzing.judge(load, b"")
