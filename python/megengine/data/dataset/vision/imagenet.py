"""ImageNet (ILSVRC 2012), from its archives or from folders per class."""

from __future__ import annotations

import os
import shutil
import tarfile
from typing import Any

from ...._files.disk import cache_dir
from .folder import ImageFolder
from .utils import calculate_md5, require, safe_extract, untar, untargz


class ImageNet(ImageFolder):
    """ImageNet (ILSVRC 2012; Russakovsky et al. 2015): photographs of 1000 classes; a sample is
    (image, label).

    image: uint8 (H, W, 3), BGR. label: int, 0 to 999, in the order of the WordNet ids.

    Parameters
    ----------
    root : str, PathLike or None
        The folder that holds ``train`` and ``val``, each with one folder per class, or the archives
        named in ``raw_file_meta``, which are unpacked at the first use; None: the user's cache
        folder. The validation images need the archive of the devkit, too, and SciPy.
    train : bool
        True for the training images, False for the validation images.
    **kwargs : object
        Options of `ImageFolder`: check_valid_func and class_name.

    Raises
    ------
    FileNotFoundError
        When there are neither folders nor archives: image-net.org gives the archives to registered
        users only.

    Examples
    --------
    >>> try:
    ...     ImageNet("photos", train=False)
    ... except FileNotFoundError:
    ...     print("put ILSVRC2012_img_val.tar and the devkit's archive there")
    put ILSVRC2012_img_val.tar and the devkit's archive there
    """

    raw_file_meta = {
        "train": ("ILSVRC2012_img_train.tar", "1d675b47d978889d74fa0da5fadfb00e"),
        "val": ("ILSVRC2012_img_val.tar", "29b22e2961454d5413ddabcf34fc5622"),
        "devkit": ("ILSVRC2012_devkit_t12.tar.gz", "fa75699e90414af021442c21a62c3abf"),
    }
    default_train_dir = "train"
    default_val_dir = "val"
    default_devkit_dir = "ILSVRC2012_devkit_t12"

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, **kwargs: Any
    ) -> None:
        self.root = (
            cache_dir("datasets", "ImageNet") if root is None else os.path.expanduser(os.fspath(root))
        )
        self.train = train
        self.devkit_dir = os.path.join(self.root, self.default_devkit_dir)
        self.target_folder = os.path.join(
            self.root, self.default_train_dir if train else self.default_val_dir
        )
        if not os.path.isdir(self.target_folder):
            self._unpack()
        super().__init__(self.target_folder, **kwargs)

    def check_raw_file(self) -> bool:
        """Tells whether the archives that are needed are there and undamaged; it reads all of them."""
        names = ("train",) if self.train else ("val", "devkit")
        files = [
            (os.path.join(self._base(), self.raw_file_meta[name][0]), self.raw_file_meta[name][1])
            for name in names
        ]
        return all(os.path.exists(path) and calculate_md5(path) == md5 for path, md5 in files)

    @property
    def valid_ground_truth(self) -> list[int]:
        """Returns the ILSVRC number (1 to 1000) of the class of each validation image, in order."""
        path = os.path.join(self.devkit_dir, "data", "ILSVRC2012_validation_ground_truth.txt")
        with open(require(path, "ground truth of the validation images")) as file:
            return [int(line) for line in file]

    @property
    def meta(self) -> tuple[dict[int, str], dict[str, tuple[str, ...]]]:
        """Returns, from the devkit, the tuple (ILSVRC number -> WordNet id, WordNet id -> names)."""
        path = require(
            os.path.join(self.devkit_dir, "data", "meta.mat"), "description of the classes"
        )
        try:
            from scipy.io import loadmat
        except ImportError as error:
            raise ImportError(
                "the devkit's meta.mat needs SciPy; install it with: pip install scipy"
            ) from error
        synsets = loadmat(path, squeeze_me=True)["synsets"]
        leaves = [synset for synset in synsets if synset["num_children"] == 0]
        return (
            {int(leaf["ILSVRC2012_ID"]): str(leaf["WNID"]) for leaf in leaves},
            {str(leaf["WNID"]): tuple(str(leaf["words"]).split(", ")) for leaf in leaves},
        )

    def _base(self) -> str:
        return os.path.dirname(self.target_folder)

    def _archive(self, part: str) -> str:
        return require(
            os.path.join(self._base(), self.raw_file_meta[part][0]), f"ImageNet's {part} archive"
        )

    def _unpack(self) -> None:
        """Unpack next to the final folder and rename, so that an interrupted run starts over."""
        archive = self._archive("train" if self.train else "val")
        partial = self.target_folder + ".part"
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
        if self.train:
            self._unpack_train(archive, partial)
        else:
            self._unpack_val(archive, partial)
        os.rename(partial, self.target_folder)

    def _unpack_train(self, archive: str, target: str) -> None:
        with tarfile.open(archive) as outer:
            for member in outer:
                inner = outer.extractfile(member)
                if inner is None:
                    continue
                with tarfile.open(fileobj=inner) as images:
                    safe_extract(
                        images,
                        os.path.join(target, os.path.splitext(os.path.basename(member.name))[0]),
                    )

    def _unpack_val(self, archive: str, target: str) -> None:
        if not os.path.isdir(self.devkit_dir):
            untargz(self._archive("devkit"), self._base())
        wordnet_ids = self.meta[0]
        truth = self.valid_ground_truth
        untar(archive, target)
        images = sorted(
            name for name in os.listdir(target) if not os.path.isdir(os.path.join(target, name))
        )
        if len(images) != len(truth):
            raise ValueError(
                f"{archive} has {len(images)} images but the devkit names {len(truth)}"
            )
        for name, number in zip(images, truth, strict=True):
            folder = os.path.join(target, wordnet_ids[number])
            os.makedirs(folder, exist_ok=True)
            os.rename(os.path.join(target, name), os.path.join(folder, name))
