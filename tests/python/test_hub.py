"""Repositories by name and by folder; weights by address, with their hash."""

import functools
import hashlib
import os
import shutil
import time
import zipfile

import numpy as np
import pytest

import megengine.distributed as dist
from megengine import hub
from megengine.hub import exceptions, fetcher
from megengine.hub import hub as implementation
from megengine.serialization import save

CONF = '''
dependencies = ["numpy"]
from helper_of_{name} import SIZE

def net(scale=1):
    """A net of some size."""
    from late_{name} import EXTRA
    return SIZE * scale + EXTRA

def _private():
    pass

number = 3
'''


def write_repository(folder, name="first", size=10):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hubconf.py").write_text(CONF.format(name=name))
    (folder / f"helper_of_{name}.py").write_text(f"SIZE = {size}")
    (folder / f"late_{name}.py").write_text("EXTRA = 1")
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_local_folder_offers_its_public_functions(tmp_path):
    folder = str(write_repository(tmp_path / "repo"))
    assert hub.list(folder) == ["net"]
    assert hub.help(folder, "net") == "A net of some size."
    assert hub.load(folder, "net", scale=2) == 21 and hub.load(folder, "net", 3) == 31
    assert hub.import_module(folder).number == 3


def test_an_unknown_entry_names_those_there_are(tmp_path):
    with pytest.raises(RuntimeError, match="'other'.*net"):
        hub.load(str(write_repository(tmp_path / "repo")), "other")


def test_missing_packages_are_named(tmp_path):
    folder = write_repository(tmp_path / "repo")
    (folder / "hubconf.py").write_text('dependencies = ["numpy", "surely_not_installed"]')
    with pytest.raises(RuntimeError, match="pip install surely_not_installed"):
        hub.list(str(folder))


def test_a_folder_without_hubconf_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="hubconf.py"):
        hub.list(str(tmp_path))


def test_a_cached_repository_is_used_without_the_network(home, monkeypatch):
    write_repository(home / "hub" / "github.com@owner@name@main", "cached", 5)
    monkeypatch.setattr(fetcher, "download_from_url", None)
    assert hub.load("owner/name:main", "net") == 6


def test_an_archive_is_fetched_unpacked_and_kept(home, tmp_path, monkeypatch):
    folder = write_repository(tmp_path / "name-abc", "fetched", 2)
    asked = []

    monkeypatch.setattr(hub.const, "HTTP_READ_TIMEOUT", 7)

    def download(url, path, timeout=None):
        assert timeout == 7
        asked.append(url)
        with zipfile.ZipFile(path, "w") as archive:
            for file in folder.iterdir():
                archive.write(file, f"name-abc/{file.name}")

    monkeypatch.setattr(fetcher, "download_from_url", download)
    assert hub.load("owner/name:dev/x", "net") == 3
    assert hub.load("owner/name:dev/x", "net") == 3
    assert asked == ["https://github.com/owner/name/archive/dev/x.zip"]
    hub.list("owner/name", commit="abcdef12", git_host="gitlab.com")
    assert asked[1] == "https://gitlab.com/owner/name/-/archive/abcdef12/name-abcdef12.zip"
    assert sorted(os.listdir(home / "hub")) == [
        "github.com@owner@name@dev%2Fx",
        "gitlab.com@owner@name@master@abcdef12",
    ]


def test_no_two_sources_share_a_folder(home, tmp_path, monkeypatch):
    sources = ["acme/model:dev_master", "acme/model_dev:master", "acme/model:dev/master", "acme_model/dev:master", "acme/model:dev_master"]
    asked = []

    def download(url, path, timeout=None):
        asked.append(url)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("top/hubconf.py", f"def net(): return {len(asked)}")

    monkeypatch.setattr(fetcher, "download_from_url", download)
    assert [hub.load(source, "net") for source in sources] == [1, 2, 3, 4, 1]


def test_an_archive_that_unpacks_to_too_much_is_refused(home, monkeypatch):
    def download(url, path, timeout=None):
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(3):
                archive.writestr(f"top/{number}.py", "x" * 100)

    monkeypatch.setattr(fetcher, "download_from_url", download)
    for limit in ({"_MOST_FILES": 2}, {"_MOST_BYTES": 299}):
        with monkeypatch.context() as patch:
            patch.setattr(fetcher, *next(iter(limit.items())))
            with pytest.raises(exceptions.GitPullError, match="3 files of 300 bytes"):
                hub.list("owner/name")
    assert not [name for name in os.listdir(home / "hub") if not name.startswith(".")]


