"""Pictures of module graphs: ``graph.html()``, before and after an edit side by side, ``graph.dot()``, and a real browser."""

import json
import operator
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
import megengine.traced_module as tm
from megengine import fx
from megengine._graph.page import time_text
from megengine.fx.experimental.optimization import fuse, remove_dropout
from megengine.reports import graphs

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "</script></span>\"'&\u202e<script>document.body.dataset.broken = 1</script>"


def tensor(*shape):
    return mge.tensor(np.random.RandomState(0).randn(*shape).astype(np.float32))


class Block(M.Module):
    def __init__(self):
        super().__init__()
        self.conv = M.Conv2d(3, 3, 3, padding=1, bias=False)
        self.bn = M.BatchNorm2d(3)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)) + x)


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = Block()
        self.fc = M.Linear(3, 2)

    def forward(self, x):
        x = self.second(self.first(x))
        return self.fc(F.dropout(x.mean(axis=(2, 3)), 0.5, training=self.training))


@fx.wrap
@tm.wrap
def labelled(x, label):
    """A call that takes any text."""
    return x + 1


FACES = {"fx": lambda net, x: fx.symbolic_trace(net), "tm": lambda net, x: tm.trace_module(net, x)}


@pytest.fixture(scope="module", params=FACES)
def graph(request):
    net = Net()
    net.eval()
    return FACES[request.param](net, tensor(1, 3, 8, 8)).graph


def facts(page, side="n"):
    """name -> what the page knows of each row."""
    (data,) = re.findall(r'id="data">(.*?)</script>', page)
    return {fact["name"]: fact for fact in json.loads(data)[side]}


def folded(page):
    """The text of the summary of each module, with how deep it stands."""
    found, depth = [], 0
    for tag, line in re.findall(r"<(/?details)|<summary(.*?)</summary>", page):
        depth += {"details": 1, "/details": -1}.get(tag, 0)
        if line:
            found.append((depth, re.sub(r"<[^>]*>", " ", f"<{line}").split()))
    return found


def test_calls_stand_in_their_modules(graph):
    modules = [line for line in folded(graph.html())]
    assert [depth for depth, _ in modules] == [1, 1] and modules[0][1][-1] != "Module"
    assert modules[0][1][0] in ("first", "first_out")


def test_a_graph_knows_types_lines_and_neighbours(graph):
    page = graph.html(tensor(2, 3, 4, 4))
    (relu, *_) = [fact for name, fact in facts(page).items() if name.startswith("relu")]
    assert "relu(add" in relu["text"] and "float32[2, 3, 4, 4]" in relu["text"]
    assert re.search(r" (ms|µs)$", relu["text"])
    assert "test_graph_page.py" in relu["source"] and "F.relu(self.bn" in relu["source"]
    assert relu["reads"] and relu["users"]


def test_measuring_writes_nothing():
    net = Net()
    for face in FACES.values():
        graph = face(net, tensor(2, 3, 8, 8)).graph
        before = net.first.bn.running_mean.numpy()
        graph.html(tensor(2, 3, 8, 8))
        np.testing.assert_array_equal(net.first.bn.running_mean.numpy(), before)


def test_modules_and_what_is_in_them_are_timed():
    net = Net()
    net.eval()
    for face in FACES.values():
        graph = face(net, tensor(1, 3, 8, 8)).graph
        for row in graph._rows((tensor(1, 3, 8, 8),), 3):
            if row.children:
                inside = [child.seconds for child in row.children if child.seconds]
                assert len(inside) == 4 and row.seconds > 0


def test_a_graph_without_a_module_cannot_be_measured():
    with pytest.raises(fx.GraphError, match="GraphModule"):
        fx.Tracer().trace(Block()).html(tensor(1, 3, 4, 4))


def test_pages_are_sound_whatever_the_graph_says():
    def program(x):
        return labelled(x, HOSTILE)

    class Program(M.Module):
        def forward(self, x):
            return program(x)

    Program.__name__ = HOSTILE
    for face in FACES.values():
        graph = face(Program(), tensor(2)).graph
        for page in (graph.html(title=HOSTILE), graph.html(before=graph, title=HOSTILE)):
            checked = Balance(page)
            assert checked.open == [] and checked.loads == [] and checked.scripts == 2
            page.encode()
        assert '"' not in re.sub(r'\\.|="(\\.|[^"\\])*"|"(\\.|[^"\\])*"', "", graph.dot(HOSTILE))


