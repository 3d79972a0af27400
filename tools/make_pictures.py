"""Draws the pictures that README and the site show (`make pictures`).

In: the installed megengine, the program of README.md and those of examples/. Out: docs/_static/pictures, or the folder given as argument.
Plans are those of `python -m megengine plan`, which runs nothing; two examples draw pictures of their own, and are run for it.
"""

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
THEMES = {  # of GitHub and of the site: words, soft words, the ground of a chart, lines
    "light": ("#1f2328", "#59636e", "#f6f8fa", "#d1d9e0"),
    "dark": ("#f0f6fc", "#9198a1", "#1c2128", "#3d444d"),
}
CARD = 480, 270  # pixels of a picture in the gallery
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
# Each CPU has these, and plans are the same on all of them.
EVERYWHERE = {"MEGJIT_ISA": "avx2", "OMP_NUM_THREADS": "2", "MEGJIT_COMPILE": "sync"}
PLANS = {  # examples that are shown by the plans of their steps: arguments, and words over each plan
    "train_digits": {"--epochs 1": "a training step"},
    "train_resnet50_sublinear": {
        "--width 8 --side 64 --batch 64": "each value kept",
        "--width 8 --side 64 --batch 64 --sublinear": "recomputed",
    },
}


BLOCKS = {  # examples that are shown by a block of their page: the kind of block, and which of these
    "data_parallel": ("console", 0),
    "two_processes": ("text", 1),
    "gpt": ("console", 0),
    "generate": ("console", 0),
    "quantize_to_onnx": ("console", 0),
    "resnet_to_int8": ("text", 0),
    "finetune_torchvision": ("text", 0),
    "finetune_under_a_limit": ("text", 0),
    "finetune_1b": ("text", 0),
    "torch_memory_limit": ("text", 0),
    "extending": ("console", 0),
}


class Plan(NamedTuple):
    """What a plan's page shows."""

    shapes: str  # of the picture of buffers, in a box of 1200 by 460
    top: float  # MiB that the box stands for
    again: str  # the part of all flops that is computed again
    uses: dict[str, str]  # colour by use, of those that occur


def run(*words, into, **more):
    done = subprocess.run([sys.executable, *map(str, words)], cwd=into, env={**os.environ, **EVERYWHERE, "PYTHONPATH": str(ROOT / "examples")}, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr or done.stdout}")
    return done.stdout


def plan_of(script, arguments, into):
    run("-m", "megengine", "plan", "--html", "plan.html", script, *arguments, into=into)
    page = (into / "plan.html").read_text("utf-8")
    chart = re.search(r'<span>([\d.]+) MiB</span><span>0 B</span></div><svg id="arena"[^>]*>(.*?)</svg>', page, re.DOTALL)
    shapes = re.sub(r"<title>.*?</title>| id=\"b\d+\"", "", chart[2], flags=re.DOTALL).replace('"></rect>', '"/>')
    shapes = re.sub(r'<rect [^>]* (?:width|height)="[01]\.\d+"[^>]*/>', "", shapes)  # nothing of them would be seen at this size
    shapes = re.sub(r"(\.\d)\d\b", r"\1", shapes)
    again = re.search(r"as a part of all flops</td><td>([\d.]+)%", page)[1]
    uses = {use: colour for colour, use in re.findall(r'<span style="background:(#\w+)">(\w+)</span>', page) if f'fill="{colour}"' in shapes}
    return Plan(shapes, float(chart[1]), again, uses)


