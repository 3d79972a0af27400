"""utils.profiler and utils.profile_analyzer."""

import json
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import megengine.functional as F
import megengine.module as M
from megengine import Tensor
from megengine.core._imperative_rt.core2 import pop_scope, push_scope
from megengine.jit import trace
from megengine.module import external
from megengine.utils.profile_analyzer import (
    NonExistNum,
    OprProfRst,
    ProfileAnalyzer,
    TimeFuncHelper,
)
from megengine.utils.profiler import Profiler, is_profiling, merge_trace_events, profile, scope


def events_of(profiler):
    profiler.dump()
    with open(profiler.path) as file:
        return json.load(file)["traceEvents"]


def names(events, phase="B", cat=None):
    return [event["name"] for event in events if event["ph"] == phase and event.get("cat") == cat]


def test_kernels_scopes_and_modules_are_ranges(tmp_path):
    net = M.Sequential(M.Linear(3, 4), M.ReLU())
    profiler = Profiler(str(tmp_path), with_scopes=True)
    assert not is_profiling()
    with profiler:
        assert is_profiling()
        with scope("mine"):
            net(Tensor(np.ones((2, 3), "float32")))
    assert not is_profiling()
    assert not os.listdir(tmp_path)  # files are written when asked for
    events = events_of(profiler)
    assert profiler.path == str(tmp_path / f"{os.getpid()}.chrome_timeline.json")
    assert "relu" in names(events) and "relu" in names(events, cat="Kernel")
    assert names(events).count("mine") == 2 and "0" in names(events) and "Sequential" in names(events)
    for tid in {event["tid"] for event in events}:  # ranges of a row lie in each other
        open_ranges = []
        for event in events:
            if event["tid"] == tid and event["ph"] in "BE":
                if event["ph"] == "B":
                    open_ranges.append(event["name"])
                else:
                    assert open_ranges.pop() == event["name"]
        assert not open_ranges


def test_scopes_are_begun_and_ended_by_their_names(tmp_path):
    with Profiler(str(tmp_path)) as profiler:
        push_scope("stage")
        push_scope("layer")
        with pytest.raises(RuntimeError, match="'stage' is not the scope .* 'layer'"):
            pop_scope("stage")
        pop_scope("layer")
        pop_scope("stage")
    assert {"stage", "layer"} <= set(names(events_of(profiler)))
    with pytest.raises(RuntimeError, match="which is None"):
        pop_scope("stage")


def test_what_runs_outside_is_not_noted(tmp_path):
    profiler = Profiler(str(tmp_path))
    F.exp(Tensor([1.0]))
    with profiler:
        F.sin(Tensor([1.0]))
    F.cos(Tensor([1.0]))
    found = names(events_of(profiler))
    assert "sin" in found and "exp" not in found and "cos" not in found
    profiler.start()
    profiler.step()  # forgets
    F.tan(Tensor([1.0]))
    profiler.stop()
    assert "sin" not in names(events_of(profiler))


def test_lines_threads_memory_and_traced_functions(tmp_path):
    traced = trace(lambda x: F.exp(x) * 2)
    traced(Tensor([1.0]))
    with Profiler(str(tmp_path), with_backtrace=True, sample_rate=1) as profiler:
        traced(Tensor([1.0]))
        thread = threading.Thread(target=lambda: F.sin(Tensor(np.ones(100000, "float32"))))
        thread.start()
        thread.join()
    events = events_of(profiler)
    (sin,) = [event for event in events if event["name"] == "sin" and event["ph"] == "B" and "cat" not in event]
    assert "test_profiler.py" in sin["args"]["where"]
    assert sin["tid"] != next(event["tid"] for event in events if event["name"].startswith("trace "))
    memory = [event["args"]["value"] for event in events if event["ph"] == "C"]
    assert memory and max(memory) > 0


def test_pictures_of_memory(tmp_path):
    profiler = Profiler(str(tmp_path), formats=["memory_flow.svg", "chrome_timeline.json"])
    with profiler:
        F.exp(Tensor(np.ones(100000, "float32")))
    profiler.dump()
    assert profiler.path.endswith("memory_flow.svg") and "<polyline" in Path(profiler.path).read_text()
    assert len(os.listdir(tmp_path)) == 2


def test_decorators_and_forgotten_profilers_write(tmp_path):
    @profile(str(tmp_path / "a"))
    def wave(x):
        return F.sin(x)

    wave(Tensor([1.0]))
    del wave
    assert len(os.listdir(tmp_path / "a")) == 1


def test_timelines_of_processes_are_joined(tmp_path):
    for pid in (1, 2):
        with open(tmp_path / f"{pid}.chrome_timeline.json", "w") as file:
            json.dump({"traceEvents": [{"ph": "B", "pid": pid}]}, file)
    for _ in range(2):  # the joined file is not joined again
        with open(merge_trace_events(str(tmp_path))) as file:
            assert [event["pid"] for event in json.load(file)["traceEvents"]] == [1, 2]
    with pytest.raises(AssertionError):
        merge_trace_events(str(tmp_path / "nowhere"))