def test_half_a_surrogate_pair_in_a_title_can_be_written(tmp_path):
    page = fx.symbolic_trace(lambda x: x).graph.html(title="\ud800")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")


def test_times_have_three_digits():
    times = (4e-7, 0.0009994, 0.0009996, 0.9994, 0.9996, 75.23)
    assert list(map(time_text, times)) == ["0.4 µs", "999 µs", "1 ms", "999 ms", "1 s", "75.2 s"]


def statuses(page):
    return {words: int(n) for n, words in re.findall(r"<b>(\d+)</b> ([a-z ]+)</span>", page)}


def test_a_pass_is_shown_beside_what_was_before():
    net = Net()
    net.eval()
    before, after = fx.symbolic_trace(net), fuse(net)
    page = after.graph.html(before=before.graph)
    assert statuses(page) == {
        "removed": 2,
        "added": 0,
        "changed": 2,
        "read other values": 2,
        "the same": 9,
    }
    assert "bias=False" in facts(page, "b")["first_conv"]["was"]
    assert page.count('<div class="pair removed">') == 2


def test_passes_over_traced_modules_are_shown():
    net = Net()
    net.eval()
    traced = tm.trace_module(net, tensor(1, 3, 8, 8))
    page = tm.optimize(traced, "FuseConvBn").graph.html(before=traced.graph)
    told = statuses(page)
    assert told["removed"] >= 2 and told["the same"] > 10


def test_a_transformed_graph_is_aligned_with_its_modules():
    net = Net()
    page = remove_dropout(net).graph.html(before=fx.symbolic_trace(net).graph)
    assert statuses(page) == {
        "removed": 1,
        "added": 0,
        "changed": 0,
        "read other values": 1,
        "the same": 13,
    }


def test_a_replaced_function_is_a_change_and_what_was_put_in_is_added():
    gm = fx.symbolic_trace(lambda x: F.relu(x) + 1)
    before = fx.symbolic_trace(lambda x: F.relu(x) + 1)
    _, relu, add, _ = gm.graph.nodes
    relu.target = F.sigmoid
    with gm.graph.inserting_before(add):
        add.args = (gm.graph.call_function(operator.neg, (relu,)), 1)
    page = gm.graph.html(before=before.graph)
    assert statuses(page) == {
        "removed": 0,
        "added": 1,
        "changed": 1,
        "read other values": 1,
        "the same": 2,
    }
    add.args = (relu, 2)  # another number is another computation
    assert statuses(gm.graph.html(before=before.graph))["changed"] == 2


def test_a_node_that_moved_is_removed_here_and_added_there():
    def graph():
        made = fx.Graph()
        x = made.placeholder("x")
        nodes = [made.call_function(fn, (x,)) for fn in (F.exp, F.relu, F.sin, F.cos)]
        made.output(nodes)
        return made

    before, after = graph(), graph()
    _, first, *_, last, _ = after.nodes
    last.append(first)  # relu, sin, cos, exp
    page = after.html(before=before)
    assert statuses(page) == {
        "removed": 1, "added": 1, "changed": 0, "read other values": 0, "the same": 5,
    }  # fmt: skip


@pytest.mark.parametrize(("count", "folds"), [(4, 0), (5, 1)])
def test_many_inputs_are_folded(count, folds):
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(count)]
    graph.output(graph.call_function(operator.add, (inputs[0], inputs[-1])))
    page = graph.html()
    assert len(folded(page)) == folds and Balance(page).open == []
    assert f"{count} inputs</span>" in page or not folds


def test_10_000_nodes_make_a_page():
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(5_000):
        node = graph.call_function(F.relu, (graph.call_function(operator.neg, (node,)),))
    graph.output(node)
    assert len(graph.html(before=graph)) > len(graph.html()) > 100_000


def test_dot_frames_modules_and_joins_what_is_inside(graph):
    text = graph.dot("net")
    assert text.startswith('digraph "net" {') and text.count("subgraph") == 2
    boxes = re.findall(r'^  "([^"]*)" \[label=', text, re.MULTILINE)
    assert len(boxes) == len(set(boxes)) > 10
    assert text.count("{") == text.count("}") and '"x" -> ' in text
    assert "relu" in text and "attribute" not in graph.dot(ignore_getattr=True)


