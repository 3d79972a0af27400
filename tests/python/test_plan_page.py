"""Memory plans as text and as a page: ``fn.memory_plan().html()``, ``python -m megengine plan``, and a real browser."""

import dataclasses
import datetime
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pages import Balance, browse

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.optimizer as optim
from megengine.autodiff import GradManager
from megengine.jit import trace
from megengine.jit.plan_text import plan_text
from megengine.jit.report import OutsideProgram

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import numpy as np, megengine as mge, megengine.functional as F
from megengine.jit import trace

@trace(symbolic=True)
def f(x):
    y = F.exp(x)  # <script>document.body.dataset.broken = 1</script>
    return {"sum": F.matmul(y, x).sum(), "pair": (y * 2, 1)}

print("arguments", sys.argv[1:])
while True:
    out = f(mge.tensor(np.ones((256, 256), np.float32)))
    assert out["sum"].item() == 0 and out["pair"][0].shape == (256, 256) and out["pair"][1] == 1
"""


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "megengine", "plan", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def training_step(layers=8, **options):
    """Recomputes what it can: each use of memory is there."""
    rng = np.random.RandomState(0)
    weights = [mge.Parameter(rng.randn(64, 64).astype(np.float32)) for _ in range(layers)]
    gm = GradManager().attach(weights)
    optimizer = optim.SGD(weights, lr=0.1, momentum=0.9)

    @trace(symbolic=True, **options)
    def step(x):
        with gm:
            for w in weights:
                x = F.tanh(F.exp(F.sin(x)) @ w)
            loss = F.softmax(x).mean()
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return step, mge.tensor(rng.randn(512, 64).astype(np.float32))


@pytest.fixture(scope="module")
def measured_plan():
    step, x = training_step()
    tight = int(0.7 * step.plan(x).planned_bytes)
    step, x = training_step(memory_limit=tight, profiling=True)
    for _ in range(3):
        step(x)
    return step.memory_plan()


def test_each_buffer_has_a_use(measured_plan):
    uses = {buffer.use for buffer in measured_plan.buffers}
    assert {"parameter", "state", "input", "activation", "gradient", "recomputed"} <= uses
    assert measured_plan.bytes_of("parameter") >= 8 * 64 * 64 * 4 and measured_plan.bytes_of("state") >= 8 * 64 * 64 * 4  # weights, momentum


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = M.Linear(64, 256), M.Linear(256, 64, bias=False)

    def forward(self, x):
        return x + self.down(F.tanh(self.up(x)))


def networks_step(without_host=False, **options):
    """A step of a network, whose parameters lie in modules."""
    net = M.Sequential(Block(), Block())
    gm = GradManager().attach(net.parameters())
    optimizer = optim.Adam(net.parameters(), lr=0.1)

    @trace(symbolic=True, without_host=without_host, **options)
    def step(x, *, net):
        with gm:
            loss = net(x).mean()
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    return step, mge.tensor(np.ones((128, 64), np.float32)), net


@pytest.mark.parametrize("without_host", [False, True])
@pytest.mark.parametrize("runs", [False, True])
def test_parameters_their_gradients_and_states_are_named_by_their_modules(runs, without_host):
    step, x, net = networks_step(without_host)
    if runs:
        step(x, net=net)
    plan = step.memory_plan() if runs else step.plan(x, net=net)
    firsts = {buffer.values[0].partition(" ")[2] for buffer in plan.buffers if buffer.use in ("parameter", "state")}
    for name, parameter in net.named_parameters():
        shape = list(parameter._tuple_shape)
        assert f"{name} f32{shape}" in firsts and f"{name}.exp_avg_sq f32{shape}" in firsts
        assert any(f"({name}.grad)" in value for buffer in plan.buffers for value in buffer.values)
    page = plan.html()
    assert page.count("0.up.weight f32[256, 64]") > 1  # in the picture and in the table
    if runs:
        assert "= input 1  # 0.up.weight\n" in step.graph_text()


def test_fused_gradients_are_named_too():
    """At level 3 what a kernel computes of a product has the product's name; kernels that join one step keep theirs."""
    step, x, net = networks_step(opt_level=3)
    held = [buffer.values[0] for buffer in step.plan(x, net=net).buffers if buffer.place == "arena"]
    assert {f"{i}.{name}.weight.grad" for i in (0, 1) for name in ("up", "down")} >= set(re.findall(r"\((\S+weight\.grad)\)", " ".join(held)))
    assert any("fused" in value and ".weight.grad)" in value for value in held), held


