"""Ways to run the functions of a program of torch: each takes a function and gives one to call in its place. They stand alone, as those of ways.py do."""

import re

import torch

from megengine import device
from megengine.torch_backend import backend as megjit

from .ways import Refused


def compiled(backend=megjit, **options):
    torch._dynamo.reset()
    return lambda function: torch.compile(function, backend=backend, **options)


class AtItsLimit:
    """Compiled with the least memory that the refusal of a smaller limit names; never beyond it. What torch compiles in parts runs in part before it is refused."""

    def __init__(self, function):
        torch._dynamo.reset()
        self.function, self.limit = function, 1
        self.compile()

    def compile(self):
        torch._dynamo.config.recompile_limit = 64  # a program for each limit, all of one function
        self.run = torch.compile(self.function, backend=megjit, fullgraph=True, options={"memory_limit": self.limit})

    def __call__(self, *args):
        for _ in range(4):
            before = device.get_allocated_memory("cpux")
            device.reset_max_memory_stats("cpux")
            try:
                found = self.run(*args)
            except torch._dynamo.exc.Unsupported as error:
                raise Refused("torch compiles it in parts") from error
            except MemoryError as error:
                refusal = error
                named = [int(number) for number in re.findall(r"(?:at least|which makes|limit to) (\d+)", str(error))]
                if re.search("in one graph data decides sizes, and sizes of arguments change|data decides a size that nothing bounds", str(error)):  # of which no figure is known
                    raise Refused(f"limit: {error}") from error
                if max(named, default=0) <= self.limit:  # a figure that does not help
                    raise
                self.limit = max(named)
                self.compile()
                continue
            beside = device.get_max_allocated_memory("cpux") - before
            if beside > self.limit:
                raise AssertionError(f"the call took {beside} bytes beside what was there, and its limit is {self.limit}")
            return found
        raise refusal
