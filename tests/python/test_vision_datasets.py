"""Image datasets, read from small files that the tests write in the formats of the originals."""

import gzip
import json
import pickle
import struct
import tarfile

import numpy as np
import pytest

from megengine.data import dataset as D
from megengine.data.dataset.vision.utils import calculate_md5, is_img, untar

cv2 = pytest.importorskip("cv2")


def write_image(path, picture):
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), picture)


def flat(color=(10, 20, 30), height=4, width=6):
    return np.full((height, width, 3), color, np.uint8)


# -------------------------------------------------------------------------------------------- MNIST


def write_mnist(root, count=3, pack=True):
    pixels = np.arange(count * 784).reshape(count, 28, 28) % 256
    images = struct.pack(">4i", 0x803, count, 28, 28) + pixels.astype(np.uint8).tobytes()
    labels = struct.pack(">2i", 0x801, count) + bytes(range(count))
    for stem in ("train", "t10k"):
        for name, data in (
            (f"{stem}-images-idx3-ubyte", images),
            (f"{stem}-labels-idx1-ubyte", labels),
        ):
            if pack:
                with gzip.open(root / (name + ".gz"), "wb") as file:
                    file.write(data)
            else:
                (root / name).write_bytes(data)


@pytest.mark.parametrize("pack", [True, False])
def test_mnist_reads_packed_and_unpacked_files(tmp_path, pack):
    write_mnist(tmp_path, pack=pack)
    dataset = D.MNIST(tmp_path, train=False, download=False)
    picture, label = dataset[2]
    assert (
        len(dataset) == 3
        and label == 2
        and picture.shape == (28, 28, 1)
        and picture.dtype == np.uint8
    )
    assert picture[0, 1, 0] == (2 * 784 + 1) % 256 and dataset.meta["imgs"] == 3


def test_missing_mnist_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="train-images-idx3-ubyte.gz.*download=True"):
        D.MNIST(tmp_path, download=False)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-10], lambda data: b"", lambda data: b"\0" * 50]
)
def test_a_damaged_mnist_file_is_a_value_error(tmp_path, damage):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="train-images"):
        D.MNIST(tmp_path, download=False)


# -------------------------------------------------------------------------------------------- CIFAR


def test_cifar10_gives_bgr_images(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    data = np.zeros((2, 3, 32, 32), np.uint8)
    data[:, 0] = 200  # red
    for name in D.CIFAR10.train_batch:
        (folder / name).write_bytes(
            pickle.dumps({b"data": data.reshape(2, -1), b"labels": [3, 4]}, 2)
        )
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"airplane"]}, 2))
    dataset = D.CIFAR10(tmp_path, download=False)
    picture, label = dataset[1]
    assert len(dataset) == 10 and label == 4 and picture[0, 0].tolist() == [0, 0, 200]
    assert dataset.meta == {b"label_names": [b"airplane"]}


