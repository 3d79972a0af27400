"""The arrows between the rooms, as docs/architecture.md draws them; those between Python packages are read there."""

import ast
import functools
import re
from pathlib import Path

import pytest

from megengine import _core

ROOT = Path(__file__).resolve().parents[2]
MAY_INCLUDE = {
    "runtime": set(),
    "memory": {"runtime"},
    "codegen": {"runtime"},
    "backends": {"runtime", "codegen"},
    "jit": {"runtime", "memory", "codegen"},
    "jit/api": {"runtime", "memory", "codegen", "jit", "backends"},
    "python": {"runtime", "memory", "codegen", "jit", "jit/api", "backends"},
}
FOLDERS_OF_RUNTIME = {
    "host": set(),
    "core": {"host"},
    "ops": {"host", "core", "eager"},
    "eager": {"host", "core", "ops"},
}

FOLDERS_OF_JIT = {
    "step": set(),
    "plan": {"step"},
    "run": {"step", "plan"},
    "trace": {"step", "plan", "run"},
    "file": {"step", "plan", "run", "trace"},
}


def sources(room):
    """Its files of C and C++; those of a room within it aside."""
    inner = [ROOT / name for name in MAY_INCLUDE if name.startswith(f"{room}/")]
    return sorted(
        path
        for path in (ROOT / room).rglob("*.*")
        if re.fullmatch(r"\.([ch]|[ch]pp|inl|cu)", path.suffix)
        and not any(path.is_relative_to(folder) for folder in inner)
    )


def room_of(target, rest):
    """The room of ``#include "target/rest``, which may lie within another one."""
    inner = f"{target}/{rest.split('/')[0]}"
    return inner if inner in MAY_INCLUDE else target


def includes(room):
    for path in sources(room):
        for target in re.findall(r'#include "(\w+)/([\w/]*)', path.read_text(encoding="utf-8")):
            yield path.relative_to(ROOT), *target


def test_every_include_follows_the_arrows():
    wrong = [
        f"{path}: {target}/"
        for room, allowed in MAY_INCLUDE.items()
        for path, target in ((path, room_of(first, rest)) for path, first, rest in includes(room))
        if target in MAY_INCLUDE and target != room and target not in allowed
    ]
    assert not wrong, "includes against the arrows:\n" + "\n".join(wrong)


@pytest.mark.parametrize(("room", "arrows"), [("runtime", FOLDERS_OF_RUNTIME), ("jit", FOLDERS_OF_JIT)])
def test_folders_of_a_room_follow_theirs(room, arrows):
    known = [(path, path.parts[1], rest.split("/")[0]) for path, target, rest in includes(room) if target == room]
    wrong = [f"{path}: {to}/" for path, of, to in known if to != of and to not in arrows[of]]
    assert len(known) > 100 and not wrong, "includes against the arrows:\n" + "\n".join(wrong)


def test_no_room_declares_what_it_must_not_include():
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for room, allowed in MAY_INCLUDE.items()
        for path in sources(room)
        for space in re.findall(r"^namespace megjit::(\w+)", path.read_text(encoding="utf-8"), re.M)
        for name in ("jit/api" if space == "api" else space,)
        if name in MAY_INCLUDE and name != room and name not in allowed
    ]
    assert not wrong, "names of rooms that are out of reach:\n" + "\n".join(wrong)


def test_backends_do_not_know_each_other():
    wrong = [
        f"{path}: {rest}"
        for path, target, rest in includes("backends")
        if target == "backends" and rest.split("/")[0] != path.parts[1]
    ]
    assert not wrong, "one backend includes another:\n" + "\n".join(wrong)


