"""``python -m megengine plan script.py --world 64``: what a training step of a script takes in a
world of that size.

The script runs here, as one process, until enough of its steps are measured; the network is simulated (distributed._forecast).
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import math
import re
import sys
import time
from itertools import accumulate
from statistics import median
from typing import Any

from .. import _core
from ..autodiff import grad_manager
from ..distributed._environment import Place, variables
from ..distributed._forecast import Forecast, Gradient, Network, Step, forecast, largest_pair
from ..distributed.launcher import launcher
from ..jit.report import MemoryPlan
from ..jit.tracing import trace
from ..optimizer.optimizer import Optimizer
from ..tensor import Tensor
from .scripts import Enough, run_script, status_of

_Shape = tuple[int, ...]


@dataclasses.dataclass
class Measured:
    """Measurements of a traced function: its gradients in the order of the parameters, and profiles
    of calls.
    """

    gradients: dict[int, tuple[_Shape, int]] = dataclasses.field(default_factory=dict)  # shape, bytes
    calls: list[list[dict[str, Any]]] = dataclasses.field(default_factory=list)  # a profile for each segment
    # seconds of calls, including Python
    seconds: list[float] = dataclasses.field(default_factory=list)
    # places in the plan of the steps of these profiles
    places: list[list[int]] = dataclasses.field(default_factory=list)
    state_bytes: int = 0  # bytes of the optimizers' states
    device: str = ""


class StepMeasurer:
    """Runs traced calls and measures them. Ends the script after some calls of one that takes
    gradients.
    """

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._running: Measured | None = None
        self.found: dict[trace[..., Any], Measured] = {}

    def __call__(self, function: trace[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        measured = self._running = self.found.setdefault(function, Measured())
        trace._planned_by, begin = None, time.perf_counter()
        try:
            result = function(*args, **kwargs)
        finally:
            trace._planned_by, self._running = self, None
        seconds = time.perf_counter() - begin
        profiles = function._function.profiles()
        places = [[step["step"] for step in profile["steps"]] for profile in profiles]
        if places == measured.places:
            measured.calls.append(profiles)
            measured.seconds.append(seconds)
            measured.state_bytes = measured.state_bytes or _state_bytes()
        else:  # this call has recorded what the next ones run
            measured.places, measured.calls, measured.seconds = places, [], []
        if measured.gradients and len(measured.calls) >= self._repeats:
            raise Enough
        return result

    def note(self, grad: Tensor, of: Tensor) -> None:
        if self._running is not None:
            shape = grad._tuple_shape
            self._running.gradients[id(of)] = shape, grad.dtype.itemsize * math.prod(shape)
            self._running.device = grad._device_name


def _state_bytes() -> int:
    tensors = [
        tensor
        for optimizer in gc.get_objects()
        if isinstance(optimizer, Optimizer)
        for states in optimizer._state.values()
        for tensor in states.values()
    ]
    return sum(tensor.dtype.itemsize * math.prod(tensor._tuple_shape) for tensor in tensors)


def step_of(measured: Measured, plan: MemoryPlan, lengths: list[int]) -> Step:
    """Measures the parts of a step's time, and when its gradients are ready: medians of the calls.
    lengths: steps of each segment.

    Backward lies between the first and the last value that the plan knows as a gradient. A parameter's gradient is there
    with the first step of it that makes something of its shape, or else at its end. What Python does belongs to the update.
    """
    per_call = [_seconds(call, lengths) for call in measured.calls]
    ends = list(accumulate(median(times) for times in zip(*per_call, strict=True)))
    of_backward = {value for buffer in plan.buffers if buffer.use == "gradient" for value in buffer.values}
    made = [number for number, text in enumerate(plan.steps) if text.partition(" (")[0] in of_backward]
    # the whole gradient is computed by one kernel with the update
    first, last = (made[0], made[-1]) if made else (len(plan.steps) - 1,) * 2
    free = list(range(first, last + 1))
    gradients = []
    # backward reaches the last ones first
    for shape, size in reversed(measured.gradients.values()):
        fits = re.compile(rf"\w\[{', '.join(map(str, shape))}\]")
        number = next((number for number in free if fits.search(plan.steps[number])), None)
        if number is not None:
            free.remove(number)
        gradients.append(Gradient(size, ends[last if number is None else number]))
    begin = ends[first - 1] if first else 0.0
    whole = max(ends[-1], median(measured.seconds))
    return Step(begin, ends[last] - begin, whole - ends[last], tuple(gradients))


def _seconds(call: list[dict[str, Any]], lengths: list[int]) -> list[float]:
    """The seconds of each step of the plan. lengths: the number of steps of each segment of a call.
    """
    seconds, base = [0.0] * sum(lengths), 0
    for profile, length in zip(call, lengths, strict=True):
        for step in profile["steps"]:
            if not step["is_transfer"]:
                seconds[base + step["step"]] += step["last_seconds"]
        base += length
    return seconds


def figures(step: Step, plan: MemoryPlan, state: int, network: Network) -> dict[str, Any]:
    """Returns the figures of one traced function for the table and ``--json``. state: bytes of its
    optimizers.
    """
    result: Forecast = forecast(step, network, _core.bucket_sizes())
    whole = plan.planned_bytes + largest_pair(result.buckets)
    return {
        **dataclasses.asdict(network),
        "forward_seconds": step.forward,
        "backward_seconds": step.backward,
        "update_seconds": step.update,
        "gradient_bytes": sum(gradient.bytes for gradient in step.gradients),
        "gradients": len(step.gradients),
        "bucket_bytes": list(result.buckets),
        "exchange_seconds": result.exchange,
        "hidden": result.hidden,
        "bucketed_seconds": result.bucketed,
        "rank_bytes": whole,
        "state_bytes": state,
        "sharded_rank_bytes": whole - state + math.ceil(state / network.processes),
        "fully_sharded_rank_bytes": plan.planned_bytes - _saved_by_parts(step, state, network.processes),
    }


def _saved_by_parts(step: Step, state: int, processes: int) -> int:
    """Returns the bytes that `fully_shard` saves: a process has its part of parameters and state,
    and its part of all gradients waits for the update.

    A layer's whole gradients are in the plan already, and its gathered parameters lie where those lay.
    """
    parameters = sum(gradient.bytes for gradient in step.gradients)
    return parameters + state - math.ceil((2 * parameters + state) / processes)


def table(name: str, found: dict[str, Any]) -> str:
    """The figures as text."""

    def milliseconds(name: str) -> str:
        return f"{found[f'{name}_seconds'] * 1e3:.3f} ms"

    compute = sum(found[f"{part}_seconds"] for part in ("forward", "backward", "update"))
    engine = "on a ring, as NCCL" if found["is_ring"] else "through sockets"
    rows = {
        "compute: forward, backward, update": " + ".join(map(milliseconds, ("forward", "backward", "update"))),
        "gradients": f"{_core.size_text(found['gradient_bytes'])}, tensors: {found['gradients']}, buckets: {len(found['bucket_bytes'])}",
        f"exchange of the buckets, {engine}": f"{milliseconds('exchange')}, {found['hidden']:.0%} of it beside backward",
        "a step, its buckets beside backward": f"{milliseconds('bucketed')}, {found['bucketed_seconds'] / compute:.2f} times one process's",
        "memory of a rank": f"{_core.size_text(found['rank_bytes'])}, of it optimizer state: {_core.size_text(found['state_bytes'])}",
        "the same, its state sharded": _core.size_text(found["sharded_rank_bytes"]),
        "the same, its parameters too (fully_shard)": _core.size_text(found["fully_sharded_rank_bytes"]),
    }
    title = f"{name}: {found['processes']} processes, {found['bandwidth'] / 1e9:g} GB/s, {found['latency'] * 1e6:g} us a message"
    return "\n".join([title, *(f"  {words:<46} {value}" for words, value in rows.items())])


def run(script: str, arguments: list[str], processes: int, bandwidth: float, latency: float, as_json: bool, repeats: int) -> int:
    """Runs the script as one process, and prints what each of its traced steps would take in the world.

    Returns 0 when there was such a step, else 1. Raises OSError when there is no such script, ValueError for a world
    that there cannot be.
    """
    if processes < 1 or repeats < 1 or not bandwidth > 0 or not latency >= 0:
        raise ValueError("--world and --repeats are at least 1, --bandwidth is more than 0 bytes a second, --latency not negative")
    measurer = StepMeasurer(repeats)
    deliver = grad_manager._deliver

    def noted(spec: grad_manager.AttachSpec, tensor: Tensor, grad: Tensor, group: str) -> None:
        measurer.note(grad, tensor)
        deliver(spec, tensor, grad, group)

    trace._measured, trace._planned_by, grad_manager._deliver, launcher._runs_here = [], measurer, noted, True
    # Every call must run the kernels with which it is measured.
    switches = {"MEGJIT_COMPILE": "sync", **variables(Place("127.0.0.1", 0, world_size=1, rank=0, device=0), 1, token="")}
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            end = run_script(script, arguments, **switches)
    finally:
        trace._measured, trace._planned_by, grad_manager._deliver, launcher._runs_here = None, None, deliver, False
    if isinstance(end, (Exception, KeyboardInterrupt)):
        return status_of(end)
    steps = {function: found for function, found in measurer.found.items() if found.gradients and found.calls}
    if not steps:
        print("no traced function has taken gradients twice: the first call records, the second can be measured", file=sys.stderr)
        return 1
    told = []
    for function, found in steps.items():
        network = Network(processes, bandwidth, latency, is_ring=found.device.startswith("gpu"))
        plan = function.memory_plan()
        step = step_of(found, plan, [len(segment["steps"]) for segment in function._function.plans()])
        told.append({"function": function._name_and_line(), **figures(step, plan, found.state_bytes, network)})
    print(json.dumps(told, indent=2) if as_json else "\n".join(table(each["function"], each) for each in told))
    return 0