def test_cifar100_gives_classes_and_superclasses(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    batch = {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [42], b"coarse_labels": [7]}
    (folder / "test").write_bytes(pickle.dumps(batch, 2))
    dataset = D.CIFAR100(tmp_path, train=False, download=False)
    assert dataset[0][1:] == (42, 7) and dataset[0][2].dtype == np.int32


def test_a_cifar_file_cannot_run_code(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(RuntimeError, match="system"):
        D.CIFAR10(tmp_path, train=False, download=False)


# ------------------------------------------------------------------------------- folders, ImageNet


def test_an_image_folder_numbers_its_classes_by_name(tmp_path):
    write_image(tmp_path / "dog" / "deep" / "1.png", flat((1, 2, 3)))
    write_image(tmp_path / "cat" / "2.png", flat())
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    dataset = D.ImageFolder(tmp_path)
    assert dataset.class_dict == {"cat": 0, "dog": 1} and [
        label for _, label in dataset.samples
    ] == [0, 1]
    assert dataset[1][0][0, 0].tolist() == [1, 2, 3]
    assert D.ImageFolder(tmp_path, class_name=True)[1][1] == "dog"
    assert len(D.ImageFolder(tmp_path, check_valid_func=lambda path: path.endswith("1.png"))) == 1


def test_an_empty_or_missing_folder_says_what_was_expected(tmp_path):
    with pytest.raises(FileNotFoundError, match="<class>/<image>"):
        D.ImageFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        D.ImageFolder(tmp_path / "nowhere")


def test_a_damaged_image_is_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bad.jpg").write_bytes(b"not an image")
    with pytest.raises(ValueError, match="bad.jpg"):
        D.ImageFolder(tmp_path)[0]


def test_imagenet_reads_folders_and_unpacks_archives(tmp_path):
    write_image(tmp_path / "val" / "n001" / "x.png", flat())
    assert len(D.ImageNet(tmp_path, train=False)) == 1
    write_image(tmp_path / "raw" / "y.JPEG", flat())
    with tarfile.open(tmp_path / "n002.tar", "w") as inner:
        inner.add(tmp_path / "raw" / "y.JPEG", "y.JPEG")
    with tarfile.open(tmp_path / "ILSVRC2012_img_train.tar", "w") as outer:
        outer.add(tmp_path / "n002.tar", "n002.tar")
    dataset = D.ImageNet(tmp_path, train=True)
    assert dataset.class_dict == {"n002": 0} and dataset[0][0].shape == (4, 6, 3)


def test_missing_imagenet_says_which_archive(tmp_path):
    with pytest.raises(FileNotFoundError, match="ILSVRC2012_img_train.tar"):
        D.ImageNet(tmp_path)


# ------------------------------------------------------------------------------------ VOC, Cityscapes


def write_voc(root):
    write_image(root / "JPEGImages" / "a.jpg", flat())
    mask = np.zeros((4, 6, 3), np.uint8)
    mask[0, 0] = (128, 0, 0)[::-1]  # aeroplane, as BGR
    mask[1, 1] = (224, 224, 192)[::-1]
    write_image(root / "SegmentationClass" / "a.png", mask)
    (root / "Annotations").mkdir()
    (root / "Annotations" / "a.xml").write_text(
        "<annotation><object><name>dog</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
        "<part><name>head</name></part></object></annotation>"
    )
    for task in ("Main", "Segmentation"):
        (root / "ImageSets" / task).mkdir(parents=True)
        (root / "ImageSets" / task / "train.txt").write_text("a\n")


def test_voc_gives_boxes_classes_masks_and_info(tmp_path):
    write_voc(tmp_path)
    dataset = D.PascalVOC(
        tmp_path, "train", order=("image", "boxes", "boxes_category", "mask", "info")
    )
    picture, boxes, category, mask, info = dataset[0]
    assert picture.shape == (4, 6, 3) and boxes.tolist() == [[1, 2, 3, 4]]
    assert D.PascalVOC.class_names[category[0] - 1] == "dog" and info == [4, 6, "a.jpg"]
    assert mask.shape == (4, 6, 1) and (mask[0, 0, 0], mask[1, 1, 0], mask[2, 2, 0]) == (1, 255, 0)


def test_voc_colours_are_those_of_the_development_kit():
    assert D.PascalVOC.class_colors[:4] == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    assert D.PascalVOC.class_colors[20] == [0, 64, 128]


def test_unknown_parts_and_lists_are_refused(tmp_path):
    write_voc(tmp_path)
    with pytest.raises(ValueError, match="'depth'"):
        D.PascalVOC(tmp_path, "train", order=("depth",))
    with pytest.raises(FileNotFoundError, match="'test'"):
        D.PascalVOC(tmp_path, "test")


@pytest.mark.parametrize(
    "suffix, stored, expected",
    [("labelTrainIds", 13, 13), ("labelIds", 26, 13), ("labelIds", 0, 255)],
)
def test_cityscapes_masks_hold_training_classes(tmp_path, suffix, stored, expected):
    write_image(tmp_path / "leftImg8bit" / "val" / "ulm" / "ulm_1_leftImg8bit.png", flat())
    write_image(
        tmp_path / "gtFine" / "val" / "ulm" / f"ulm_1_gtFine_{suffix}.png",
        np.full((4, 6), stored, np.uint8),
    )
    dataset = D.Cityscapes(tmp_path, "val", "gtFine", order=("image", "mask", "info"))
    picture, mask, info = dataset[0]
    assert (
        picture.shape == (4, 6, 3)
        and (mask == expected).all()
        and mask.shape == (4, 6, 1)
        and info[:2] == [4, 6]
    )
    assert D.Cityscapes.class_names[13] == "car"


def test_cityscapes_knows_its_sets(tmp_path):
    with pytest.raises(ValueError, match="train_extra"):
        D.Cityscapes(tmp_path, "test", "gtCoarse")


# ---------------------------------------------------------------------------------- COCO, Objects365


def write_coco(root):
    for name in ("a.png", "b.png"):
        write_image(root / name, flat())
    data = {
        "images": [
            {"id": 9, "file_name": "b.png", "height": 4, "width": 6},
            {"id": 5, "file_name": "a.png", "height": 4, "width": 6},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
        "annotations": [
            {
                "image_id": 5,
                "bbox": [1, 1, 2, 3],
                "category_id": 18,
                "iscrowd": 0,
                "keypoints": [1, 1, 2] * 17,
            },
            {
                "image_id": 5,
                "bbox": [0, 0, 6, 4],
                "category_id": 3,
                "iscrowd": 1,
                "keypoints": [0, 0, 0] * 17,
            },
        ],
    }
    (root / "ann.json").write_text(json.dumps(data))
    return root / "ann.json"


def test_coco_gives_boxes_of_single_objects_by_image_id(tmp_path):
    dataset = D.COCO(
        tmp_path,
        write_coco(tmp_path),
        order=("image", "boxes", "boxes_category", "keypoints", "info"),
    )
    picture, boxes, category, keypoints, info = dataset[0]
    assert (
        boxes.tolist() == [[1, 1, 3, 4]]
        and category.tolist() == [2]
        and keypoints.shape == (1, 17, 3)
    )
    assert dataset.contiguous_category_id_to_json_id[2] == 18 and info == [4, 6, "a.png"]
    assert dataset.get_img_info(1)["id"] == 9 and dataset[1][1].shape == (0, 4)


def test_images_without_annotations_can_be_left_out(tmp_path):
    path = write_coco(tmp_path)
    assert len(D.COCO(tmp_path, path)) == 2
    assert len(D.COCO(tmp_path, path, remove_images_without_annotations=True)) == 1
    assert len(D.Objects365(tmp_path, path, True)) == 1


def test_class_lists_are_complete():
    assert len(D.COCO.class_names) == 80 and D.COCO.classes_originID["toothbrush"] == 90
    assert D.COCO.classes_originID["dog"] == 18 and len(D.COCO.keypoint_names) == 17
    assert len(set(D.Objects365.class_names)) == 365 and len(D.Cityscapes.class_names) == 19


def test_a_damaged_annotation_file_is_a_value_error(tmp_path):
    (tmp_path / "ann.json").write_text('{"images": [')
    with pytest.raises(ValueError, match="not a JSON file"):
        D.COCO(tmp_path, tmp_path / "ann.json")


# --------------------------------------------------------------------------------------------- files


def test_archives_do_not_write_outside_of_their_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.add(tmp_path / "file", "../escaped")
    (tmp_path / "in").mkdir()
    with pytest.raises(tarfile.TarError):
        untar(str(tmp_path / "bad.tar"), str(tmp_path / "in"))
    assert not (tmp_path / "escaped").exists()


def test_file_helpers(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert calculate_md5(tmp_path / "file") == "900150983cd24fb0d6963f7d28e17f72"
    assert is_img("A.JPG") and not is_img("a.txt")


def test_a_dataset_of_images_has_the_parts_that_it_is_asked_for(monkeypatch):
    class Faces(D.VisionDataset):
        _default_order = ("image", "boxes")

    monkeypatch.setenv("HOME", "/home/of/mine")
    assert Faces("~/faces").root == "/home/of/mine/faces" and Faces(None).root is None
    assert Faces("faces").order == ("image", "boxes") and Faces("faces", order=["boxes"]).order == ["boxes"]
    for order, words in (("image", "sequence"), (["mask"], "no part 'mask'"), (["image", "image"], "twice")):
        with pytest.raises(ValueError, match=words):
            Faces("faces", order=order, supported_order=("image", "boxes"))
    with pytest.raises(TypeError, match="Faces does not define __getitem__"):
        Faces("faces")[0]
