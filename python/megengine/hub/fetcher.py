"""Bring a repository into the hub's cache, as an archive over HTTPS or by git over SSH.

In: host, "owner/repository:branch", perhaps a commit. Out: the folder. A folder appears only when it is complete.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from typing import NamedTuple
from urllib.parse import quote

from .._files.disk import cache_dir, one_process_at_a_time
from ..logger import get_logger
from ..utils.http_download import HTTPDownloadError, download_from_url
from . import const
from .const import DEFAULT_BRANCH_NAME
from .exceptions import GitCheckoutError, GitPullError, InvalidGitHost, InvalidRepo

_MOST_FILES, _MOST_BYTES = 100_000, 4 << 30  # limits of an unpacked archive

_logger = get_logger(__name__)

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")  # no leading dash: git would take it for an option
_BRANCH = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./-]*")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")


class _Source(NamedTuple):
    host: str
    owner: str
    name: str
    branch: str
    commit: str | None

    @property
    def ref(self) -> str:
        return self.commit or self.branch


def hub_dir() -> str:
    """Folder of the fetched repositories."""
    return cache_dir("hub")


def _identity(path: str) -> int | None:
    """Returns the inode of the folder, which changes when it is fetched again; None if there is no
    folder.
    """
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


class RepoFetcherBase:
    """Base of the fetchers: the cache, and the choice of a branch."""

    @classmethod
    def fetch(
        cls,
        git_host: str,
        repo_info: str,
        use_cache: bool = False,
        commit: str | None = None,
        silent: bool = True,
    ) -> str:
        """Folder of the repository, fetched unless it is in the cache and ``use_cache``.

        Raises InvalidGitHost and InvalidRepo for malformed names, GitPullError and GitCheckoutError when it cannot
        be had.
        """
        if not _HOST.fullmatch(git_host):
            raise InvalidGitHost(
                f"{git_host!r} is not the name of a host; it should look like github.com"
            )
        owner, name, branch = cls._parse_repo_info(repo_info)
        if commit is not None and not _COMMIT.fullmatch(commit):
            raise InvalidRepo(f"commit must be 4 to 40 hexadecimal digits, got {commit!r}")
        source = _Source(git_host, owner, name, branch, commit or None)
        # each source has a folder of its own
        target = os.path.join(hub_dir(), "@".join(quote(part, safe="") for part in source if part))
        before = None if use_cache else _identity(target)
        if _identity(target) != before:
            _logger.debug("%s is in the cache: %s", repo_info, target)
            return target
        with one_process_at_a_time(os.path.basename(target)):
            if _identity(target) != before:  # another process has fetched it for all that waited here
                return target
            os.makedirs(hub_dir(), exist_ok=True)
            with tempfile.TemporaryDirectory(dir=hub_dir(), prefix=".fetch-") as workspace:
                fetched = cls._download(source, workspace, silent)
                if os.path.isdir(target):
                    shutil.rmtree(target)
                os.rename(fetched, target)
        return target

    @classmethod
    def _parse_repo_info(cls, repo_info: str) -> tuple[str, str, str]:
        repo, colon, branch = repo_info.partition(":")
        parts = repo.split("/")
        branch = branch if colon else DEFAULT_BRANCH_NAME
        bad = ".." in branch.split("/") or ".." in parts or not _BRANCH.fullmatch(branch)
        if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts) or bad:
            raise InvalidRepo(
                f'a repository is given as "owner/name" or "owner/name:branch", got {repo_info!r}'
            )
        return parts[0], parts[1], branch

    @classmethod
    def _download(cls, source: _Source, workspace: str, silent: bool) -> str:
        raise TypeError(
            f"{cls.__name__} does not say how to fetch; use GitHTTPSFetcher or GitSSHFetcher"
        )


class GitSSHFetcher(RepoFetcherBase):
    """Fetches with ``git clone`` over SSH, with the user's keys."""

    @classmethod
    def _download(cls, source: _Source, workspace: str, silent: bool) -> str:
        url = f"git@{source.host}:{source.owner}/{source.name}.git"
        folder = os.path.join(workspace, "repository")
        depth = [] if source.commit else ["--depth", "1"]
        _git(["clone", *depth, "--branch", source.branch, "--", url, folder], GitPullError, silent)
        if source.commit:
            _git(["-C", folder, "checkout", "--detach", source.commit], GitCheckoutError, silent)
        return folder


class GitHTTPSFetcher(RepoFetcherBase):
    """Fetches an archive over HTTPS, as GitHub offers it (and GitLab, for hosts called gitlab)."""

    @classmethod
    def _download(cls, source: _Source, workspace: str, silent: bool) -> str:
        archive = os.path.join(workspace, "archive.zip")
        url = cls._url(*source[:3], source.ref)
        if not silent:
            _logger.info("fetching %s", url)
        try:
            download_from_url(url, archive, timeout=const.HTTP_READ_TIMEOUT)
        except HTTPDownloadError as error:
            raise GitPullError(
                f"cannot fetch {source.owner}/{source.name} at {source.ref}: {error}; is the branch right? "
                f'Without one it is "{DEFAULT_BRANCH_NAME}"'
            ) from error
        return _unpacked(archive, os.path.join(workspace, "unpacked"))

    @staticmethod
    def _url(git_host: str, owner: str, name: str, ref: str) -> str:
        if git_host.startswith("gitlab"):
            return f"https://{git_host}/{owner}/{name}/-/archive/{ref}/{name}-{ref.replace('/', '-')}.zip"
        return f"https://{git_host}/{owner}/{name}/archive/{ref}.zip"


def _unpacked(archive: str, folder: str) -> str:
    """The only top folder of an archive."""
    try:
        with zipfile.ZipFile(archive) as content:
            size = sum(member.file_size for member in content.infolist())
            if len(content.infolist()) > _MOST_FILES or size > _MOST_BYTES:
                raise GitPullError(
                    f"the archive holds {len(content.infolist())} files of {size} bytes, and at most {_MOST_FILES} of {_MOST_BYTES} are unpacked\n"
                    "  fix: fetch it by git, with protocol SSH"
                )
            content.extractall(folder)  # keeps members inside of folder
    except zipfile.BadZipFile as error:
        raise GitPullError(f"the host did not send an archive: {error}") from error
    tops = os.listdir(folder)
    if len(tops) != 1 or not os.path.isdir(os.path.join(folder, tops[0])):
        raise GitPullError(f"the archive should hold one folder, it holds {sorted(tops)[:5]}")
    return os.path.join(folder, tops[0])


def _git(arguments: list[str], error: type[Exception], silent: bool) -> None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=silent, text=True)
    except FileNotFoundError:
        raise error("git is not installed; install it, or use protocol HTTPS") from None
    if done.returncode != 0:
        raise error(
            f"git {arguments[0]} failed with code {done.returncode}: {(done.stderr or '').strip()}"
        )
