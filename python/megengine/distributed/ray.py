"""Worlds that Ray places: a process for each worker of a placement group, started again from the last checkpoint when one of them dies.

In: a function that calls ``init_process_group()`` as under `megengine.distributed.run`. Out: what it returned, by rank. Ray is imported by
`run` alone: ``pip install 'megjit[ray]'``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..logger import get_logger
from ._environment import LOOPBACK, TOKEN
from ._token import new_token
from .helper import get_free_ports

_LAST_WORDS_SECONDS = 5.0  # time for others to give a reason after one failed


def run(
    train: Callable[..., Any],
    workers: int,
    resources_per_worker: Mapping[str, float] | None = None,
    restarts: int = 0,
    checkpoint: str | None = None,
    timeout: float = 600.0,
) -> list[Any]:
    """Runs a function in a world of processes on a Ray cluster, and returns their results.

    Parameters
    ----------
    train : callable
        Called in each process, with ``checkpoint`` where that is given, else without arguments; it
        calls ``init_process_group()``. It and its results can be pickled by Ray.
    workers : int
        Number of processes, at least 1.
    resources_per_worker : mapping of str to float or None
        As Ray names them: {"CPU": 2, "GPU": 1}; None: one CPU.
    restarts : int
        How many times the whole world starts again after a process or a node has failed.
    checkpoint : str or None
        A folder that all nodes reach: what ``train`` gives `checkpoint.load` and `checkpoint.save`.
    timeout : float
        Seconds that the cluster may take to have the resources free.

    Returns
    -------
    list
        The results, by rank.

    Raises
    ------
    RuntimeError
        If a process fails once more than ``restarts`` allow, with its rank and the reason; if the
        resources are not there in time; without Ray.
    ValueError
        For numbers that cannot be.

    Notes
    -----
    Uses the cluster that ``ray.init`` has connected to, or that ``RAY_ADDRESS`` names ("auto": the
    one that ``ray start`` has started on this machine); where there is neither, a local one is
    started, and ended with the program. Each worker's output is shown by Ray with its rank.

    Examples
    --------
    >>> from megengine.distributed import ray
    >>> try:
    ...     ray.run(print, workers=0)
    ... except ValueError as error:
    ...     print(error)
    ray.run: workers must be at least 1 and restarts at least 0, got 0 and 0
    """
    if workers < 1 or restarts < 0:
        raise ValueError(f"ray.run: workers must be at least 1 and restarts at least 0, got {workers} and {restarts}")
    ray = _imported()
    if not ray.is_initialized():
        # Without an address Ray would wait minutes for the cluster that was last here, and may have crashed.
        ray.init(address=os.environ.get("RAY_ADDRESS") or "local", log_to_driver=True)
    resources = dict(resources_per_worker or {"CPU": 1})
    arguments = () if checkpoint is None else (checkpoint,)
    while True:
        try:
            return _World(ray, workers, resources, timeout).run(train, arguments)
        except _Failed as error:
            if restarts == 0:
                raise RuntimeError(str(error)) from None
            restarts -= 1
            get_logger(__name__).warning("%s\nall processes start again; %d more times at most", error, restarts)


class _Failed(Exception):
    """Raised when a process failed, with its rank and the reason."""


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise RuntimeError(f"ray.run needs Ray: {error}\n  fix: pip install 'megjit[ray]'") from None
    return ray


class _Worker:
    """An actor: one process of the world."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def __repr__(self) -> str:  # Ray begins lines of output with this
        return f"rank {self._rank}"

    def place(self) -> tuple[str, str, int]:
        """Returns (node, its address, a port that is free there)."""
        import ray

        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), get_free_ports(1)[0]

    def run(self, variables: dict[str, str], train: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        os.environ.update(variables)
        return train(*arguments)


class _World:
    """The processes of one attempt, which end with it."""

    def __init__(self, ray: Any, size: int, resources: dict[str, float], seconds: float) -> None:
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._ray = ray
        self._has_gpus = bool(resources.get("GPU"))
        self._group = placement_group([resources] * size, strategy="PACK")
        try:
            ray.get(self._group.ready(), timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            self._end([])
            raise RuntimeError(
                f"ray.run: {size} workers with {resources} each are not free within {seconds:g} s; the cluster has "
                f"{ {name: count for name, count in ray.cluster_resources().items() if name in resources} }"
            ) from None
        more = {name: count for name, count in resources.items() if name not in ("CPU", "GPU")}
        self._workers = [
            ray.remote(_Worker)
            .options(
                num_cpus=resources.get("CPU", 0),
                num_gpus=resources.get("GPU", 0),
                resources=more,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=rank),
            )
            .remote(rank)
            for rank in range(size)
        ]

    def run(self, train: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        ray = self._ray
        try:
            try:
                places = ray.get([worker.place.remote() for worker in self._workers])
            except ray.exceptions.RayActorError as error:
                raise _Failed(f"a process ended before the world began: {error}") from None
            results = [
                worker.run.remote(variables, train, arguments)
                for worker, variables in zip(self._workers, self._variables(places), strict=True)
            ]
            self._watch(results)
            return list(ray.get(results))
        finally:
            self._end(self._workers)

    def _variables(self, places: list[tuple[str, str, int]]) -> list[dict[str, str]]:
        """Returns for each rank the variables that torchrun would set; rank 0 starts the server."""
        nodes = [node for node, _, _ in places]
        _, address, port = places[0]
        token = os.environ.get(TOKEN) or new_token()
        return [
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(len(places)),
                "LOCAL_RANK": "0" if self._has_gpus else str(nodes[:rank].count(nodes[rank])),  # Ray shows each its own GPU alone
                "MASTER_ADDR": LOOPBACK[0] if len(set(nodes)) == 1 else address,
                "MASTER_PORT": str(port),
                TOKEN: token,
            }
            for rank in range(len(places))
        ]

    def _watch(self, results: list[Any]) -> None:
        """Waits until all have ended well. _Failed if one has not: it names the one that was lost,
        else the first that gave a reason.
        """
        ray, waiting = self._ray, list(results)
        failed: dict[int, Any] = {}  # rank -> its error
        while waiting:
            ended, waiting = ray.wait(waiting, timeout=_LAST_WORDS_SECONDS if failed else None)
            for each in ended:
                try:
                    ray.get(each)
                except ray.exceptions.RayError as error:
                    failed[results.index(each)] = error
            is_lost = any(isinstance(error, ray.exceptions.RayActorError) for error in failed.values())
            if failed and (is_lost or not ended):
                break
        if failed:
            lost = [rank for rank, error in failed.items() if isinstance(error, ray.exceptions.RayActorError)]
            rank = (lost or list(failed))[0]
            raise _Failed(f"rank {rank} {'was lost' if lost else 'failed'}: {failed[rank]}")

    def _end(self, workers: list[Any]) -> None:
        from ray.util.placement_group import remove_placement_group

        for worker in workers:
            self._ray.kill(worker)
        remove_placement_group(self._group)