def test_nothing_between_ops_and_kernels_knows_an_op_by_its_name():
    """Facts of ops are fields of OpDef; the ops that passes make stand in runtime/ops/known.h, which has no strings."""
    names = {row["name"] for row in _core.op_table()}
    asks = re.compile(r"\bop(?:->|\.)name\s*(?:[!=]=|\.(?:starts_with|ends_with|find|substr))")
    rooms = [path for room in ("jit", "memory", "runtime") for path in sources(room)]
    paths = [path for path in rooms if path.parent.name != "ops"]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(set(paths))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if asks.search(line) or names.intersection(re.findall(r'"([^"]*)"', line.split("//")[0]))
    ]
    assert len(paths) > 100 and not wrong, "ops known by name:\n" + "\n".join(wrong)


def test_locks_are_of_one_kind():
    """runtime/host/mutex.h has ranks and is taken at fork. No forked child comes to a GPU or into a plug-in."""
    apart = re.compile(r"runtime/host/mutex\.cpp|backends/cuda/.*|backends/\w+/plugin\.cpp")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for room in MAY_INCLUDE
        for path in sources(room)
        if not apart.fullmatch(str(path.relative_to(ROOT)))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"std::\w*mutex|pthread_(?:mutex|rwlock|spin)|std::condition_variable\b", line.split("//")[0])
    ]
    assert not wrong, "locks that fork() and MEGJIT_CHECK do not know:\n" + "\n".join(wrong)


# ---- the packages of megengine

PACKAGE = ROOT / "python/megengine"
# All may import these, which import nothing else of ours.
FREE = {
    "_core", "_files.disk", "_words", "core._later", "core._older_names", "core._origin", "core._telling", "logger", "reports.page", "reports.progress", "version",
}  # fmt: skip
FACES = {"__init__", "__main__", "_compat", "reports"}  # import what they show, and nobody imports them


