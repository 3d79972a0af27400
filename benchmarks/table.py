"""From measurements to rows: what ours took, the best peer, their ratio, the target, met or missed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from case import Case, Target

WIDTHS = (44, 20, 28, 16, 10)
TITLES = ("", "measured", "best peer", "ratio", "target")


@dataclass
class Row:
    label: str
    measured: str = ""
    peer: str = ""
    ratio: str = ""
    target: str = ""
    verdict: str = ""


def entry(m) -> dict:
    """A Measurement as plain data for the JSON file; medians and spreads are over the kept rounds."""
    kept = m.kept()
    summary = {}
    for name, seconds in m.seconds.items():
        chosen = [seconds[i] for i in kept]
        summary[name] = {
            "median_s": float(np.median(chosen)) if chosen else None,
            "spread": spread(chosen),
            "rounds_s": seconds,
            "waited": m.waited[name],
            "peak_mib": m.peak_mib.get(name),
        }
    return {
        "implementations": summary,
        "kept_rounds": kept,
        "disturbed": len(m.quiet()) < min(3, m.rounds()),
        "failed": m.failed,
        "wrong": m.wrong,
        "work": dict(m.case.work),
        "unit": m.case.unit,
        "skipped": not m.rounds(),
        "rows": [],
    }


def spread(values) -> float:
    """Half the distance between the quartiles, relative to the median."""
    if not values:
        return 0.0
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / 2 / middle) if middle else 0.0


def lines(case: Case, entries: dict) -> list[str]:
    """The case's rows as text; also kept in its entry."""
    this = entries[case.name]
    rows = [row_of(target, this, entries) for target in case.targets]
    this["rows"] = [asdict(row) for row in rows]
    texts = [text_of(row) for row in rows]
    if len(this["implementations"]) > 1:
        found = this["implementations"].items()
        texts.append(
            "    " + ", ".join(f"{n} {amount_text(f['median_s'], case.unit)}" for n, f in found)
        )
    for kind in ("failed", "wrong"):
        texts += [f"    {kind.upper()} {name}: {why}" for name, why in this[kind].items()]
    if this["disturbed"] and not this["skipped"] and this["implementations"]:
        texts.append("    disturbed: other processes used the cores in most rounds")
    return texts


def row_of(target: Target, this: dict, entries: dict) -> Row:
    row, unit = Row(target.label), this["unit"]
    if target.at_most is not None:
        row.target = (
            f"<= {target.at_most:g}"
            if target.against
            else f"<= {amount_text(target.at_most, unit)}"
        )
    ours = this["implementations"].get(target.of)
    trouble = this["failed"].get(target.of) or this["wrong"].get(target.of)
    if this["skipped"]:
        row.verdict = "left out"
        return row
    if ours:
        row.measured = f"{amount_text(ours['median_s'], unit)} +-{ours['spread']:.0%}"
    if not ours and not trouble:
        row.verdict = "not run"
        return row
    if trouble:
        row.verdict = "WRONG" if target.of in this["wrong"] else "FAILED"
        if target.at_most is not None:
            row.verdict += ", missed"
        return row
    value = ours["median_s"]
    if target.against:
        other = entries.get(target.other_case, {}) if target.other_case else this
        best = best_of(target.against, other)
        if best is None:
            row.verdict = "no peer"
            return row
        ratios = ratio_rounds(ours, other["implementations"][best], this, target)
        value = float(np.median(ratios))
        row.peer = f"{best} {amount_text(other['implementations'][best]['median_s'], unit)}"
        row.ratio = f"{value:.3g} +-{spread(ratios):.0%}"
    elif this["work"]:
        row.ratio = rate_text(this["work"], value)
    if target.at_most is not None:
        row.verdict = "met" if value <= target.at_most else "MISSED"
    return row


def best_of(names, case_entry: dict) -> str | None:
    """The fastest implementation whose results are right."""
    medians = {
        name: found["median_s"]
        for name, found in case_entry.get("implementations", {}).items()
        if name in names and name not in case_entry["wrong"] and name not in case_entry["failed"]
    }
    return min(medians, key=medians.get) if medians else None


def ratio_rounds(ours: dict, peer: dict, this: dict, target: Target) -> list[float]:
    """Round by round where both ran in the same rounds; else of the medians."""
    if target.other_case:
        return [ours["median_s"] / peer["median_s"]]
    return [ours["rounds_s"][i] / peer["rounds_s"][i] for i in this["kept_rounds"]]


def amount_text(amount: float, unit: str) -> str:
    if unit == "part":
        return f"{amount:.2%}"
    return f"{amount / 1e6:.1f} MB" if unit == "B" else time_text(amount)


def time_text(seconds: float) -> str:
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def rate_text(work: dict, seconds: float) -> str:
    units = {"bytes": "GB/s", "flops": "GFLOP/s"}
    return ", ".join(f"{amount / seconds / 1e9:.3g} {units[k]}" for k, amount in work.items())


def text_of(row: Row) -> str:
    cells = (row.label, row.measured, row.peer, row.ratio, row.target)
    padded = "".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))
    return (padded + row.verdict).rstrip()


def heading(about: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    machine = f"{about['processor']}, {about['cores']} cores, two used; load {about['load']:.2f}"
    return f"{machine}\n{versions}\n\n" + text_of(Row(*TITLES))


def question(text: str) -> str:
    return f"\n{text}"


def verdict(entries: dict) -> str:
    verdicts = [row["verdict"] for e in entries.values() for row in e["rows"] if row["target"]]
    met = sum(v == "met" for v in verdicts)
    left_out = sum(v == "left out" for v in verdicts)
    text = f"\n{met} of {len(verdicts) - left_out} targets met"
    return text + (f", {left_out} left out" if left_out else "")
