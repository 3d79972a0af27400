"""python -m programs --judge trace --programs 20000 --seed 1: draws programs, judges them, and prints the smallest form of each that fails.

Each program runs in a child, so that one that crashes or hangs is a finding too. `--replay 17` judges the program of that seed alone and prints it.
Run it from tests/fuzz, with the interpreter that has the package.
"""

import argparse
import json
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .draw import draw, every_row
from .grammar import Program
from .judges import JUDGES, Finding, judged
from .minimize import minimize
from .printed import script
from .run import check_graphs

SECONDS = 600  # without a line: of one program, or while one is made smaller
ROOT = Path(__file__).parents[1]


def small(program: Program, finding: Finding, waiting: bool) -> tuple[Program, Finding]:
    judge = judged(finding.judge, waiting)
    mode = tuple(m for m in judge.modes if m.name == finding.mode)

    def same(candidate: Program) -> list[Finding]:
        try:
            return [f for f in judge.findings(candidate, mode) if f.label == finding.label]
        except Exception:  # the smaller program is none
            return []

    least = minimize(program, lambda candidate: bool(same(candidate)))
    return least, (same(least) or [finding])[0]


def work(judge_name: str, seeds: range, waiting: bool) -> None:
    """The child: tells each seed before it runs it, and each finding, as lines of JSON. The first of each label comes as a script."""
    judge, told = judged(judge_name, waiting), set()
    for seed in seeds:
        print(json.dumps({"seed": seed}), flush=True)
        program = draw(seed, judge.taste)
        for finding in judge.findings(program):
            text = ""
            if finding.label not in told:
                told.add(finding.label)
                text = script(*small(program, finding, waiting))
            print(json.dumps({"finding": [finding.mode, finding.kind], "script": text}), flush=True)


def watched(judge: str, seeds: range, waiting: bool) -> tuple[int, Counter[tuple[str, str]]]:
    """Runs children until all seeds are done, and prints the script of each kind; returns how many programs ran, and how many findings of each kind."""
    done, counts, first = 0, Counter[tuple[str, str]](), seeds.start
    while first < seeds.stop:
        command = [sys.executable, "-m", "programs", "--judge", judge, "--child", f"{first}:{seeds.stop}", *(["--waiting"] * waiting)]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        why = ""
        for line in lines_of(child):
            if line is None:
                why = "hangs"
                child.kill()
                break
            message = json.loads(line)
            if "seed" in message:
                first, done = message["seed"] + 1, done + 1
                continue
            key = tuple(message["finding"])
            counts[key] += 1
            if message["script"] and counts[key] == 1:
                print(message["script"], flush=True)
        if code := child.wait():
            why = why or f"ends with {code}"
            counts["child", why] += 1
            print(f"# the program of seed {first - 1} {why}: --judge {judge} --replay {first - 1}", flush=True)
        else:
            break
    return done, counts


def lines_of(child: "subprocess.Popen[str]") -> Iterator[str | None]:
    """None: where nothing has come for too long."""
    assert child.stdout
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(SECONDS):
                yield None
            elif line := child.stdout.readline():
                yield line
            else:
                return


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m programs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", choices=[*JUDGES, "all"], default="all")
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--replay", type=int, help="print the program of this seed, judge it, print its smallest form")
    parser.add_argument("--waiting", action="store_true", help="with the rows whose faults are not mended yet")
    parser.add_argument("--jobs", type=int, default=1, help="judges at a time")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    check_graphs()
    if given.child:
        start, stop = map(int, given.child.split(":"))
        work(given.judge, range(start, stop), given.waiting)
        return 0
    names = list(JUDGES) if given.judge == "all" else [given.judge]
    if given.replay is not None:
        return replay(names, given.replay, given.waiting)
    seeds = range(given.seed, given.seed + given.programs)
    with ThreadPoolExecutor(given.jobs) as pool:
        bad = sum(pool.map(lambda name: report(name, *watched(name, seeds, given.waiting)), names))
    print(waiting_rows())
    return int(bad > 0)


def report(name: str, done: int, counts: Counter[tuple[str, str]]) -> int:
    print(f"{name}: {done} programs, {counts.total()} findings of {len(counts)} kinds", flush=True)
    for (mode, kind), count in counts.most_common():
        print(f"  {count:5} {mode}: {kind}", flush=True)
    return counts.total()


def replay(names: list[str], seed: int, waiting: bool) -> int:
    bad = 0
    for name in names:
        judge = judged(name, waiting)
        program = draw(seed, judge.taste)
        print(program.text())
        for finding in judge.findings(program):
            bad += 1
            print(script(*small(program, finding, waiting)))
    return int(bad > 0)


def waiting_rows() -> str:
    faults = Counter(row.waits_for for row in every_row() if row.waits_for)
    listed = "".join(f"\n  {count:3} {fault}" for fault, count in faults.items())
    return f"{faults.total()} rows wait for mends; --waiting draws them, too:{listed}" if faults else "no row waits for a mend"


if __name__ == "__main__":
    sys.exit(main())