def test_a_browser_folds_tells_and_compares(tmp_path):
    net = Net()
    net.eval()
    x = tensor(1, 3, 32, 32)
    before, after = fx.symbolic_trace(net), fuse(net)
    asked = """<script>
const say = (key, value) => document.body.dataset[key] = value;
const parts = () => [...document.querySelectorAll("details")].map((part) => part.open).join();
const seen = (id) => row(id).checkVisibility();
const number = (name) => "b" + data.b.findIndex((fact) => fact.name === name);
document.getElementById("fold").click(); say("folded", parts()); say("hidden", seen(number("relu")));
document.querySelector("summary").click(); say("one", parts()); say("shown", seen(number("relu")));
document.getElementById("unfold").click(); say("unfolded", parts());
row(number("relu")).dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); say("told", details.textContent);
row(number("first_conv")).click(); say("pinned", details.textContent);
row(number("relu")).dispatchEvent(new MouseEvent("mouseover", {bubbles: true})); say("kept", details.textContent);
details.querySelector("a").click(); say("followed", pinned === number("x"));
row(number("x")).click(); row(number("first_conv")).click();
const same = document.querySelector(".pair.same");
document.getElementById("changes").click(); say("only", same.checkVisibility()); document.getElementById("changes").click();
document.getElementById("fold").click();
const find = (words) => { search.value = words; search.dispatchEvent(new Event("input")); };
find("BATCHNORM2D"); say("found", document.getElementById("found").textContent);
say("hit", ["first_bn", "first", "x", "fc"].map((name) => seen("a" + data.a.findIndex((fact) => fact.name === name))).join());
find(""); say("all", seen(number("x")) && !document.querySelector(".missed") && !document.getElementById("found").textContent);
</script></body>"""
    page = tmp_path / "graph.html"
    page.write_text(
        after.graph.html(x, before=before.graph, title="Before & after").replace("</body>", asked)
    )
    dom = browse(page, "--dump-dom", page.as_uri())
    said = dict(re.findall(r'data-(\w+)="([^"]*)"', dom.partition("<h1>")[0]))
    assert "broken" not in said
    assert (said["folded"], said["one"], said["unfolded"]) == (
        "false,false",
        "true,false",
        "true,true",
    )
    assert (said["hidden"], said["shown"], said["only"]) == ("false", "true", "false")
    assert (
        "relu(add)" in said["told"]
        and "F.relu(self.bn" in said["told"]
        and "used by" in said["told"]
    )
    assert (
        "before: " in said["pinned"]
        and "bias=False" in said["pinned"]
        and said["kept"] == said["pinned"]
    )
    assert said["followed"] == "true"
    assert (said["found"], said["hit"], said["all"]) == ("2 found", "true,true,false,false", "true")
    picture = ROOT / "build/graph_page.png"
    picture.parent.mkdir(exist_ok=True)
    browse(page, f"--screenshot={picture}", "--window-size=1400,900", page.as_uri())
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


@pytest.mark.parametrize("face", FACES)
def test_the_command_prints_a_saved_graph_and_writes_pages(face, tmp_path, capsys):
    net = Net()
    net.eval()
    saved = FACES[face](net, tensor(1, 3, 8, 8))
    file, page = str(tmp_path / "net"), tmp_path / "net.html"
    saved.save(file)
    assert graphs.run(file, None, None, []) == 0
    text = capsys.readouterr().out
    assert str(saved.graph) in text and (face == "fx" or str(saved.first.graph) in text)
    assert graphs.run(file, str(page), file, ["1,3,8,8"]) == 0
    assert statuses(page.read_text())["changed"] == 0 and "median of 5 runs" in page.read_text()
    with pytest.raises(ValueError, match="'1,x' is not a shape"):
        graphs.run(file, str(page), None, ["1,x"])
    with pytest.raises(ValueError, match="add --html PAGE"):
        graphs.run(file, None, file, [])


def test_the_command_says_why_a_file_is_no_graph(tmp_path):
    (tmp_path / "file").write_text("no graph")
    done = subprocess.run(
        [sys.executable, "-m", "megengine", "graph", tmp_path / "file"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert len(done.stderr) > 10


def test_lines_are_shown_of_programs_only(tmp_path):
    gm = fx.symbolic_trace(lambda x: x + 1)
    for name, is_shown in (("program.py", True), ("secret.txt", False)):
        (tmp_path / name).write_text("the line = 1\n")
        for node in gm.graph.nodes:
            node.source = f"{tmp_path / name}:1"
        assert ("the line" in gm.graph.html()) == is_shown
    node.source = "/dev/zero:1"  # would never end
    gm.graph.html()
