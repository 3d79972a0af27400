"""What does it cost two and four processes to add up vectors of 4 kB to 64 MB, beside torch's gloo?

The measured process is rank 0; it starts the others, which follow it: each line that they read is a number of calls.
"""

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
from case import Case, Subject, Target

SIZES = {"4 kB": 4 << 10, "64 kB": 64 << 10, "1 MB": 1 << 20, "4 MB": 4 << 20, "64 MB": 64 << 20}


def vector(rank, count):
    return np.full(count, rank + 1.0, np.float32)


def join_megjit(rank, size, port, count):
    """A function that adds up once, and gives the result."""
    import megengine as mge
    import megengine.distributed as dist

    mge.set_default_device("cpux")
    dist.init_process_group("127.0.0.1", port, size, rank, 0)
    x = mge.tensor(vector(rank, count))
    return lambda: dist.functional.all_reduce_sum(x)


def join_torch(rank, size, port, count):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    x = torch.from_numpy(vector(rank, count))
    out = torch.empty_like(x)  # each call adds up the same

    def add_up():
        out.copy_(x)
        dist.all_reduce(out)
        return out

    return add_up


JOIN = {"megjit": join_megjit, "torch": join_torch}


def subject(implementation, size, count):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    if implementation == "megjit":
        from megengine.distributed import Server

        server = Server()
        port = server.py_server_port
    others = [
        subprocess.Popen(
            [sys.executable, __file__, implementation, *map(str, (rank, size, port, count))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
        )
        for rank in range(1, size)
    ]
    add_up = JOIN[implementation](0, size, port, count)

    def add_up_together(calls):
        for other in others:
            other.stdin.write(f"{calls}\n")
            other.stdin.flush()
        for _ in range(calls):
            result = add_up()
        return result

    def run(calls):
        add_up_together(calls)

    return Subject(run, lambda: {"sum": add_up_together(1).numpy()[:1000]})


CASES = [
    Case(
        name=f"all_reduce_{size}_{label.replace(' ', '')}",
        builders={name: partial(subject, name, size, n // 4) for name in JOIN},
        targets=(Target(f"all-reduce of {label}, {size} processes", against=("torch",), at_most=1.0),),
        seconds=0.2,
        work={"bytes": n},
        beside_others=size > 2,  # on two cores
    )
    for size in (2, 4)
    for label, n in SIZES.items()
]

if __name__ == "__main__":
    step = JOIN[sys.argv[1]](*map(int, sys.argv[2:]))
    for line in sys.stdin:
        for _ in range(int(line)):
            step()
