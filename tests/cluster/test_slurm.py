"""A world that srun starts: Debian's SLURM with one node, this machine, while the tests run. As root; `make test-cluster` installs it."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONFIGURATION = """
ClusterName=megjit
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Variables for what uses it."""
    if os.geteuid() or not all(map(shutil.which, ("slurmd", "slurmctld", "srun", "munged"))):
        pytest.skip("it needs root and Debian's slurm-wlm")
    folder, host = tmp_path_factory.mktemp("slurm"), os.uname().nodename.split(".")[0]
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, host=host, cpus=os.cpu_count()))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    os.makedirs("/run/munge", exist_ok=True)
    shutil.chown("/run/munge", "munge")
    socket = Path("/run/munge/munge.socket.2")
    if subprocess.run(["munge", "-n"], capture_output=True).returncode:
        subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", f"/usr/sbin/munged --pid-file=/run/munge/of_tests.pid --socket={socket}"], check=True)
    for daemon in ("slurmctld", "slurmd"):
        subprocess.run([daemon], env=environment, check=True)
    yield environment
    for path in (folder / "slurmd.pid", folder / "slurmctld.pid", Path("/run/munge/of_tests.pid")):
        if path.exists():
            os.kill(int(path.read_text()), 15)


PROGRAM = """
import megengine as mge, megengine.distributed as dist
dist.init_process_group()
total = dist.functional.all_reduce_sum(mge.tensor([float(dist.get_rank() + 1)]))
print(f"{dist.get_rank()} of {dist.get_world_size()}: {total.item():g}\\n", end="")
"""


def test_srun_starts_a_world(slurm):
    for _ in range(60):  # the node registers with the controller
        if " idle " in subprocess.run(["sinfo"], env=slurm, capture_output=True, text=True).stdout:
            break
        time.sleep(1)
    done = subprocess.run(["srun", "--ntasks=2", sys.executable, "-c", PROGRAM], env=slurm, capture_output=True, text=True, timeout=120)
    assert sorted(done.stdout.splitlines()) == ["0 of 2: 3", "1 of 2: 3"], done.stderr
