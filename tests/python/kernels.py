"""Kernels of Jupyter for tests."""

import tempfile

import nbclient
from traitlets.config import Config


def execute(notebook, folder):
    """The notebook, executed in ``folder`` by a kernel that is reached by files: another process could take a port before the kernel has it."""
    resources = {"metadata": {"path": str(folder)}}
    with tempfile.TemporaryDirectory() as short:
        by_files = Config({"ConnectionFileMixin": {"transport": "ipc", "ip": f"{short}/kernel"}})
        return nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources, config=by_files).execute()
