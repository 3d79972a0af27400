"""What does a dumped model cost without Python: a call, an image of ResNet-18, the start, the memory?

Ours through the C API, by c/model.c. onnxruntime through its Python package, with inputs and outputs bound once; AOTInductor's
package through torch's loader: they call the same C functions, some microseconds apart.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np
from case import Case, Subject, Target
from cases import _c_api, _resnet, inference
from cases import _frameworks as on


def memory():
    """Bytes of private dirty pages of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


def result_of(y):
    y = y.reshape(1, -1)
    return {"output": y / np.abs(y).max()}  # as in inference.py


def megjit(file):
    path = bytes(_c_api.model(file))
    library = _c_api.library()
    x = np.zeros(4, np.float32) if file == "one.dump" else inference.image()
    y = np.zeros(4 if file == "one.dump" else 1000, np.float32)
    loaded = library.load(path, x.ctypes.data, y.ctypes.data)

    def run(calls):
        assert x.size  # lives as long as this function
        library.run(loaded, calls)

    def result():
        run(1)
        return result_of(y)

    return Subject(run, result)


def megjit_once(file, is_memory):
    """Loads and runs once: the seconds of that, or the private dirty pages that it adds over those of its plan."""
    path, x, y = bytes(_c_api.model(file)), inference.image(), np.zeros(1000, np.float32)
    library = _c_api.library()

    def run(calls):
        before, start = memory(), time.perf_counter()
        loaded = library.load(path, x.ctypes.data, y.ctypes.data)
        library.run(loaded, 1)
        seconds = time.perf_counter() - start
        return (memory() - before) / library.planned_bytes(loaded) if is_memory else seconds

    return Subject(run, lambda: result_of(y))


def session():
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(str(_c_api.model("net.onnx")), options, providers=["CPUExecutionProvider"])


def onnxruntime(starts=False):
    x, y = inference.image(), np.zeros((1, 1000), np.float32)

    def bound():
        made = session()
        binding = made.io_binding()
        binding.bind_cpu_input(made.get_inputs()[0].name, x)
        binding.bind_output(made.get_outputs()[0].name, "cpu", 0, np.float32, y.shape, y.ctypes.data)
        return made, binding

    if starts:
        import onnxruntime  # noqa: F401 -- the library is loaded before the clock runs, as ours is

        def run(calls):
            start = time.perf_counter()
            made, binding = bound()
            made.run_with_iobinding(binding)
            return time.perf_counter() - start

        return Subject(run, lambda: result_of(y))
    made, binding = bound()

    def run(calls):
        for _ in range(calls):
            made.run_with_iobinding(binding)

    def result():
        made.run_with_iobinding(binding)
        return result_of(y)

    return Subject(run, result)


def aot_inductor():
    import torch

    on.setup_torch()
    torch.set_grad_enabled(False)

    def put(parameter, array):
        parameter.copy_(torch.from_numpy(array))

    model = inference.model_of(_resnet.RESNET18, torch.nn, torch.relu, lambda x: x.mean((2, 3)), put)
    model = model.to(memory_format=torch.channels_last)  # without freezing: the best of four ways
    x = torch.from_numpy(inference.image()).to(memory_format=torch.channels_last)
    package = torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=str(_c_api.FOLDER / "net.pt2"))
    run = torch._inductor.aoti_load_package(package)
    return inference.subject(run, x, lambda y: y.numpy())


CASES = [
    Case(
        name="c_api_call",
        builders={"megjit": partial(megjit, "one.dump")},
        targets=(Target("C API, a model of one operation", at_most=0.4e-6),),
        reference=None,
    ),
    Case(
        name="c_api_resnet18",
        builders={"megjit": partial(megjit, "net.dump"), "onnxruntime": onnxruntime, "aot_inductor": aot_inductor},
        targets=(
            Target("C API, ResNet-18, one image", against=("onnxruntime",), at_most=0.9),
            Target("C API, ResNet-18, one image", against=("aot_inductor",), at_most=0.8),
        ),
        reference="onnxruntime",
        rtol=1e-3,
        atol=1e-4,
        rounds=(9, 5),
        seconds=0.2,
    ),
    Case(
        name="c_api_start",
        builders={"megjit": partial(megjit_once, "packed.dump", False), "onnxruntime": partial(onnxruntime, True)},
        targets=(Target("C API, packaged ResNet-18, load to first result", against=("onnxruntime",), at_most=0.3),),
        reference="onnxruntime",
        rtol=1e-3,
        atol=1e-4,
        fresh=True,
    ),
    Case(
        name="c_api_memory",
        builders={"megjit": partial(megjit_once, "net.dump", True), "megjit_packaged": partial(megjit_once, "packed.dump", True)},
        targets=(
            Target("C API, ResNet-18, pages over the plan", at_most=1.05),
            Target("C API, packaged ResNet-18, pages over the plan", of="megjit_packaged", at_most=1.05),
        ),
        reference=None,
        fresh=True,
        unit="part",
    ),
]
