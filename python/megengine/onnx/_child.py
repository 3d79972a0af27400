"""Runs one tool of the package onnx on a model from stdin, in a process of its own: on hostile models the tools may crash.

Arguments: the tool, and what it takes. Imports nothing of ours; the model, or the reason for failing, goes to stdout.
"""

import sys
from collections.abc import Callable

import onnx
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter


def upgrade(model: onnx.ModelProto, opset: str) -> onnx.ModelProto:
    """Converts a model to a newer opset."""
    return onnx.version_converter.convert_version(model, int(opset))


def inline(model: onnx.ModelProto, *ops: str) -> onnx.ModelProto:
    """Replaces functions of the model by their nodes, and ``ops``, each DOMAIN:OP, by the nodes
    that define them in ONNX.
    """
    if not ops:
        return onnx.inliner.inline_local_functions(model)
    named = [(domain, op) for domain, _, op in (text.rpartition(":") for text in ops)]
    for node in model.graph.node:
        if (node.domain, node.op_type) in named:
            add_defaults(node, model)
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return onnx.inliner.inline_selected_functions(typed, named, exclude=False, inline_schema_functions=True)


def add_defaults(node: onnx.NodeProto, model: onnx.ModelProto) -> None:
    """Adds default attributes, because the inliner leaves references to attributes that a node
    lacks.
    """
    given = {attribute.name for attribute in node.attribute}
    opset = max(entry.version for entry in model.opset_import if entry.domain in (node.domain, node.domain or "ai.onnx"))
    for name, row in onnx.defs.get_schema(node.op_type, opset, node.domain).attributes.items():
        if name not in given and row.default_value.name:
            node.attribute.append(row.default_value)


TOOLS: dict[str, Callable[..., onnx.ModelProto]] = {"upgrade": upgrade, "inline": inline}

if __name__ == "__main__":
    try:
        made = TOOLS[sys.argv[1]](onnx.ModelProto.FromString(sys.stdin.buffer.read()), *sys.argv[2:])
    except Exception as error:
        sys.stdout.write(" ".join(str(error).split()))
        sys.exit(1)
    sys.stdout.buffer.write(made.SerializeToString())