def test_a_module_that_is_called_by_itself_keeps_its_path():
    net = M.Sequential(Block(), Block())
    plan = trace(lambda x: net[1].up(x), symbolic=True).plan(mge.tensor(np.ones((2, 64), np.float32)))
    assert [b.values[0].partition(" ")[2] for b in plan.buffers if b.use == "parameter"] == ["up.weight f32[256, 64]", "up.bias f32[256]"]


def test_a_refused_limit_names_gradients_and_parameters():
    step, x, net = networks_step(memory_limit="600KB")
    with pytest.raises(MemoryError) as found:
        step(x, net=net)
    why = str(found.value).splitlines()[1]
    assert re.search(r"results take \d+\.\d KiB \(\d+\.\d KiB %\d+ \d\.\w+\.weight.*f32\[.*; .* in \d+ more\), and even", why), why
    assert ".weight.grad)" in why
    assert len(str(found.value).splitlines()) <= 6


def test_a_plan_under_a_limit_is_a_point_of_its_curve(measured_plan):
    curve = measured_plan.curve
    (chosen,) = (point for point in curve if point.is_chosen)
    assert chosen.seconds > curve[0].seconds
    assert [p.bytes for p in curve] == sorted((p.bytes for p in curve), reverse=True)
    assert [p.seconds for p in curve] == sorted(p.seconds for p in curve)
    assert chosen.bytes == measured_plan.planned_bytes


@pytest.mark.parametrize("level", [2, 3])
def test_the_mark_of_a_plan_is_not_above_its_limit(level):
    """At the least limit that a plan keeps: steps that join leave it below what the search expected."""
    for share in (0.7, 0.8, 0.9):
        step, x = training_step(opt_level=level)
        wanted = int(step.plan(x).planned_bytes * share)
        step, x = training_step(opt_level=level, memory_limit=wanted)
        limit = step.plan(x).planned_bytes
        step, x = training_step(opt_level=level, memory_limit=limit)
        plan = step.plan_with_curve(x)
        (chosen,) = (point for point in plan.curve if point.is_chosen)
        assert chosen.bytes == plan.planned_bytes <= limit
        assert [p.bytes for p in plan.curve] == sorted((p.bytes for p in plan.curve), reverse=True)


def test_looking_at_the_curve_changes_no_plan():
    step, x = training_step()
    with_curve = step.plan_with_curve(x)
    assert len(with_curve.curve) > 2 and with_curve.curve[0].is_chosen
    assert with_curve.planned_bytes == step.plan(x).planned_bytes
    assert step.plan(x).curve == ()


def test_a_limit_that_is_kept_without_a_plan_is_not_searched_for():
    step, x = training_step(memory_limit="100GB")
    assert step.plan(x).curve == ()
    assert step.plan_with_curve(x).curve == training_step()[0].plan_with_curve(x).curve


def test_a_measured_plan_has_the_time_of_each_step(measured_plan):
    run = measured_plan.measured
    assert run.runs == 3 and len(run.step_seconds) == len(measured_plan.steps)
    assert 0 < sum(run.step_seconds) <= run.seconds
    assert run.allocator_peak_bytes >= measured_plan.planned_bytes - 4096  # Python numbers are inputs of no storage


