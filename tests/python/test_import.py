"""What `import megengine` does and does not do."""

import subprocess
import sys

import pytest

import megengine.module as M
from megengine import fx

# Each costs 0.5 to 100 ms, and most programs never need it.
SLOW = {
    "cv2", "tqdm", "multiprocessing", "urllib", "xmlrpc", "http", "ssl", "zipfile", "tarfile", "subprocess",
    "numpy.random", "random", "hashlib", "fractions", "uuid", "html", "difflib",
}  # fmt: skip


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_importing_prints_nothing():
    done = run("import megengine")
    assert done.stdout == "" and done.stderr == ""


def test_importing_loads_nothing_slow_that_numpy_does_not():
    done = run(
        "import sys, numpy, ml_dtypes; before = set(sys.modules); import megengine;"
        "print(*set(sys.modules) - before)"
    )
    assert not SLOW & set(done.stdout.split())


def test_submodules_that_load_late_are_attributes():
    run(
        "import megengine as mge; mge.data.DataLoader; mge.hub.load; mge.distributed.Server;"
        "assert {'data', 'hub'} <= set(dir(mge))"
    )


def test_the_launcher_is_the_class_whatever_was_imported_first():
    run(
        "import megengine.distributed.server, megengine.distributed.launcher, megengine.distributed as dist;"
        "assert isinstance(dist.launcher, type) and isinstance(dist.Client, type)"
    )


def test_without_opencv_an_image_function_names_the_extra():
    run(
        "import sys, numpy as np; sys.modules['cv2'] = None\n"
        "from megengine.data.transform.vision import functional as F\n"
        "try: F.resize(np.zeros((4, 4, 3), np.uint8), (2, 2))\n"
        "except ImportError as error: assert \"pip install 'megjit[vision]'\" in str(error)\n"
        "else: raise AssertionError\n"
    )


def test_importing_leaves_the_leaves():
    run(
        "import sys, megengine\n"
        "leaves = ('megengine.module.vision', 'megengine.data', 'megengine.utils.module_stats', 'megengine.utils.profile_analyzer')\n"
        "assert not [name for name in sys.modules if name.startswith(leaves)]\n"
        "import megengine.data\n"
        "assert not [name for name in sys.modules if 'vision' in name and name.startswith(('megengine.data', 'megengine.module'))]\n"
    )


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ("module", "Resize Mixup vision"),
        ("data.dataset", "MNIST VisionDataset vision"),
        ("data.transform", "Compose ToMode VisionTransform vision functional"),
    ],
)
def test_what_loads_late_is_there_for_every_form_of_import(package, names):
    for name in names.split():
        run(
            f"import megengine.{package} as p; assert {name!r} in dir(p); first = p.{name}\n"
            f"from megengine.{package} import {name}; assert {name} is first is vars(p)[{name!r}]\n"
        )
    run(f"from megengine.{package} import {names.split()[0]}")
    run(f"import megengine.{package} as p\ntry: p.Nothing\nexcept AttributeError as error: assert 'Nothing' in str(error)\nelse: raise AssertionError")


def test_a_file_may_name_a_layer_that_is_not_loaded(tmp_path):
    path = str(tmp_path / "net.mge")
    fx.symbolic_trace(M.Sequential(M.Resize((4, 4)), M.ReLU())).save(path)
    run(f"from megengine import fx; assert type(dict(fx.load({path!r}).named_modules())['0']).__name__ == 'Resize'")
