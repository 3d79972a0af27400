"""Measures the cases in cases/ side by side and prints one table of ratios (README.md).

    .venv-bench/bin/python benchmarks/harness.py [--quick] [--only NAME ...] [--json FILE]

Every implementation of a case is a process of its own. Rounds alternate between them (A B C, C B A, ...) and
only one runs at a time. A ratio is the median over the rounds of ours against the best peer's.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import table
from case import Case, load_cases

HERE = Path(__file__).parent
LONGEST_ANSWER = 900  # seconds until a worker counts as stuck
# A round is repeated when other processes kept ours waiting for a core for longer than this part.
DISTURBED = 0.05


# One bound of the instruction set for ours and for the peers alike (`--isa`).
BOUNDS = {
    "avx2": {
        "MEGJIT_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",  # PyTorch's kernels and torch.compile's
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "HANDMADE_ARCH": "x86-64-v3",
    },
    "avx512": {
        "MEGJIT_ISA": "avx512",
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX512",
        "HANDMADE_ARCH": "x86-64-v4",
    },
}


class WorkerError(Exception):
    pass


class Worker:
    """A process that holds one implementation of one case and answers one command at a time."""

    def __init__(
        self,
        python: str,
        module: str,
        case: Case,
        implementation: str,
        cache: Path,
        bounds: dict,
        ours: str,
        log,
    ):
        place = (
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            if case.device == "gpu"
            else {
                "JAX_PLATFORMS": "cpu",
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "2",
                "MKL_NUM_THREADS": "2",
            }
        )
        environment = {
            **os.environ,
            **place,
            **bounds,
            "XLA_FLAGS": " ".join(
                [
                    "--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads=2",
                    bounds.get("XLA_FLAGS", ""),
                ]
            ),
            "MEGJIT_CACHE_DIR": str(cache / "megjit"),
            # Rounds time the compiled program; a first call is timed as users meet it, beside the compiler.
            "MEGJIT_COMPILE": "async" if case.fresh else "sync",
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "BENCH_OURS": ours,  # for cases in which our package is a guest in a peer's process
        }
        self._process = subprocess.Popen(
            [python, str(HERE / "worker.py"), module, case.name, implementation],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )

    def ask(self, do: str, **arguments) -> dict:
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait(timeout=LONGEST_ANSWER)
            raise WorkerError(f"{do}: the process ended with status {code}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{do}: {answer['error']}")
        return answer

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Measurement:
    """All rounds of one case: seconds per call, per implementation and round."""

    def __init__(self, case: Case, options):
        self.case, self.options = case, options
        self.seconds: dict[str, list[float]] = {}
        self.waited: dict[str, list[float]] = {}
        self.calls: dict[str, int] = {}
        self.peak_mib: dict[str, float] = {}
        self.results: dict[str, dict[str, np.ndarray]] = {}
        self.failed: dict[str, str] = {}
        self.wrong: dict[str, str] = {}

    def rounds(self) -> int:
        return self.case.rounds[1 if self.options.quick else 0]

    def note(self, name: str, answer: dict, calls: int):
        self.seconds.setdefault(name, []).append(answer["seconds"] / calls)
        # What is measured may be nothing, when it is not time.
        waited = 0 if self.case.beside_others else answer["waited"] / (answer["seconds"] or 1)
        self.waited.setdefault(name, []).append(waited)
        self.peak_mib[name] = answer["peak_mib"]

    def quiet(self) -> list[int]:
        """The rounds in which nobody was kept waiting for a core more than it keeps itself."""
        if not self.waited:
            return []
        least = {name: min(parts) for name, parts in self.waited.items()}
        return [
            i
            for i in range(min(len(parts) for parts in self.waited.values()))
            if all(self.waited[name][i] <= least[name] + DISTURBED for name in least)
        ]

    def wanted(self) -> bool:
        """Another round? Disturbed ones are made up for, up to twice the number."""
        done = max((len(s) for s in self.seconds.values()), default=0)
        return len(self.quiet()) < self.rounds() and done < 2 * self.rounds()

    def kept(self) -> list[int]:
        quiet = self.quiet()
        if len(quiet) >= min(3, self.rounds()):
            return quiet
        return list(range(min((len(s) for s in self.seconds.values()), default=0)))

    def compare(self):
        reference = self.results.get(self.case.reference or "")
        if self.case.reference and reference is None:
            self.wrong = {name: "no reference to compare with" for name in self.results}
            return
        for name, arrays in self.results.items():
            for key, right in (reference or {}).items():
                got = arrays.get(key)
                if key.startswith("moved ") and got is not None:
                    text = difference_of_movement(got, right, self.case.moved)
                else:
                    text = difference(got, right, self.case.rtol, self.case.atol)
                if text:
                    self.wrong[name] = f"{key}: {text}"


def difference(got, right, rtol, atol) -> str:
    """What is wrong with ``got``; empty when it agrees with ``right``."""
    if got is None:
        return "missing"
    if got.shape != right.shape:
        return f"shape {got.shape}, not {right.shape}"
    excess = np.abs(got.astype(np.float64) - right) - rtol * np.abs(right)
    worst = float(np.max(excess, initial=0.0)) if np.all(np.isfinite(got)) else np.inf
    return f"off by {worst:.3g} + {rtol:g} x |right|, allowed {atol:g}" if worst > atol else ""


def difference_of_movement(got, right, allowed) -> str:
    """Like difference, of the whole array: relative in the 2-norm."""
    if got.shape != right.shape:
        return f"shape {got.shape}, not {right.shape}"
    off = float(np.linalg.norm(got.astype(np.float64) - right) / np.linalg.norm(right))
    return "" if off <= allowed else f"off by {off:.3g} of the movement, allowed {allowed:g}"


class Harness:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.TemporaryDirectory(prefix="megjit-bench-")
        self.log = open(options.log, "w") if options.log else subprocess.DEVNULL

    def worker(self, module: str, case: Case, name: str, cache: Path | None = None) -> Worker:
        python = self.options.ours if name.startswith("megjit") else sys.executable
        cache = cache or self.warm_cache(name)
        cache.mkdir(parents=True, exist_ok=True)
        bounds = BOUNDS.get(self.options.isa, {})
        return Worker(python, module, case, name, cache, bounds, self.options.ours, self.log)

    def warm_cache(self, name: str) -> Path:
        return Path(self.folder.name) / "warm" / name

    def cold_cache(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder.name))

    def measure(self, module: str, case: Case) -> Measurement:
        measurement = Measurement(case, self.options)
        if measurement.rounds():
            (self.measure_fresh if case.fresh else self.measure_steady)(module, measurement)
            measurement.compare()
        return measurement

    def names(self, case: Case) -> list[str]:
        wanted = self.options.implementations
        return [name for name in case.builders if not wanted or name in wanted]

    def result_of(self, worker: Worker) -> dict[str, np.ndarray]:
        path = Path(self.folder.name) / "result.npz"
        worker.ask("result", path=str(path))
        with np.load(path) as arrays:
            return dict(arrays)

    def measure_steady(self, module: str, m: Measurement):
        """Rounds in processes that stay: only calls after the first ones count."""
        workers: dict[str, Worker] = {}
        for name in self.names(m.case):
            self.say(f"{m.case.name}: {name} starts")
            workers[name] = self.worker(module, m.case, name)
            try:
                workers[name].ask("build")
                m.results[name] = self.result_of(workers[name])
                timed = m.case.unit == "s"
                m.calls[name] = calls_per_round(workers[name], m.case.seconds) if timed else 1
            except WorkerError as error:
                m.failed[name] = str(error)
                workers.pop(name).close()
        try:
            while workers and m.wanted():
                self.say(f"{m.case.name}: round {len(next(iter(m.seconds.values()), [])) + 1}")
                order = list(workers)
                self.one_round(m, workers, order if len(m.quiet()) % 2 else order[::-1])
        finally:
            for worker in workers.values():
                worker.close()

    def one_round(self, m: Measurement, workers: dict[str, Worker], order: list[str]):
        for name in order:
            calls = m.calls[name]
            try:
                if calls > 1:
                    workers[name].ask("time", calls=max(1, calls // 10))
                m.note(name, workers[name].ask("time", calls=calls), calls)
            except WorkerError as error:
                m.failed[name] = str(error)
                m.seconds.pop(name, None)
                m.waited.pop(name, None)
                workers.pop(name).close()
            time.sleep(0.01)  # idle threads of the one before stop spinning

    def measure_fresh(self, module: str, m: Measurement):
        """Every round is the first call in a new process."""
        names = self.names(m.case)
        if m.case.cache == "warm":
            for name in names:
                self.say(f"{m.case.name}: {name} fills its cache")
                self.first_call(module, m, name, self.warm_cache(name))
        m.seconds.clear()
        m.waited.clear()
        while any(name not in m.failed for name in names) and m.wanted():
            for name in names:
                if name not in m.failed:
                    self.say(f"{m.case.name}: {name}, round {len(m.seconds.get(name, [])) + 1}")
                    cold = m.case.cache == "cold"
                    cache = self.cold_cache() if cold else self.warm_cache(name)
                    self.first_call(module, m, name, cache)

    def first_call(self, module: str, m: Measurement, name: str, cache: Path):
        worker = self.worker(module, m.case, name, cache)
        try:
            worker.ask("build")
            m.note(name, worker.ask("time", calls=1), 1)
            if name not in m.results:
                m.results[name] = self.result_of(worker)
        except WorkerError as error:
            m.failed[name] = str(error)
            m.seconds.pop(name, None)
            m.waited.pop(name, None)
        finally:
            worker.close()

    def say(self, text: str):
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def calls_per_round(worker: Worker, seconds: float) -> int:
    """Doubles until a round is long enough; this also warms up."""
    calls, best = 1, worker.ask("time", calls=1)["seconds"]
    while best < seconds / 2 and calls < 10**7:
        calls *= 2
        best = worker.ask("time", calls=calls)["seconds"]
    return max(1, round(calls * seconds / best))


def versions(python: str) -> dict[str, str]:
    program = (
        "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name']: d.version "
        "for d in m.distributions() if d.metadata['Name'] in "
        "('megjit', 'torch', 'jax', 'jaxlib', 'numpy', 'transformers', 'timm', 'torchvision', 'llama_cpp_python', 'peft', 'bitsandbytes')}))"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def about(options) -> dict:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "quick": options.quick,
        "isa": options.isa or "the machine's",
        "versions": {**versions(sys.executable), **versions(options.ours)},
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the longest left out")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cases that begin so")
    parser.add_argument("--implementations", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="whose cases")
    parser.add_argument("--list", action="store_true", help="print names and questions, and stop")
    parser.add_argument(
        "--isa", choices=BOUNDS, help="a bound of the instruction set, for all alike"
    )
    parser.add_argument("--json", default="build/bench.json", help="where all numbers go")
    parser.add_argument("--log", default=None, help="where the workers' stderr goes")
    parser.add_argument("--ours", default=".venv/bin/python", help="the Python that has megengine")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    os.environ["BENCH_DEVICE"] = (
        options.device
    )  # the cases' sizes ask for it, here and in the workers
    cases = load_cases(options.only, options.device)
    if not cases:
        print(
            f"bench: no case of the {options.device} begins with {' or '.join(options.only)}",
            file=sys.stderr,
        )
        return 2
    if options.list:
        for _, question, case in cases:
            print(f"{case.name:20} {question}")
        return 0
    report = {"about": about(options), "cases": {}}
    print(table.heading(report["about"]))
    path = Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    harness, last = Harness(options), None
    for module, question, case in cases:
        if question != last:
            print(table.question(question), flush=True)
            last = question
        entry = table.entry(harness.measure(module, case))
        report["cases"][case.name] = entry
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        harness.say("")
        for line in table.lines(case, report["cases"]):
            print(line, flush=True)
    print(table.verdict(report["cases"]))
    print(f"all numbers are in {options.json}; benchmarks/compare.py compares two such files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