def test_unknown_formats_and_options(tmp_path):
    with pytest.raises(AssertionError, match="unsupported"):
        Profiler(format="nonsense")
    with pytest.warns(UserWarning, match="colour"):
        Profiler(colour=3)
    with pytest.warns(UserWarning, match="cupti"):
        Profiler(enable_cupti=1)


# ------------------------------------------------------------------------------------ analysis


def a_profile():
    def operator(number, name, kind, reads, makes):
        return {"id": number, "name": name, "type": kind, "input": [reads], "output": [makes]}

    def times(end):
        return {"t": {"start": 1.0, "kern": 1.5, "end": end}}

    def work(computation):
        return {"computation": computation, "memory": 3, "in_shapes": [], "out_shapes": [(2,)]}

    return {
        "graph_exec": {
            "operator": {"0": operator("0", "c", "Conv", "10", "11"), "1": operator("1", "r", "Elem", "11", "12"), "2": operator("2", "d", "Conv", "12", "13")},
            "var": {"10": {"name": "x"}, "11": {}, "12": {}, "13": {}},
        },
        "profiler": {
            "device": {"0": times(2.0), "1": times(5.0), "2": times(3.0)},
            "host": {"0": times(2.0)},
            "opr_footprint": {"0": work(100), "1": work(1), "2": work(7)},
        },
    }  # fmt: skip


SECONDS = TimeFuncHelper.eval_time_func("device", "end", np.max)


def test_operators_are_selected_sorted_and_cut():
    analyzer = ProfileAnalyzer(a_profile())
    assert [(r.opr_id, r.time, r.flops) for r in analyzer.select(SECONDS)] == [(0, 1, 100), (1, 4, 0.25), (2, 2, 3.5)]
    assert [r.time for r in analyzer.select(SECONDS, sort_by="time", top_k=2)] == [4, 2]
    assert [r.computation for r in analyzer.select(SECONDS, sort_by="+computation")] == [1, 7, 100]
    assert [r.info["name"] for r in analyzer.select(TimeFuncHelper.eval_time_func("host", "kern", sum))] == ["c"]
    convs = ProfileAnalyzer(a_profile(), lambda opr, inputs, outputs: inputs[0].get("name") == "x")
    assert [r.info["name"] for r in convs.select(SECONDS)] == ["c"]


def test_records_are_joined():
    analyzer = ProfileAnalyzer(a_profile())
    (total,) = analyzer.select(SECONDS, aggregate=np.sum)
    assert (total.time, total.computation, total.info["count"], total.opr_id) == (7, 108, 3, "N/A")
    by_type = analyzer.select(SECONDS, aggregate="max", aggregate_by="type", sort_by="time")
    assert [(r.info["type"], r.time, r.computation) for r in by_type] == [("Elem", 4, 1), ("Conv", 2, 100)]


def test_times_of_threads_are_joined():
    opr = OprProfRst({"id": "7", "name": "a", "type": "t"})
    opr.update_host_prof_info({"start": 1.0, "kern": 1.25, "end": 2.0})
    opr.update_host_prof_info({"start": 0.5, "kern": 1.0, "end": 4.0})
    assert TimeFuncHelper.eval_time_func("host", "end", np.sum)(opr) == 4.5
    assert TimeFuncHelper.min_start_func("host", "end", np.min)(opr) == 0.5
    assert TimeFuncHelper.max_end_func("host", "kern", np.max)(opr) == 1.25
    assert TimeFuncHelper.eval_time_func("device", "end", np.sum)(opr) is None


def test_a_missing_number_is_greater_than_all_and_adds_nothing():
    missing = NonExistNum()
    assert missing + 1 == 1 and 1 + missing == 1 and str(missing / 2) == f"{-missing:.3f}" == "N/A"
    assert missing > 1e30 and not missing < 1 and missing == NonExistNum() and missing != 3
    assert sorted([3.0, missing, 1.0])[0] == 1.0


def test_programs_of_other_runtimes_keep_their_bytes_and_say_what_is_missing():
    for layer, runtime in (
        (external.AtlasRuntimeSubgraph(b"abc"), "Atlas"),
        (external.CambriconRuntimeSubgraph(b"abc", "main", True), "Cambricon"),
        (external.MagicMindRuntimeSubgraph(b"abc"), "MagicMind"),
        (external.TensorrtRuntimeSubgraph(b"abc"), "TensorRT"),
    ):
        saved = pickle.loads(pickle.dumps(layer))
        assert saved.data == b"abc" and type(saved) is type(layer)
        with pytest.raises(RuntimeError, match=f"no {runtime} runtime"):
            saved(Tensor([1.0]))
    layer = external.TensorrtRuntimeSubgraph(b"engine")
    layer.data = layer.data + b"!"
    assert layer.data == b"engine!"
    with pytest.raises(RuntimeError, match="TensorRT"):
        layer(Tensor([1.0]))
    layer = external.ExternOprSubgraph([(1,)], "loader", b"abc")
    assert (layer.name, layer.data) == ("loader", b"abc")
    with pytest.raises(RuntimeError, match="loader"):
        layer(Tensor([1.0]))
