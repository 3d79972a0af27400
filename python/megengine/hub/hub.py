"""Load what a repository offers in its ``hubconf.py``, and weights by address.

In: "owner/name:branch" or a local folder, and the name of an entry. Out: what the entry returns. A repository is
a program: loading it runs its code. Weights are data: they are checked against the hash in their file name and
loaded without running code.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

from .._files.disk import cache_dir, one_process_at_a_time, replaced
from ..device import get_default_device
from ..logger import get_logger
from ..serialization import load as _load_serialized
from ..utils.http_download import download_from_url
from .const import DEFAULT_GIT_HOST, DEFAULT_PROTOCOL, HUBCONF, HUBDEPENDENCY
from .exceptions import InvalidProtocol
from .fetcher import GitHTTPSFetcher, GitSSHFetcher, hub_dir
from .tools import check_module_exists, import_path, load_module

__all__ = ["list", "load", "help", "load_serialized_obj_from_url", "pretrained", "import_module"]

_logger = get_logger(__name__)

_FETCHERS = {"HTTPS": GitHTTPSFetcher, "SSH": GitSSHFetcher}

# A name such as resnet18_naiveaug_70312_78a63ca6.pkl ends with the beginning of its hash.
_HASH = re.compile(r"[-_]([0-9a-f]{8,64})$")


def list(
    repo_info: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> builtins.list[str]:
    """Returns the names that a repository offers: the public functions and classes in its
    ``hubconf.py``.

    Parameters
    ----------
    repo_info : str
        "owner/name", "owner/name:branch" (default branch "master") or the path of a local folder.
    git_host : str
        Host of the repository, "github.com" by default.
    use_cache : bool
        Whether to take the copy of an earlier call.
    commit : str or None
        Commit to take instead of the tip of the branch: 4 to 40 hexadecimal digits.
    protocol : str
        How to fetch the repository: "HTTPS" or "SSH".

    Returns
    -------
    list of str
        The names.

    Raises
    ------
    FetcherError
        If the repository cannot be fetched.
    RuntimeError
        If it needs packages that are not installed.

    Notes
    -----
    A repository is a program: this runs its code.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from megengine import hub
    >>> folder = tempfile.TemporaryDirectory()
    >>> conf = pathlib.Path(folder.name, "hubconf.py")
    >>> _ = conf.write_text("def digits(hidden=16): return [64, hidden, 10]")
    >>> hub.list(folder.name)
    ['digits']
    >>> folder.cleanup()
    """
    module = _init_hub(repo_info, git_host, use_cache, commit, protocol)
    return [
        name for name, value in vars(module).items() if callable(value) and not name.startswith("_")
    ]


def load(
    repo_info: str,
    entry: str,
    *args: Any,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    **kwargs: Any,
) -> Any:
    """Calls ``entry(*args, **kwargs)`` of a repository.

    Parameters
    ----------
    repo_info : str
        "owner/name", "owner/name:branch" (default branch "master") or the path of a local folder.
    entry : str
        Name of the entry, one of those that ``list`` returns.
    *args : object
        Positional arguments of the entry.
    git_host : str
        Host of the repository, "github.com" by default.
    use_cache : bool
        Whether to take the copy of an earlier call.
    commit : str or None
        Commit to take instead of the tip of the branch: 4 to 40 hexadecimal digits.
    protocol : str
        How to fetch the repository: "HTTPS" or "SSH".
    **kwargs : object
        Keyword arguments of the entry.

    Returns
    -------
    object
        The result of the entry, for example a model.

    Raises
    ------
    RuntimeError
        For a name that `list` does not return.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from megengine import hub
    >>> folder = tempfile.TemporaryDirectory()
    >>> conf = pathlib.Path(folder.name, "hubconf.py")
    >>> _ = conf.write_text("def digits(hidden=16): return [64, hidden, 10]")
    >>> hub.load(folder.name, "digits", hidden=32)
    [64, 32, 10]
    >>> folder.cleanup()
    """
    module = _init_hub(repo_info, git_host, use_cache, commit, protocol)
    function = _entry_of(module, entry)
    with import_path(
        os.path.dirname(str(module.__file__))
    ):  # entries may import their own modules late
        return function(*args, **kwargs)


def help(
    repo_info: str,
    entry: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> str | None:
    """Returns the docstring of an entry of a repository; None without one.

    Parameters
    ----------
    repo_info : str
        "owner/name", "owner/name:branch" (default branch "master") or the path of a local folder.
    entry : str
        Name of the entry, one of those that ``list`` returns.
    git_host : str
        Host of the repository, "github.com" by default.
    use_cache : bool
        Whether to take the copy of an earlier call.
    commit : str or None
        Commit to take instead of the tip of the branch: 4 to 40 hexadecimal digits.
    protocol : str
        How to fetch the repository: "HTTPS" or "SSH".

    Returns
    -------
    str or None
        The docstring.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from megengine import hub
    >>> folder = tempfile.TemporaryDirectory()
    >>> conf = pathlib.Path(folder.name, "hubconf.py")
    >>> _ = conf.write_text("def digits(): 'A classifier of digits.'")
    >>> hub.help(folder.name, "digits")
    'A classifier of digits.'
    >>> folder.cleanup()
    """
    return _entry_of(_init_hub(repo_info, git_host, use_cache, commit, protocol), entry).__doc__


def import_module(*args: Any, **kwargs: Any) -> ModuleType:
    """Returns ``hubconf.py`` of a repository as a module.

    Parameters
    ----------
    *args : object
        Arguments of `list` by position, such as repo_info.
    **kwargs : object
        Arguments of `list` by name.

    Returns
    -------
    module
        The module.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from megengine import hub
    >>> folder = tempfile.TemporaryDirectory()
    >>> conf = pathlib.Path(folder.name, "hubconf.py")
    >>> _ = conf.write_text("classes = 10")
    >>> hub.import_module(folder.name).classes
    10
    >>> folder.cleanup()
    """
    return _init_hub(*args, **kwargs)


def _init_hub(
    repo_info: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> ModuleType:
    folder = _folder_of(repo_info, git_host, use_cache, commit, protocol)
    conf = os.path.join(folder, HUBCONF)
    if not os.path.isfile(conf):
        raise RuntimeError(
            f"{repo_info} offers nothing to the hub: there is no {HUBCONF} in {folder}"
        )
    _drop_other_repositories(folder)
    module = load_module(HUBCONF.removesuffix(".py"), conf)
    missing = [name for name in getattr(module, HUBDEPENDENCY, []) if not check_module_exists(name)]
    if missing:
        raise RuntimeError(
            f"{repo_info} needs packages that are not installed: pip install {' '.join(missing)}"
        )
    return module


def _folder_of(
    repo_info: str, git_host: str, use_cache: bool, commit: str | None, protocol: str
) -> str:
    local = os.path.expanduser(repo_info)
    if os.path.isfile(os.path.join(local, HUBCONF)) or local.startswith(
        (os.sep, f".{os.sep}", f"..{os.sep}")
    ):
        return os.path.abspath(local)
    if protocol not in _FETCHERS:
        raise InvalidProtocol(f"protocol must be one of {', '.join(_FETCHERS)}, got {protocol!r}")
    return _FETCHERS[protocol].fetch(git_host, repo_info, use_cache, commit)


def _drop_other_repositories(folder: str) -> None:
    """Forgets modules of other repositories: many call their package ``model`` or ``official``."""
    root, folder = os.path.realpath(hub_dir()) + os.sep, os.path.realpath(folder) + os.sep
    for name, module in builtins.list(sys.modules.items()):
        origin = getattr(module, "__file__", None) or next(
            iter(getattr(module, "__path__", [])), None
        )
        if isinstance(origin, str):
            origin = os.path.realpath(origin)
            if origin.startswith(root) and not origin.startswith(folder):
                del sys.modules[name]


def _entry_of(module: ModuleType, entry: str) -> Callable[..., Any]:
    found = getattr(module, entry, None)
    if not callable(found):
        names = [
            name
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        ]
        raise RuntimeError(
            f"the repository has no entry {entry!r}; it has {', '.join(sorted(names))}"
        )
    return found


# ------------------------------------------------------------------------------------------- weights


def load_serialized_obj_from_url(url: str, model_dir: str | os.PathLike[str] | None = None) -> Any:
    """Loads an object (usually a state dict) that ``save`` wrote, from an address.

    Parameters
    ----------
    url : str
        Address of the file. If its name ends in eight or more hexadecimal digits, such as
        model_78a63ca6.pkl, they must agree with the content's SHA-256 (or MD5).
    model_dir : str, PathLike or None
        Folder in which a copy is kept; None: one in the user's cache folder.

    Returns
    -------
    object
        The object, with tensors on the default device.

    Raises
    ------
    RuntimeError
        If the hash does not agree or the file is damaged.
    HTTPDownloadError
        If the file cannot be fetched.
    ValueError
        For an address without a file name.

    Notes
    -----
    No code of the file runs.

    Examples
    --------
    >>> from megengine import hub
    >>> url = "https://example.org/weights_0123abcd.pkl"
    >>> state = hub.load_serialized_obj_from_url(url)  # doctest: +SKIP
    """
    folder = (
        cache_dir("serialized")
        if model_dir is None
        else os.path.expanduser(os.fspath(model_dir))
    )
    name = os.path.basename(unquote(urlsplit(url).path))
    if not name:
        raise ValueError(f"the address names no file: {url!r}")
    path = os.path.join(folder, name)
    if os.path.exists(path):
        _check_hash(path, name, path)
    else:
        with one_process_at_a_time(name):
            _download(url, path)
    return _load_serialized(path, map_location=_default_device())


def _download(url: str, path: str) -> None:
    if os.path.exists(path):  # another process has downloaded it for all that waited
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    _logger.info("downloading %s to %s", url, path)
    with replaced(path) as unchecked:
        download_from_url(url, unchecked)
        _check_hash(unchecked, os.path.basename(path), f"what {url} sent")


def _default_device() -> str:
    return str(get_default_device())


def _check_hash(path: str, name: str, what: str) -> None:
    match = _HASH.search(os.path.splitext(name)[0])
    if match is None:
        return
    digests = [hashlib.sha256(), hashlib.md5(usedforsecurity=False)]
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            for digest in digests:
                digest.update(chunk)
    if not any(digest.hexdigest().startswith(match.group(1)) for digest in digests):
        raise RuntimeError(
            f"{what} is damaged or was replaced: its SHA-256 is {digests[0].hexdigest()}, "
            f"but the name promises {match.group(1)}; delete it and try again"
        )


class pretrained:
    """Decorates a function that makes a model: ``make(pretrained=True)`` loads weights into it.

    Parameters
    ----------
    url : str
        Address of the weights, as for `load_serialized_obj_from_url`.

    Examples
    --------
    >>> import megengine.module as M
    >>> @pretrained("https://example.org/weights_0123abcd.pkl")
    ... def classifier(hidden=16):
    ...     return M.Sequential(M.Linear(64, hidden), M.ReLU(), M.Linear(hidden, 10))
    >>> type(classifier(hidden=32)).__name__  # without weights; nothing is downloaded
    'Sequential'
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def make(pretrained: bool = False, **kwargs: Any) -> Any:
            model = func(**kwargs)
            if pretrained:
                model.load_state_dict(load_serialized_obj_from_url(self.url))
            return model

        return make