def test_a_page_is_sound_and_loads_nothing(measured_plan):
    page = measured_plan.html("a < b & 'c'</title><script>")
    checked = Balance(page)
    assert checked.open == [] and checked.loads == [] and checked.scripts == 2
    assert "http:" not in page and "https:" not in page


def test_a_page_says_function_limit_and_date():
    step, x = training_step(layers=2, memory_limit="3MB")
    page = step.plan(x).html()
    today = datetime.date.today().isoformat()
    assert re.search(r"<h1>Memory plan of step \(.*test_plan_page.py:\d+\)</h1>", page)
    assert "limit 3.0 MiB" in page or "limit 2.9 MiB" in page
    assert today in page
    step, x = training_step(layers=2)
    assert "no limit" in step.plan(x).html() and "<h1>mine</h1>" in step.plan(x).html("mine")


def test_axes_have_units_and_each_page_a_curve_or_the_way_to_it(measured_plan):
    page = measured_plan.html()
    assert page.count("<span>0 B</span>") == 2 and page.count("<span>0 s</span>") == 1
    assert page.count(f"<span>step {len(measured_plan.steps) - 1}</span>") == 3
    assert "estimated time of a step" in page and "bytes of a call" in page
    one = dataclasses.replace(measured_plan, curve=measured_plan.curve[:1])
    assert one.html().count('<circle class="plan"') == 1
    assert "plan_with_curve(*args).html()" in dataclasses.replace(measured_plan, curve=()).html()


def test_inputs_and_parameters_are_folded_largest_first(measured_plan):
    (table,) = re.findall(r"<details><summary>Inputs, parameters and results: (\d+) blocks.*?</details>", measured_plan.html(), re.DOTALL)
    assert int(table) == sum(b.place != "arena" and b.bytes > 0 for b in measured_plan.buffers)


def test_the_text_names_the_largest_values_with_their_lines(measured_plan):
    text = plan_text(measured_plan, "step")
    assert f"{measured_plan.planned_bytes:,}" in text
    assert "test_plan_page.py" in text
    assert re.search(r"^\* .* x +#+$", text, re.MULTILINE)


def test_what_another_framework_has_of_a_program_is_told_beside_its_plan(measured_plan):
    left = (OutsideProgram("aten.nonzero net.py:3", "its shape follows from data", 2048), OutsideProgram("aten.item", "it is a number", 0))
    plan = dataclasses.replace(measured_plan, outside=left)
    for words in ("aten.nonzero net.py:3", "its shape follows from data", "2.0 KiB", "not known"):
        assert words in str(plan) and words in plan.html()
    assert "beside this plan" not in str(measured_plan) and "Beside this plan" not in measured_plan.html()


def test_a_plan_and_its_kernels_print_as_tables():
    step, x = training_step(opt_level=3)
    step(x), step(x)
    plan, kernels = step.memory_plan(), step.kernels()
    assert str(plan) == repr(plan) == plan_text(plan, "memory of a call")
    lines = str(kernels).splitlines()
    assert repr(kernels) == str(kernels) and len(lines) == len(kernels) + 1 and lines[0].split()[0] == "compiler"
    assert all(kernel.backend in line and kernel.where in line for kernel, line in zip(kernels, lines[1:], strict=True))
    assert max(map(len, lines)) < 100 + len(__file__) + 40
    assert str(kernels[0]).startswith("<kernel of ") and "\n" not in str(kernels[0])
    assert str(type(kernels)()) == "no generated kernels"


