"""PyTorch's programs on CUDA tensors: what torch.compile(backend="megjit") and its neighbours compute there, or what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results import CUT_OFF, LEFT_OUT, ROOT, Part, has_torch, run

ERROR = 1e-4  # of results beside eager mode's


def network() -> tuple[Any, Any, Any]:
    """A model, images and labels, on the CPU, where PyTorch computes what is right."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10)
    )
    return model, torch.randn(16, 3, 8, 8), torch.randint(0, 10, (16,))


def compared(ours: Any, right: Any) -> str:
    ours, right = ours.detach().cpu(), right.detach()
    error = ((ours - right).norm() / right.norm()).item()
    assert error <= ERROR, f"off by {error:.3g}"
    return f"right, off by {error:.2g}"


def forward() -> str:
    """Also on a stream of the caller's."""
    import torch

    model, x, _ = network()
    with torch.no_grad():
        right = model.eval()(x)
        run = torch.compile(model.cuda(), backend="megjit", options={"fallback": False})
        first = compared(run(x.cuda()), right)
        stream = torch.cuda.Stream()
        for _ in range(20):
            with torch.cuda.stream(stream):
                ours = run(x.pin_memory().cuda(non_blocking=True))
            stream.synchronize()
            compared(ours, right)
    return first


def replayed() -> str:
    import torch

    model, x, _ = network()
    with torch.no_grad():
        right = model.eval()(x)
        run, x = torch.compile(model.cuda(), backend="megjit", options={"fallback": False}), x.cuda()
        for _ in range(4):
            run(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ours = run(x)
        graph.replay()
        return compared(ours, right)


def trained(model: Any, x: Any, y: Any, called: Any) -> Any:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(called(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def training(options: dict[str, Any]) -> str:
    import torch

    model, x, y = network()
    ours = network()[0].cuda()
    return compared(trained(ours, x.cuda(), y.cuda(), torch.compile(ours, backend="megjit", options=options)), trained(model, x, y, model))


def whole_step() -> str:
    import torch

    from megengine.torch_backend import step

    model, x, y = network()
    right = trained(model, x, y, model)
    ours = network()[0].cuda()
    train = step(ours, torch.nn.functional.cross_entropy, torch.optim.SGD(ours.parameters(), 0.05))
    for _ in range(5):
        loss = train(x.cuda(), y.cuda())
    return compared(loss, right)


def borrowed() -> str:
    """Both ways, without a copy; each side on its stream."""
    import torch

    from megengine.utils.dlpack import from_dlpack

    right = torch.randn(1 << 20)
    for _ in range(20):
        right = right + 1
        found = compared(torch.from_dlpack(from_dlpack(right.cuda(), copy=False) * 2), right * 2)
    return found


def tested() -> str:
    """The tests of CUDA tensors, which the emulated card has passed."""
    import megengine

    site = Path(megengine.__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "torch" / "cuda")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MEGJIT_SITE": str(site)})
    lines = done.stdout.splitlines() or [f"status {done.returncode}"]
    assert done.returncode == 0, "; ".join(line for line in lines if line.startswith(("FAILED", "ERROR"))) or lines[-1]
    return f"right: {lines[-1]}"


PROGRAMS: dict[str, Callable[[], str]] = {
    "borrowed memory": borrowed,
    "forward without fallback": forward,
    "forward in a CUDA graph": replayed,
    "training without fallback": lambda: training({"fallback": False}),
    "training with fallback": lambda: training({}),
    "training under a limit": lambda: training({"memory_limit": "1GB"}),
    "a whole step": whole_step,
    "tests/torch/cuda": tested,
}


def answer(name: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            print(PROGRAMS[name]())
        except BaseException as error:
            traceback.print_exc()
            text = " ".join(str(error).split())
            print(f"refused: {type(error).__name__}: {text[:600]}")
    for warning in told:
        if "megjit" in str(warning.message):
            print(f"warned: {str(warning.message)[:600]}")


def main(part: Part) -> str:
    if not has_torch():
        return f"{LEFT_OUT}: there is no torch with CUDA"
    said: dict[str, list[str]] = {}
    running = {name: subprocess.Popen([sys.executable, __file__, "--answer", name], stdout=subprocess.PIPE, text=True) for name in PROGRAMS}
    for name, process in running.items():
        try:
            text, _ = process.communicate(timeout=max(1.0, part.left() - 2))
        except subprocess.TimeoutExpired:
            process.kill()
            text = f"{CUT_OFF}: it did not end in time"
        said[name] = text.splitlines() or [f"status {process.returncode}"]
        part.note(programs=said)
    right = sum(lines[0].startswith("right") for lines in said.values())
    return f"{right} of {len(said)} programs are right; " + "; ".join(f"{name}: {lines[0][:80]}" for name, lines in said.items())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        answer(sys.argv[2])
    else:
        sys.exit(run("door", 30, main))