def fetched_by_three(home, monkeypatch, module, content, load):
    """What three processes of a world load that nobody has yet; how often it was fetched."""

    def download(url, path, timeout=None):
        with open(home.parent / "asked", "a") as file:
            file.write("x")
        time.sleep(0.2)  # the others come while it is under way, or find it there
        shutil.copy(content, path)

    monkeypatch.setattr(module, "download_from_url", download)
    return dist.launcher(load, n_gpus=3)(), len((home.parent / "asked").read_text())


def test_one_process_fetches_a_repository_for_all(home, tmp_path, monkeypatch):
    folder = write_repository(tmp_path / "name-abc", "shared", 2)
    archive = shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path, folder.name)
    assert fetched_by_three(home, monkeypatch, fetcher, archive, lambda: hub.load("owner/name", "net")) == ([3, 3, 3], 1)


def test_one_process_downloads_weights_for_all(home, tmp_path, monkeypatch):
    save([1, 2], tmp_path / "weights.pkl")
    url = "https://example.org/weights.pkl"
    load = functools.partial(hub.load_serialized_obj_from_url, url)
    assert fetched_by_three(home, monkeypatch, implementation, tmp_path / "weights.pkl", load) == ([[1, 2]] * 3, 1)


def test_a_failed_download_is_a_pull_error_and_leaves_nothing(home, monkeypatch):
    def download(url, path, timeout=None):
        raise fetcher.HTTPDownloadError("no network")

    monkeypatch.setattr(fetcher, "download_from_url", download)
    with pytest.raises(exceptions.GitPullError, match="owner/name at master.*no network"):
        hub.list("owner/name")
    assert os.listdir(home / "hub") == []


@pytest.mark.parametrize(
    "repo",
    ["owner", "a/b/c", "owner/name:", "/name", "own er/name", "o/n:-b", "../name", "o/n:../x"],
)
def test_malformed_names_are_refused(repo):
    with pytest.raises(exceptions.InvalidRepo):
        fetcher.GitHTTPSFetcher.fetch("github.com", repo)


def test_malformed_hosts_and_protocols_are_refused():
    with pytest.raises(exceptions.InvalidGitHost):
        hub.list("owner/name", git_host="git hub")
    with pytest.raises(exceptions.InvalidGitHost):
        fetcher.GitSSHFetcher.fetch("-oProxyCommand=x", "owner/name")
    with pytest.raises(exceptions.InvalidProtocol, match="HTTPS, SSH"):
        hub.list("owner/name", protocol="FTP")


def test_a_ssh_clone_that_fails_is_a_pull_error(monkeypatch):
    monkeypatch.setenv("GIT_SSH_COMMAND", "false")
    with pytest.raises(exceptions.GitPullError):
        fetcher.GitSSHFetcher.fetch("localhost", "owner/name")


def test_packages_of_two_repositories_do_not_mix(home):
    for name, size in (("one", 1), ("two", 2)):
        folder = home / "hub" / f"github.com@owner@{name}@master"
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "__init__.py").write_text(f"SIZE = {size}")
        (folder / "hubconf.py").write_text("from model import SIZE\ndef net(): return SIZE")
    assert [hub.load(f"owner/{name}", "net") for name in ("one", "two", "one")] == [1, 2, 1]


# ------------------------------------------------------------------------------------------- weights


def write_weights(folder, hashed=True):
    path = folder / "weights.pkl"
    save({"w": np.ones(3, "float32")}, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8] if hashed else "00000000"
    return path.rename(folder / f"net_{digest}.pkl")


def test_weights_are_kept_and_loaded_again(tmp_path, home):
    path = write_weights(tmp_path)
    url = path.as_uri()
    assert hub.load_serialized_obj_from_url(url)["w"].tolist() == [1, 1, 1]
    path.unlink()
    assert hub.load_serialized_obj_from_url(url)["w"].tolist() == [1, 1, 1]
    assert os.listdir(home / "serialized") == [path.name]


def test_weights_that_do_not_match_their_name_are_refused(tmp_path):
    path = write_weights(tmp_path, hashed=False)
    with pytest.raises(RuntimeError, match="promises 00000000"):
        hub.load_serialized_obj_from_url(path.as_uri(), tmp_path / "models")
    assert os.listdir(tmp_path / "models") == []


def test_pretrained_loads_weights_on_request(tmp_path):
    class Net:
        state = None

        def load_state_dict(self, state):
            self.state = state

    @hub.pretrained(write_weights(tmp_path).as_uri())
    def net(**options):
        """Doc."""
        assert options == {"width": 2}
        return Net()

    assert net(width=2).state is None
    assert net(pretrained=True, width=2).state["w"].tolist() == [1, 1, 1]
    assert net.__doc__ == "Doc." and implementation.pretrained is hub.pretrained
