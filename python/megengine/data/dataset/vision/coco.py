"""COCO: objects in everyday scenes, with boxes and keypoints."""

from __future__ import annotations

from ._annotations import AnnotatedImages
from ._annotations import has_valid_annotation as has_valid_annotation

# The annotation files count to 90 and skip the classes that were dropped before the release.
_ORIGINAL_IDS = [n for n in range(1, 91) if n not in {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}]


class COCO(AnnotatedImages):
    """COCO (Lin et al. 2014): everyday scenes with boxes and keypoints of objects; a sample has the
    parts of ``order``.

    image: uint8 (H, W, 3), BGR. boxes: float32 (N, 4), x1, y1, x2, y2 in pixels. boxes_category:
    int32 (N,), from 1 (0 is the background); ``contiguous_category_id_to_json_id`` maps them to the
    numbers of the file. keypoints: float32 (N, K, 3), x, y and visibility. info: [height, width,
    file name].

    Parameters
    ----------
    root : str or PathLike
        The folder of the images.
    ann_file : str or PathLike
        The JSON file of annotations.
    remove_images_without_annotations : bool
        Whether to leave out images without a box or enough visible keypoints.
    order : sequence of str or None
        Names of the parts of a sample; None means ("image", "boxes", "boxes_category").

    Raises
    ------
    FileNotFoundError
        For missing files.
    ValueError
        For damaged files or unknown parts.

    Examples
    --------
    >>> import json, tempfile
    >>> box = {"image_id": 7, "category_id": 18, "bbox": [10, 20, 30, 40]}  # x, y, width, height
    >>> file = tempfile.NamedTemporaryFile("w+", suffix=".json")
    >>> json.dump({"images": [{"id": 7}], "annotations": [box], "categories": [{"id": 18}]}, file)
    >>> file.flush()
    >>> boxes, categories = COCO("images", file.name, order=("boxes", "boxes_category"))[0]
    >>> boxes.tolist(), categories.tolist()
    ([[10.0, 20.0, 40.0, 60.0]], [1])
    >>> file.close()
    """

    supported_order = ("image", "boxes", "boxes_category", "keypoints", "info")

    class_names = tuple((
        "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign, parking meter, "
        "bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, "
        "skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, wine glass, cup, "
        "fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted "
        "plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, "
        "book, clock, vase, scissors, teddy bear, hair drier, toothbrush"
    ).split(", "))

    # Name -> number in the annotation files.
    classes_originID = dict(zip(class_names, _ORIGINAL_IDS, strict=True))

    keypoint_names = tuple((
        "nose, left_eye, right_eye, left_ear, right_ear, left_shoulder, right_shoulder, left_elbow, right_elbow, left_wrist, right_wrist, "
        "left_hip, right_hip, left_knee, right_knee, left_ankle, right_ankle"
    ).split(", "))