def rows():
    """The table: row -> (its packages in their order, the rows that they may import; with itself where they import each other)."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    found = {}
    for line in text.split("\n| row | packages |")[1].split("\n\n")[0].splitlines()[2:]:
        row, packages, targets = (cell.strip() for cell in line.strip("|").split("|"))
        above = {row if target == "each other" else target for target in targets.split(", ")}
        assert above <= {*found, row}, f"{row} stands on {above - found.keys()}, which stand below it"
        found[row] = re.findall(r"`([\w.]+)`", packages), above
    return found


def allowed_arrows():
    """(package, what it may import)."""
    table = rows()
    for row, (packages, above) in table.items():
        for place, package in enumerate(packages):
            known = packages[:place] + [target for one in above for target in table[one][0]]
            yield from ((package, target) for target in known)


def package_of(module, packages):
    """The longest name among ``packages`` that begins the dotted name."""
    parts = module.split(".")
    starts = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((start for start in starts if start in packages), module)


def imports_of(path):
    """(dotted name within megengine, line, whether it runs) of each import, in functions too; those for type checkers do not run."""
    here = path.relative_to(PACKAGE).with_suffix("").parts
    waiting = [(ast.parse(path.read_text(encoding="utf-8")), True)]
    while waiting:
        node, runs = waiting.pop()
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ["megengine", *here[: len(here) - node.level]] if node.level else []
            start = [*above, node.module] if node.module else above
            names = [".".join([*start, alias.name]) for alias in node.names]
        for name in names:
            if name.split(".")[0] == "megengine":
                yield name.removeprefix("megengine").removeprefix(".") or "__init__", node.lineno, runs
        for_checkers = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) else []
        waiting += ((child, runs and child not in for_checkers) for child in ast.iter_child_nodes(node))


def imported_names(path):
    """(dotted name within megengine, line) of each import that runs."""
    return ((name, line) for name, line, runs in imports_of(path) if runs)


def python_arrows(run=True):
    """(file:line, package, what it imports); ``run=False`` gives those that are for type checkers."""
    packages = FREE | FACES | {package for packages, _ in rows().values() for package in packages}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        package = package_of(module, packages)
        assert package in packages, f"{module} is in no row of the table in docs/architecture.md"
        for name, line, runs in imports_of(path):
            if runs == run and package_of(name, packages) != package:
                yield f"{path.relative_to(PACKAGE)}:{line}", package, package_of(name, packages)


def against(arrows):
    """Those among ``arrows`` that the table does not allow."""
    allowed = set(allowed_arrows())
    return [
        (place, package, target)
        for place, package, target in arrows
        if not (package in FACES or target in FREE or (package, target) in allowed)
    ]


def test_every_import_follows_the_arrows():
    wrong = [f"{place}: {package} imports {target}" for place, package, target in against(python_arrows())]
    assert not wrong, "imports against the arrows:\n" + "\n".join(wrong)


# What stands in an annotation only, and above: what takes such a thing belongs there, unless there is a reason.
NAMED_FROM_BELOW = {
    ("amp", "autodiff"): "a GradScaler multiplies what the caller's GradManager gives",
    ("amp", "module"): "it converts and scales what the caller's network has, by its methods",
    ("distributed", "distributed.checkpoint"): "the package's __getattr__ loads it",
    ("jit", "_compat"): "the finder of older names gives it",
}


def test_annotations_name_what_stands_above_only_with_a_reason():
    found = against(python_arrows(run=False))
    wrong = [f"{place}: {package} names {target}" for place, package, target in found if (package, target) not in NAMED_FROM_BELOW]
    assert not wrong, "annotations against the arrows:\n" + "\n".join(wrong)
    assert NAMED_FROM_BELOW.keys() == {(package, target) for _, package, target in found}


def test_the_table_allows_nothing_that_nobody_needs():
    table, seen = rows(), {(package, target) for _, package, target in python_arrows()}
    idle = [
        f"{row} -> {target}"
        for row, (packages, above) in table.items()
        for target in above
        if not seen & {(one, other) for one in packages for other in table[target][0]}
    ]
    assert len(table) <= 10 and not idle, "arrows in docs/architecture.md without an import:\n" + "\n".join(idle)


def test_the_packages_stand_on_ten_floors():
    """A package stands above the highest one that it imports, packages that import each other on one floor; what all may import, and faces, aside."""
    home = {package: row if row in above else package for row, (packages, above) in rows().items() for package in packages}
    below = {floor: set() for floor in home.values()}
    for _, package, target in python_arrows():
        if package in home and target in home:
            below[home[package]].add(home[target])

    @functools.cache
    def floor(package):
        return 1 + max((floor(target) for target in below[package] - {package}), default=0)

    assert max(map(floor, below)) == 10


# What functions may import: servers and guards, which take longer to load than the rest of their packages together.
SLOW = {"jit.checked_calls", "jit.effects", "jit.guards", "distributed.server", "distributed._joining", "distributed._mpi", "distributed._token"}


def modules():
    """Dotted name -> path of the modules of the engine; a package goes by its own name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] != "_compat":
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def test_no_modules_import_each_other():
    known = modules()
    imports = {
        module: {package_of(name, known) for name, _ in imported_names(path)} & known.keys() - {module, "__init__"}
        for module, path in known.items()
    }
    while ends := {module for module, targets in imports.items() if not targets & imports.keys()}:
        imports = {module: targets for module, targets in imports.items() if module not in ends}
    assert not imports, "a knot is among, or imported by: " + ", ".join(sorted(imports))


def test_functions_import_what_is_slow_to_load_and_nothing_else_of_ours():
    known, found = modules(), set()
    for path in known.values():
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        lines = {line for function in functions for line in range(function.lineno, function.end_lineno + 1)}
        found |= {(package_of(name, known), path, line) for name, line in imported_names(path) if line in lines}
    wrong = [f"{path.relative_to(ROOT)}:{line}: {target}" for target, path, line in found if target not in SLOW]
    assert not wrong and SLOW == {target for target, _, _ in found}, "\n".join(wrong)


def test_the_package_checks_by_exceptions():
    """`python -O` leaves out assert statements: an input that they refuse would pass."""
    statements = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "python/megengine").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert not statements, statements
