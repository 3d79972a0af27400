"""docs/trainers.md: each of its programs trains as eager mode does and keeps its limit, and what the limit refuses makes batches smaller."""

import contextlib
import gc
import io
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).resolve().parents[2] / "docs/trainers.md"
SETUP, HUGGING_FACE, ACCELERATE, LIGHTNING, BLOCKS, PROCESSES, LORA = re.findall(r"^```text python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PROGRAMS = {"transformers": HUGGING_FACE, "accelerate": ACCELERATE, "lightning": LIGHTNING, "torch": BLOCKS, "peft": LORA}  # by what they need
MARKS = ["ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"]  # trainers' own
pytestmark = [pytest.mark.filterwarnings(each) for each in MARKS]


def eagerly(program):
    return re.sub(r'\.compile\(backend="megjit".*\)', ".train()", program)


def with_limit(program, limit):
    return re.sub(r'"memory_limit": "\w+"', f'"memory_limit": "{limit}"', program)


def ran(program, folder):
    """What the program leaves behind."""
    torch._dynamo.reset()
    gc.collect()
    namespace = {"__name__": "page"}
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(SETUP, str(PAGE), "exec"), namespace)
        torch.manual_seed(1)
        exec(compile(program, str(PAGE), "exec"), namespace)
    return namespace


def as_found(program, ours):
    """The program with the batch size that a finder has found, and without the finder."""
    program = re.sub(r"starting_batch_size=\d+", f"starting_batch_size={ours.get('batch_size')}", program)
    return re.sub(r"^Tuner.*\n^batch_size, module = module.batch_size, ", "module = ", program, flags=re.MULTILINE)


@pytest.mark.parametrize("needs", PROGRAMS)
def test_losses_are_those_of_eager_mode_and_finders_make_batches_smaller(needs, tmp_path):
    pytest.importorskip(needs)
    ours = ran(PROGRAMS[needs], tmp_path)
    theirs = ran(as_found(eagerly(PROGRAMS[needs]), ours), tmp_path)
    assert len(ours["losses"]) >= 2
    torch.testing.assert_close(ours["losses"], theirs["losses"], rtol=1e-4, atol=1e-5)
    if needs in ("accelerate", "lightning"):
        assert 256 <= ours["batch_size"] < 640  # as their first one is refused, or the next of 1,024 is
    if needs == "peft":
        kinds = {"lora" in name: each.grad is None for name, each in ours["net"].named_parameters() if not each.requires_grad}
        assert kinds == {False: True}
        trained = [each for each in ours["net"].parameters() if each.requires_grad]
        assert len(trained) == 16 and set(ours["optimizer"].state) == set(trained)


@pytest.mark.parametrize("needs", ["transformers", "torch"])
def test_a_limit_that_is_too_small_is_refused_under_its_own_name(needs, tmp_path):
    """The trainer, and torch's compiler, pass the refusal on as it is."""
    pytest.importorskip(needs)
    with pytest.raises(MemoryError, match=r"at least \d+ bytes") as found:
        ran(with_limit(PROGRAMS[needs], "100KB"), tmp_path)
    assert type(found.value).__name__ == "OutOfMemoryError" and found.value.limit == 102400
    found.value.__traceback__ = None


def test_a_finder_of_hugging_faces_takes_a_refusal_for_a_batch_that_is_too_large(tmp_path):
    pytest.importorskip("transformers")
    settings = "auto_find_batch_size=True, per_device_train_batch_size=640"
    trainer = ran(HUGGING_FACE.replace("per_device_train_batch_size=256", settings), tmp_path)["trainer"]
    assert 256 <= trainer._train_batch_size < 640


def test_the_environment_limits_graphs_that_name_no_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGJIT_MEMORY_LIMIT", "100KB")
    with pytest.raises(MemoryError, match="the limit is 102400 bytes"):
        ran(re.sub(r', options=\{"memory_limit": "\w+"\}', "", BLOCKS), tmp_path)


IN_PROCESSES = r"""
import json, os, re, sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = [sys.argv[1]]
import torch
torch.set_num_threads(1)
import test_trainers as page

EAGER = page.eagerly(page.PROCESSES)
SHARDED = "from torch.distributed.fsdp import fully_shard\n" + page.BLOCKS.replace("optimizer, losses", "    fully_shard(layer)\nfully_shard(net)\noptimizer, losses", 1)
AROUND = re.sub(r"^net\.compile\((.*)\)\n(.*)$", r"\2\nnet = torch.compile(net, \1)", page.PROCESSES, flags=re.MULTILINE)

torch.distributed.init_process_group("gloo")

def losses(program):
    return page.ran(program.replace("dist.init_process_group", "str"), sys.argv[2])["losses"]

def refusal(program):
    try:
        losses(page.with_limit(program, "1MB"))
    except MemoryError as error:
        return str(error)

sharded = SHARDED.replace("data, 256", "data[torch.distributed.get_rank() :: 2], 256")
found = {"sharded": losses(sharded), "refused": [refusal(sharded), refusal(page.PROCESSES), refusal(AROUND)]}
found |= {"eager": losses(EAGER), "inside": losses(page.with_limit(page.PROCESSES, "8MB")), "around": losses(page.with_limit(AROUND, "8MB"))}
print("found", json.dumps(found), flush=True)
torch.distributed.destroy_process_group()
"""


def test_processes_of_both_kinds_train_as_eager_mode_and_buckets_count(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "PYTHONPATH": os.pathsep.join([os.environ["MEGJIT_SITE"], os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", IN_PROCESSES, str(Path(__file__).parent), str(tmp_path)]
    running = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    parameters = 4 * (4 * (2 * 64 + 64 * 256 + 256 + 256 * 64 + 64) + 64 * 10 + 10)
    for each, (printed, errors) in [(each, each.communicate()) for each in running]:
        assert each.returncode == 0, errors
        found = json.loads(printed.partition("found ")[2])
        for name in ("inside", "around", "sharded"):
            torch.testing.assert_close(found[name], found["eager"], rtol=1e-4, atol=1e-5)
        sharded, *wrapped = found["refused"]
        assert "at least" in sharded and "buckets" not in sharded, sharded
        for told in wrapped:  # of all such modules that live
            assert int(re.search(r"buckets of DistributedDataParallel take (\d+) bytes", told)[1]) in (parameters, 2 * parameters), told