def test_a_script_is_planned_and_not_run(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    status, out, err = command(tmp_path / "script.py", "--html", tmp_path / "plan.html", "mine", "--", "--limit", "3")
    assert status == 0 and err == ""
    assert "arguments ['mine', '--limit', '3']" in out
    assert "float32[256, 256]" in out and "peak live" in out and "script.py:9" in out
    assert out.count("peak live:") == 1  # the same call again is not planned again
    assert "<!doctype html>" in (tmp_path / "plan.html").read_text()


def test_a_limit_that_no_plan_fits_is_told(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    status, _, err = command(tmp_path / "script.py", "--limit", "1KB")
    assert status == 1 and "at least" in err


def test_a_function_that_reads_values_runs_once(tmp_path):
    reads = SCRIPT.replace("symbolic=True", "").replace("    y = F.exp(x)", "    y = F.exp(x) if x.sum().item() > 0 else x")
    (tmp_path / "script.py").write_text(reads.replace("assert", "pass  #"))
    status, out, err = command(tmp_path / "script.py")
    assert status == 0 and err == ""
    assert out.count("run once: it reads values") == out.count("peak live:") == 1


def test_a_script_without_traced_functions_is_told(tmp_path):
    (tmp_path / "script.py").write_text("x = 1\n")
    status, out, err = command(tmp_path / "script.py")
    assert (status, out, err) == (1, "", "the script has called no traced function\n")


def test_a_browser_draws_the_page_and_runs_its_script(measured_plan, tmp_path):
    hostile = "</script><script>document.body.dataset.broken = 1</script>"
    plan = dataclasses.replace(
        measured_plan,
        steps=(hostile, *measured_plan.steps[1:]),
        buffers=tuple(dataclasses.replace(b, values=(*b.values, hostile)) for b in measured_plan.buffers),
    )
    page = tmp_path / "plan.html"
    page.write_text(plan.html(hostile))
    dom = browse(page, "--dump-dom", f"{page.as_uri()}#b3")
    drawn = dom.count('class="buffer"') + dom.count('class="buffer marked"')
    assert f'data-buffers="{drawn}"' in dom and drawn > 20
    assert f'data-steps="{len(plan.steps)}"' in dom
    assert "data-broken" not in dom
    (details,) = re.findall(r'<pre id="details">(.*?)</pre>', dom, re.DOTALL)
    assert details in dom.split('id="b3"')[1] and "%" in details
    assert dom.count('class="plan"') == len(plan.curve)
    page.write_text(plan.html() + "<script>search.value = 'SIN'; search.dispatchEvent(new Event('input'));</script>")
    dom = browse(page, "--dump-dom", page.as_uri())
    hits = sum(any("sin" in value.lower() for value in b.values[:12]) for b in plan.buffers if b.bytes and b.use != "constant")
    assert 0 < hits < drawn and f"{hits} of {drawn} buffers" in dom and dom.count('class="buffer missed"') == drawn - hits
    picture = ROOT / "build/plan_page.png"
    picture.parent.mkdir(exist_ok=True)
    browse(page, f"--screenshot={picture}", page.as_uri())
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


def test_bytes_by_kind_are_those_of_a_call():
    """A step with states, under a limit and without, at both levels."""
    net = M.Sequential(*(M.Linear(64, 64) for _ in range(4)))
    gm = GradManager().attach(net.parameters())
    optimizer = optim.Adam(net.parameters(), lr=0.01)

    def step(x):
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        optimizer.step().clear_grad()
        return loss

    x = mge.tensor(np.ones((512, 64), np.float32))
    trace(step)(x)  # makes the states
    weights = sum(p.numpy().nbytes for p in net.parameters())
    for level in (2, 3):
        free = trace(step, opt_level=level).plan(x)
        for plan in (free, trace(step, opt_level=level, memory_limit=free.planned_bytes - 200_000).plan(x)):
            kinds = plan.by_kind()
            assert sum(kinds.values()) == plan.planned_bytes
            assert min(kinds.values()) >= 0
            assert kinds["inputs"] == x.numpy().nbytes
            assert weights <= kinds["parameters"] <= weights + 1024  # the optimizer's numbers too
            assert 2 * weights <= kinds["states"] <= 2 * weights + 1024  # two moments, and counts
            for kind, size in kinds.items():
                if size:
                    assert f"{kind:<48}" in repr(plan) and f"{size:,}" in plan.html()
