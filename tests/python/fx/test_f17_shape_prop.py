"""F17: shapes and dtypes of all values are noted in the nodes."""

import numpy as np
import pytest
from small_modules import Net, tensor
from zoo import SMALL, TransformerBlock

import megengine as mge
import megengine.functional as F
from megengine import fx
from megengine.fx.passes.shape_prop import ShapeProp


def test_shapes_are_noted_in_nodes():
    net, x = Net(), tensor(2, 3, 5, 5)
    gm = fx.symbolic_trace(net)
    ShapeProp(gm).propagate(x)
    nodes = {node.name: node for node in gm.graph.nodes}
    assert nodes["conv"].shape == nodes["conv"].meta["tensor_meta"].shape == (2, 4, 3, 3)
    assert nodes["conv"].dtype == np.float32 and nodes["fc"].meta["tensor_meta"].device == "xpux:0"
    assert [meta.shape for meta in nodes["split"].meta["tensor_meta"]] == [(2, 1), (2, 1)]
    assert "tensor_meta" not in nodes["scale"].meta and nodes["scale"].meta["type"] is float


class WholeBlocks(fx.Tracer):
    """Attention loops over what `split` gives; the number of items is known in a run only."""

    def is_leaf_module(self, m, module_qualified_name):
        return isinstance(m, TransformerBlock) or super().is_leaf_module(m, module_qualified_name)


@pytest.mark.parametrize("name", sorted(set(SMALL) - {"lstm"}))  # whose forward loops over a shape
def test_shapes_of_the_zoo_are_those_of_a_run(name):
    build, data = SMALL[name]
    net = build()
    net.eval()
    shape, _ = data(2)
    x = tensor(*shape)
    if name in ("bert", "gpt2"):
        x = F.floor(F.abs(x)).astype("int32")
    seen = {}
    for path, module in net.named_modules():

        def note(module, inputs, out, path=path):
            seen[path] = out.shape if isinstance(out, mge.Tensor) else None

        module.register_forward_hook(note)
    net(x)
    gm = fx.GraphModule(net, WholeBlocks().trace(net))
    ShapeProp(gm).propagate(x)
    calls = [node for node in gm.graph.nodes if node.op == "call_module"]
    assert calls
    for node in calls:
        assert node.shape == tuple(seen[node.target]), node.name
    assert gm.graph.output_node.shape == tuple(seen[""])
