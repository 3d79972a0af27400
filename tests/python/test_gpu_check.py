"""tools/gpu_check.sh on the emulated card: parts, what they leave, and how they go on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import emulated
import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "card"


def part(name, folder, *options):
    """The last line of a part, run alone; it has not failed."""
    command = [sys.executable, str(TOOLS / f"{name}.py"), "--out", str(folder), *options]
    environment = {**os.environ, **emulated.gpus(), "MEGJIT_COMPILE": "sync"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def told(folder, name):
    return json.loads((folder / "parts.json").read_text())[name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    part("micro", folder)
    return folder


def test_a_part_leaves_figures_of_the_card_one_in_a_line(folder):
    text = (folder / "card.json").read_text()
    card = json.loads(text)
    assert card["arch"] == 90 and {"flops", "instructions", "memory", "upload"} <= {figure["what"] for figure in card["figures"]}
    for figure in card["figures"]:
        assert "emulated" in figure["source"]
        assert figure.get("seconds", figure.get("per_second")) > 0
        assert f"  {json.dumps(figure)}" in text


def test_a_complete_part_runs_again_only_when_asked(folder):
    before = (folder / "card.json").read_bytes()
    assert "there since" in part("micro", folder) and (folder / "card.json").read_bytes() == before
    assert "there since" not in part("micro", folder, "--again")


def test_a_part_without_its_tools_says_so_and_is_open(tmp_path):
    for _ in range(2):
        assert "left out: there is no torch with CUDA" in part("door", tmp_path)
    assert not told(tmp_path, "door")["complete"]


def test_a_part_that_is_cut_off_goes_on_where_it_stopped(tmp_path):
    assert "cut off before launches" in part("micro", tmp_path, "--seconds", "0")
    parts = json.loads((tmp_path / "parts.json").read_text())
    parts["micro"] |= {"done": ["launches", "copies", "products", "chains", "uploads"], "graphs": {"1": 1.0, "2": 2.0}}
    parts["micro"]["chains"] = {"fma": 1.0, "exp": 1.0, "erf": 1.0}
    (tmp_path / "parts.json").write_text(json.dumps(parts))
    part("micro", tmp_path)
    assert told(tmp_path, "micro")["complete"] and told(tmp_path, "micro")["reductions"]
    assert not (tmp_path / "card.json").exists()  # what was done is not done again


def test_results_of_two_cards_do_not_share_a_folder(tmp_path):
    (tmp_path / "parts.json").write_text(json.dumps({"card": {"arch": 80, "name": "another card"}}))
    with pytest.raises(AssertionError, match="has results of another card"):
        part("micro", tmp_path)


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import ncu
    import results

    yield ncu, results
    for name in ("ncu", "results"):
        sys.modules.pop(name)


def test_counters_are_summed_by_kernel(tool):
    ncu, _ = tool
    lines = ['==PROF== Connected', '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for launch, kernel, nanoseconds, registers in ((0, "add", "1,500", 32), (1, "add", "500", 32), (2, "mul", "3,000", 40)):
        lines.append(f'"{launch}","{kernel}","gpu__time_duration.sum","nsecond","{nanoseconds}"')
        lines.append(f'"{launch}","{kernel}","launch__registers_per_thread","register/thread","{registers}"')
    assert ncu.rows_of("\n".join(lines)) == [
        {"kernel": "mul", "launches": 1, "nanoseconds": 3000.0, "registers": 40.0},
        {"kernel": "add", "launches": 2, "nanoseconds": 2000.0, "registers": 32.0},
    ]


def test_a_newer_figure_takes_the_place_of_the_same_thing(tool, tmp_path, monkeypatch):
    _, results = tool
    written = results.Part("micro", tmp_path, 1, False)
    monkeypatch.setattr(written, "card", lambda: {"arch": 90, "name": "a card"})
    for seconds in (1.0, 2.0):
        written.figure("once", what="upload", bytes=4, seconds=seconds)
    written.figure("once", what="upload", bytes=8, seconds=3.0)
    figures = json.loads((tmp_path / "card.json").read_text())["figures"]
    assert [(figure["bytes"], figure["seconds"]) for figure in figures] == [(4, 2.0), (8, 3.0)]


def test_processes_are_measured_alone_as_they_get_ready(tool):
    """A process that is not ready is stopped while another is measured, and goes on behind it; one that fails keeps nobody."""
    import turns

    program = """if True:
        import json, sys, time
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "wait": time.sleep(command["seconds"])
            print(json.dumps({"error": "no"} if command["do"] == "fail" else {"now": time.monotonic()}), flush=True)
    """
    processes = {name: turns.Process(name, [sys.executable, "-c", program]) for name in ("early", "late", "broken")}
    seen = []

    def prepare(process):
        if process.name == "broken":
            process.ask("fail")
        for _ in range(1 if process.name == "early" else 30):
            process.ask("wait", seconds=0.01)

    def state(process):
        return Path(f"/proc/{process._process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def measure(name, group):
        others = [each for each in processes.values() if each not in group and each._process.poll() is None]
        seen.append(name)
        if group[0].fault:
            raise RuntimeError(group[0].fault)
        group[0].ask("wait", seconds=0.05)
        assert all(state(each) == "T" for each in others)

    late, faults = turns.measure_alone({name: [each] for name, each in processes.items()}, prepare, measure, lambda: 60.0)
    assert late == [] and faults == {"broken": "no"} and sorted(seen) == ["broken", "early", "late"]
    assert all(each._process.poll() is not None for each in processes.values())
