"""from_torch where torch is not installed; what it converts is tested in tests/torch (`make test-torch`)."""

import subprocess
import sys


def run(code):
    """In a process that cannot import torch."""
    program = f"import sys; sys.modules['torch'] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_fx_and_its_functions_with_torchs_arguments_do_not_import_torch():
    out = run(
        "from megengine import fx; import megengine.functional as F\n"
        "from megengine.fx.torchlike import FUNCTIONS\n"
        "print(FUNCTIONS['max_pool2d'](F.ones((1, 1, 5, 5)), 2, ceil_mode=True).shape)"
    )
    assert out.strip() == "(1, 1, 3, 3)"


def test_from_torch_without_torch_says_what_is_missing():
    out = run(
        "from megengine import fx\n"
        "try:\n    fx.from_torch(None)\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "from_torch" in out and "pip install torch" in out
