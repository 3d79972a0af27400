"""Graphs as Graphviz text."""

import pytest
from small_modules import Net, tensor

from megengine import fx
from megengine.fx.passes.graph_drawer import FxGraphDrawer
from megengine.fx.passes.shape_prop import ShapeProp


def test_drawings_show_nodes_edges_and_shapes(tmp_path):
    gm = fx.symbolic_trace(Net())
    ShapeProp(gm).propagate(tensor(2, 3, 5, 5))
    drawn = FxGraphDrawer(gm, "net").get_dot_graph()
    assert '"x" -> "conv"' in drawn and "float32[2, 4, 3, 3]" in drawn.to_string()
    drawn.write(tmp_path / "net.dot")
    assert (tmp_path / "net.dot").read_text() == drawn
    assert "shift" not in FxGraphDrawer(gm, "net", ignore_getattr=True).get_dot_graph()


def test_a_picture_without_graphviz_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    drawn = FxGraphDrawer(fx.symbolic_trace(lambda x: x), "g").get_dot_graph()
    with pytest.raises(RuntimeError, match="Graphviz"):
        drawn.write_svg(tmp_path / "g.svg")