def svg(width, height, theme, body):
    ink, soft, ground, line = THEMES[theme]
    style = (
        f"text{{font:13px {FONT};fill:{ink}}}.soft,.key{{fill:{soft}}}.key{{font-size:12px}}.mono{{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,monospace;white-space:pre}}"
        f".ground{{fill:{ground};stroke:{line}}}.chart{{color:{ink}}}.buffer{{fill-opacity:.85;stroke:{ground};stroke-width:.4;vector-effect:non-scaling-stroke}}"
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"><style>{style}</style>\n{body}\n</svg>\n'


def panel(plan, x, base, width, height, words):
    """A plan over a line at ``base``, as high as it takes bytes; its words stand at the top of the picture."""
    return (
        f'<svg class="chart" x="{x}" y="{base - height:.1f}" width="{width}" height="{height:.1f}" viewBox="0 0 1200 460" preserveAspectRatio="none">'
        f'<rect class="ground" width="1200" height="460" vector-effect="non-scaling-stroke"/>{plan.shapes}</svg>'
        f'<text x="{x}" y="18">{html.escape(words)}</text>'
    )


def words_of(plan, name, wide):
    again = f", {float(plan.again):.0f} %{' computed' if wide else ''} again" if float(plan.again) >= 0.5 else ""
    return f"{name}: {plan.top:.{0 if plan.top >= 10 else 1}f} MiB{again}"


def key(uses, x, y):
    """The colours of the uses in a row."""
    parts = []
    for use, colour in uses.items():
        parts.append(f'<rect x="{x:.0f}" y="{y - 10}" width="11" height="11" rx="2" fill="{colour}" fill-opacity=".85"/><text class="key" x="{x + 16:.0f}" y="{y}">{use}</text>')
        x += 27 + 5.8 * len(use)
    return "".join(parts)


def plans_picture(plans, width, height, limit=None):
    """Plans side by side, at one scale; limit: MiB of a dashed line. A picture for each theme."""
    gap = 40 if len(plans) > 1 else 0
    each, base, room = (width - 20 - gap * (len(plans) - 1)) / len(plans), height - 34, height - 66
    top = max(plan.top for plan in plans.values())
    parts, uses = [], {}
    for i, (name, plan) in enumerate(plans.items()):
        parts.append(panel(plan, 10 + i * (each + gap), base, each, room * plan.top / top, words_of(plan, name, limit is not None)))
        uses.update(plan.uses)
    if limit:
        y = base - room * limit / top
        parts.append(f'<line x1="0" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d1242f" stroke-width="1.5" stroke-dasharray="7 5"/>')
        parts.append(f'<text x="{width - 10}" y="{y - 8:.1f}" text-anchor="end">the limit, {limit} MiB</text>')
    parts.append(key(uses, 10, height - 10))
    return {theme: svg(width, height, theme, "\n".join(parts)) for theme in THEMES}


def program_of_readme(into):
    """Writes README's program by ``trace`` as limited.py, and without its limit as free.py. Returns the limit in MiB."""
    (program, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    asked = re.search(r'memory_limit="(\d+)MB"', program)
    (into / "limited.py").write_text(program, encoding="utf-8")
    (into / "free.py").write_text(program.replace(asked[0], "symbolic=True"), encoding="utf-8")
    return int(asked[1])


def block_picture(lines):
    """What a page shows in a block of text: a session, or a drawing in letters, as large as it fits."""
    shown = [line if len(line) <= 56 else line[:55] + "…" for line in lines[:9]]
    size = min(17.0, (CARD[0] - 32) / 0.602 / max(map(len, shown)))  # a letter is 0.602 of its height wide
    first = CARD[1] / 2 - size * 1.7 * (len(shown) - 1) / 2 + size / 3
    body = f'<rect class="ground" width="{CARD[0]}" height="{CARD[1]}"/>' + "".join(
        f'<text class="mono{" soft" if line.startswith("$") else ""}" style="font-size:{size:.1f}px" x="16" y="{first + 1.7 * size * i:.0f}">{html.escape(line)}</text>'
        for i, line in enumerate(shown)
    )
    return {theme: svg(*CARD, theme, body) for theme in THEMES}


def drawn_by_plans(into):
    """name -> picture by theme, of everything that planning draws."""
    limit = program_of_readme(into)
    plans = {"without a limit": plan_of("free.py", (), into), f"within {limit}MB": plan_of("limited.py", (), into)}
    made = {"limit": plans_picture(plans, 660, 300, limit)}
    for script, runs in PLANS.items():
        shown = {words: plan_of(ROOT / "examples" / f"{script}.py", arguments.split(), into) for arguments, words in runs.items()}
        made[script] = plans_picture(shown, *CARD)
    return made


def drawn_by_blocks():
    """name -> picture by theme, of what pages show."""
    made = {}
    for name, (kind, which) in BLOCKS.items():
        blocks = re.findall(rf"^```{kind}[^\n]*\n(.*?)^```$", (ROOT / f"docs/examples/{name}.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
        made[name] = block_picture(blocks[which].splitlines())
    return made


def drawn_by_examples(into, out):
    """Runs the examples that draw: the loss of a training, two pictures of found shapes."""
    import cv2

    run(ROOT / "examples/classify_images.py", into=into)
    (out / "classify_images.svg").write_text((into / "digits/loss.svg").read_text("utf-8"), encoding="utf-8")
    run(ROOT / "examples/detect_shapes.py", into=into)
    two = [cv2.imread(str(into / f"shapes/{i}.png")) for i in (0, 1)]
    cv2.imwrite(str(out / "detect_shapes.png"), cv2.hconcat(two))


NETWORK = """
import megengine as mge, megengine.functional as F, megengine.module as M
from megengine import fx
from megengine.fx.experimental.optimization import optimize_for_inference

class Block(M.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = M.Conv2d(channels, channels, 3, padding=1)
        self.norm = M.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))

net = M.Sequential(M.Conv2d(3, 8, 3), Block(8), Block(8)).eval()
graph = fx.symbolic_trace(net)
image = F.ones((1, 3, 32, 32))
print(optimize_for_inference(graph).graph.html(image, before=graph.graph))
"""


def write_pages(out):
    """The page of README's plan, and that of a small network beside itself optimized for inference: the site shows both."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        program_of_readme(into)
        run("-m", "megengine", "plan", "--html", "plan.html", "limited.py", into=into)
        (out / "plan.html").write_text((into / "plan.html").read_text("utf-8"), encoding="utf-8")
        (into / "network.py").write_text(NETWORK, encoding="utf-8")
        (out / "graph.html").write_text(run("network.py", into=into), encoding="utf-8")


def main():
    out = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "docs/_static/pictures"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, themes in {**drawn_by_plans(Path(folder)), **drawn_by_blocks()}.items():
            for theme, picture in themes.items():
                (out / f"{name}_{theme}.svg").write_text(picture, encoding="utf-8")
        drawn_by_examples(Path(folder), out)


if __name__ == "__main__":
    main()
