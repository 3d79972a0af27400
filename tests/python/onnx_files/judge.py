"""What onnxruntime makes of a model."""

import numpy as np
import onnx
import onnxruntime

import megengine as mge
import megengine.onnx

onnxruntime.set_default_logger_severity(3)


def run(proto, *arrays):
    """The results of a model, checked first, for inputs in order."""
    onnx.checker.check_model(proto, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # activations stay float32
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {given.name: array for given, array in zip(session.get_inputs(), arrays, strict=True)})


def agrees(model, *arrays, tolerance=1e-5, **options):
    """Exports ``model`` and compares its one result with onnxruntime's; returns the proto."""
    tensors = [mge.Tensor(array) for array in arrays]
    proto = megengine.onnx.export(model, tensors, **options)
    (found,) = run(proto, *[tensor.numpy() for tensor in tensors])
    expected = model(*tensors).numpy()
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max(initial=0)))
    return proto
