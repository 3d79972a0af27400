"""One implementation of one case, in a process of its own; harness.py drives it over its pipes.

    python worker.py MODULE CASE IMPLEMENTATION

Reads one JSON command per line and answers each with one line. What libraries print goes to stderr.
"""

import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path


def seconds_waited():
    """For how long threads of this process were ready to run while others had the cores."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return total / 1e9


def measured_functions():
    """The list of our functions that are traced from now on; they are profiled."""
    from megengine.jit import trace

    trace._measured = []
    return trace._measured


def answer_commands(module, case_name, implementation, commands, answers):
    import importlib

    import numpy as np

    case = next(c for c in importlib.import_module(module).CASES if c.name == case_name)
    subject = to_check = None
    functions = []
    for line in commands:
        command = json.loads(line)
        reply = {}
        try:
            if command["do"] == "build":
                functions = measured_functions() if command.get("is_profiled") else []
                subject = case.builders[implementation]()
                checked = case.checked.get(implementation)
                to_check = checked() if checked else subject
            elif command["do"] == "result":
                arrays = {name: np.asarray(a) for name, a in to_check.result().items()}
                np.savez(command["path"], **arrays)
            elif command["do"] == "time":
                waited, start = seconds_waited(), time.perf_counter()
                own = subject.run(command["calls"])
                reply["seconds"] = time.perf_counter() - start if own is None else own
                reply["waited"] = seconds_waited() - waited
            elif command["do"] == "profile":  # of ours, built with is_profiled
                reply["profile"] = functions[0].get_profile()["profiler"]
            reply["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        except BaseException as error:  # the harness reports it in the table and goes on
            traceback.print_exc()
            text = (str(error).strip() or repr(error)).splitlines()[0]
            reply = {"error": f"{type(error).__name__}: {text[:200]}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def main():
    if os.environ.get("BENCH_DEVICE") != "gpu":
        # Two cores for everybody, also on a larger machine. Beside a GPU they only compile.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    answer_commands(*sys.argv[1:4], commands, answers)


if __name__ == "__main__":
    main()
