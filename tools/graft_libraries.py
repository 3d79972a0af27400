"""Puts oneDNN and oneTBB into a built wheel, so that installing it brings neither three copies of each nor Intel's compiler runtime.

    python tools/graft_libraries.py WHEEL DEBIAN FOLDER    # FOLDER/NAME_OF_THE_WHEEL; needs the packages onednn-cpu-tbb and wheel

DEBIAN is the folder that Debian's package libtbb12 was unpacked into.

oneDNN is under Apache-2.0, which allows changes that are told. Its package holds the library three times, and needs Intel's compiler
runtime (260 MB, proprietary) for 16 functions that the GNU C library has as well; the copy in the wheel is stripped and asks that one.
oneTBB of Intel's package is under a license that allows no changes, and takes 17 MB; that of Debian is under Apache-2.0, and takes 0.2.
"""

import importlib.metadata
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

# What the library calls in Intel's runtime, and nothing else does: the name ends with the GNU library's.
OF_INTEL = {b"_intel_fast_memcpy": b"memcpy", b"_intel_fast_memset": b"memset"}
# Needed libraries whose other names are of the GNU library; a new name is no longer than the old one.
NEEDED = {b"libimf.so": b"libm.so.6", b"libintlc.so.5": b"libc.so.6"}
PACKAGE, LIBRARY = "onednn-cpu-tbb", "libdnnl.so.3"
TBB = "libtbb.so.12"
REPLACED = ("Requires-Dist: onednn-cpu-tbb", "Requires-Dist: intel-cmplr-lib-rt")
CHANGES = f"""{LIBRARY} is oneDNN as {{version}} of the package {PACKAGE} has it, changed: symbols for debugging are removed, and the functions of
libimf and libintlc that it calls are those of the GNU C library.
"""
TBB_NOTICE = f"""{TBB} is oneTBB, as Debian's package libtbb12 has it, unchanged.
"""


def section(image: bytes, wanted: str) -> tuple[int, int]:
    """Where a section of a 64-bit ELF file lies: offset and size."""
    table, entry, count, names = struct.unpack_from("<Q", image, 40)[0], *struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, table + i * entry) for i in range(count)]
    texts = headers[names][4]
    for name, _, _, _, offset, size in headers:
        if image[texts + name : image.index(b"\0", texts + name)] == wanted.encode():
            return offset, size
    raise SystemExit(f"graft_libraries: no section {wanted}")


def without_intel(image: bytes) -> bytes:
    """The library with the GNU library's functions in place of Intel's."""
    changed = bytearray(image)
    texts, length = section(image, ".dynstr")
    symbols, size = section(image, ".dynsym")

    def place(text: bytes) -> int:
        found = image.find(b"\0" + text + b"\0", texts, texts + length)
        if found < 0:
            raise SystemExit(f"graft_libraries: the library does not name {text.decode()}; has it another version?")
        return found + 1 - texts

    shorter = {place(old): place(old) + len(old) - len(new) for old, new in OF_INTEL.items()}
    for symbol in range(symbols, symbols + size, 24):
        (name,) = struct.unpack_from("<I", image, symbol)
        if name in shorter:
            struct.pack_into("<I", changed, symbol, shorter[name])
    for old, new in NEEDED.items():
        at = texts + place(old)
        changed[at : at + len(old)] = new.ljust(len(old), b"\0")
    return bytes(changed)


def graft(wheel: Path, debian: Path, folder: Path) -> None:
    """Write the wheel, with the libraries, their notices and fewer requirements, into the folder."""
    with tempfile.TemporaryDirectory() as place:
        run("unpack", "-d", place, wheel)
        (root,) = Path(place).iterdir()
        (info,) = root.glob("*.dist-info")
        files = [Path(str(file.locate())).resolve() for file in importlib.metadata.files(PACKAGE) or []]
        target, notices = root / "megengine" / LIBRARY, info / "licenses/onednn"
        target.write_bytes(without_intel(next(file for file in files if file.name == LIBRARY).read_bytes()))
        target.chmod(0o755)
        subprocess.run(["strip", "--strip-unneeded", target], check=True)
        notices.mkdir(parents=True)
        for name in ("LICENSE", "THIRD-PARTY-PROGRAMS"):
            (notices / name).write_bytes(next(file for file in files if file.name == name).read_bytes())
        (notices / "CHANGES").write_text(CHANGES.format(version=importlib.metadata.version(PACKAGE)), encoding="utf-8")
        add_tbb(debian, root / "megengine" / TBB, info / "licenses/onetbb")
        metadata = info / "METADATA"
        lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(REPLACED)]
        if len(kept) != len(lines) - len(REPLACED):
            raise SystemExit(f"graft_libraries: {wheel} does not ask for {PACKAGE} and its runtime; is it grafted already?")
        metadata.write_text("".join(kept), encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        run("pack", "-d", folder, root)


def add_tbb(debian: Path, target: Path, notices: Path) -> None:
    """The library of the unpacked package, with its license."""
    (library,) = (path for path in (debian / "usr/lib").rglob(f"{TBB}.*") if not path.is_symlink())
    target.write_bytes(library.read_bytes())
    target.chmod(0o755)
    notices.mkdir(parents=True)
    (notices / "copyright").write_bytes((debian / "usr/share/doc/libtbb12/copyright").read_bytes())
    (notices / "NOTICE").write_text(TBB_NOTICE, encoding="utf-8")


def run(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "wheel", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    graft(*map(Path, sys.argv[1:4]))
