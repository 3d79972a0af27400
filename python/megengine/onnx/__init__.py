"""ONNX files, out and in. Needs the package ``onnx`` (``pip install megjit[onnx]``), imported when it is used.

``export`` records a model and writes what was recorded; ``load`` makes an ``fx.GraphModule`` of a file.
"""

from ._export import export
from ._load import load
from ._proto import OnnxError

__all__ = ["OnnxError", "export", "load"]
