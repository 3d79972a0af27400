"""A network of several hosts on this machine: namespaces, each with one cable to a bridge, which has a namespace of its own.

In: how many hosts. Out: how to run a command on one, cut its cable, limit the rate of all. Needs root, and `ip` and `tc` of iproute2.
"""

import os
import shutil
import subprocess
from functools import cache


def address(host):
    return f"10.77.0.{host + 1}"


def _do(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


class Network:
    """Use it in a ``with`` block, which removes it, and ends what still runs on its hosts."""

    def __init__(self, hosts=4):
        self.hub = f"megjit-{os.getpid()}-hub"
        self.hosts = [f"megjit-{os.getpid()}-{host}" for host in range(hosts)]

    def __enter__(self):
        try:
            for name in (self.hub, *self.hosts):
                _do("ip", "netns", "add", name)
            _do("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
            _do("ip", "-n", self.hub, "link", "set", "bridge", "up")
            for host, name in enumerate(self.hosts):
                _do("ip", "link", "add", "cable", "netns", name, "type", "veth", "peer", "name", f"port{host}", "netns", self.hub)
                _do("ip", "-n", self.hub, "link", "set", f"port{host}", "master", "bridge", "up")
                _do("ip", "-n", name, "address", "add", f"{address(host)}/24", "dev", "cable")
                for device in ("lo", "cable"):
                    _do("ip", "-n", name, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (self.hub, *self.hosts):
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            for pid in found.stdout.split():
                subprocess.run(["kill", "-9", pid], capture_output=True)
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def on(self, host):
        """What to put before a command that is to run there."""
        return ["ip", "netns", "exec", self.hosts[host]]

    def limit(self, rate):
        """Each cable carries so much in each direction, such as "100mbit"."""
        for host, name in enumerate(self.hosts):
            for namespace, device in ((name, "cable"), (self.hub, f"port{host}")):
                _do("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")

    def cut(self, host):
        """The other end of the host's cable is out of its plug: nothing arrives, and nobody is told."""
        _do("ip", "-n", self.hub, "link", "set", f"port{host}", "down")


@cache
def why_not():
    """Why this machine can have no such network; "" where it can."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} of iproute2 missing"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Network(1) as network:
            network.limit("100mbit")
            _do(*network.on(0), "true")
    except OSError as error:
        return f"no network namespaces, bridges, or rate limits here: {error}"
    return ""
