"""Image augmentation as modules, on tensors of images.

Images are (N, C, H, W), float or uint8, unless a class says otherwise; uint8 results are rounded and clipped to
[0, 255]. Seeds: None draws from a random start.
"""

from .blur import ActiveBlur, Dilation, Emboss, GaussianBlur, Sharpen
from .colour import (
    AdditiveElemwise,
    AdditiveGaussianNoise,
    AdditiveLaplaceNoise,
    AdditivePoissonNoise,
    LinearContrast,
)
from .geometry import (
    CropAndPad,
    FillPoly,
    Flip,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    Remap,
    Resize,
    Rot90,
    Rotate,
)
from .mix import Cutmix, Mixup

__all__ = [
    "ActiveBlur",
    "AdditiveElemwise",
    "AdditiveGaussianNoise",
    "AdditiveLaplaceNoise",
    "AdditivePoissonNoise",
    "CropAndPad",
    "Cutmix",
    "Dilation",
    "Emboss",
    "FillPoly",
    "Flip",
    "GaussianBlur",
    "LinearContrast",
    "Mixup",
    "RandomHorizontalFlip",
    "RandomVerticalFlip",
    "Remap",
    "Resize",
    "Rot90",
    "Rotate",
    "Sharpen",
]
