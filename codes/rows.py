"""Registry rows of the metrics and the degradations: everything the program asks about each of them, in one place.

To add a metric or a degradation, write a function and add a row here. Option files, tables, figures and the training
read the rows. A row names its function as 'module:name' below the package and imports it on first use, because an
option file is checked before numpy and torch are loaded.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal


def load(reference: str) -> Any:
    """Import what a row names, for example 'metrics.pixel:psnr'."""
    module, _, name = reference.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


@dataclass(frozen=True, kw_only=True)
class Column:
    """A number as tables show it.

    name             in option files and records
    label            for people
    lower_is_better  which way is better
    digits           after the decimal point
    """

    name: str
    label: str
    lower_is_better: bool
    digits: int

    @property
    def heading(self) -> str:
        """The label with an arrow in the better direction."""
        return f"{self.label} {'↓' if self.lower_is_better else '↑'}"

    @property
    def sign(self) -> float:
        """The factor that makes lower values better."""
        return 1.0 if self.lower_is_better else -1.0

    def text(self, value: float | None, missing: str = "n/a") -> str:
        """A value with the column's digits."""
        return missing if value is None else f"{value:.{self.digits}f}"


@dataclass(frozen=True, kw_only=True)
class Metric(Column):
    """A measure of restored images.

    function         per image: f(restored, clean) of two uint8 images (H, W, 3), f(restored) if it needs no clean
                     one; where it needs weights, a class whose objects are called like that.
                     Per set: f(features, features) of Inception features (N, 2048)
    per              whether it is computed for each image or for a whole set
    needs_clean      whether it compares with clean images
    smallest_side    of an image (without its border) that the metric is defined for
    crop             whether `metrics.crop_border` is cut off first
    needs_weights    which file of scripts/fetch_weights.py it needs, if any
    unit             for axes and captions
    logarithmic      whether a figure shows it on a logarithmic axis
    """

    function: str
    per: Literal["image", "set"] = "image"
    needs_clean: bool = True
    smallest_side: int = 1
    crop: bool = True
    needs_weights: Literal["lpips", "fid", "niqe", "brisque"] | None = None
    unit: str = ""
    logarithmic: bool = False

    @property
    def axis_label(self) -> str:
        """The label with its unit, as on the axis of a figure."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """A way to degrade clean images.

    name       in option files and folders
    title      for people
    function   f(image, rng, **strengths) of a float32 RGB image (H, W, 3) in [0, 1]
    published  whether it is one of the ten tasks of the published data sets
    wide       whether its features grow with the image, so that training degrades a larger region than its patch
    varied     f(image, rng): a more varied generator to train on, if there is one
    """

    name: str
    title: str
    function: str
    published: bool = False
    wide: bool = False
    varied: str | None = None


METRICS = {
    row.name: row
    for row in (
        Metric(name="psnr", label="PSNR", function="metrics.pixel:psnr", lower_is_better=False, digits=2, unit="dB"),
        Metric(
            name="ssim",
            label="SSIM",
            function="metrics.pixel:ssim",
            lower_is_better=False,
            digits=4,
            smallest_side=11,  # its window
        ),
        Metric(
            name="psnr_y", label="PSNR-Y", function="metrics.pixel:psnr_y", lower_is_better=False, digits=2, unit="dB"
        ),
        Metric(
            name="ssim_y",
            label="SSIM-Y",
            function="metrics.pixel:ssim_y",
            lower_is_better=False,
            digits=4,
            smallest_side=11,
        ),
        Metric(
            name="lpips",
            label="LPIPS",
            function="metrics.perceptual:LPIPS",
            lower_is_better=True,
            digits=4,
            smallest_side=31,  # AlexNet's strides and poolings leave nothing of 30 pixels
            crop=False,
            needs_weights="lpips",
            logarithmic=True,
        ),
        Metric(
            name="fid",
            label="FID",
            function="metrics.distribution:fid",
            per="set",
            lower_is_better=True,
            digits=2,
            needs_weights="fid",
            logarithmic=True,
        ),
        Metric(
            name="kid",
            label="KID",
            function="metrics.distribution:kid",
            per="set",
            lower_is_better=True,
            digits=5,
            needs_weights="fid",
        ),
        Metric(
            name="niqe",
            label="NIQE",
            function="metrics.natural:NIQE",
            needs_clean=False,
            lower_is_better=True,
            digits=3,
            smallest_side=96,  # its blocks
            crop=False,
            needs_weights="niqe",
        ),
        Metric(
            name="brisque",
            label="BRISQUE",
            function="metrics.natural:BRISQUE",
            needs_clean=False,
            lower_is_better=True,
            digits=2,
            smallest_side=16,  # at half the size, its window of 7 must fit
            crop=False,
            needs_weights="brisque",
        ),
    )
}

DEGRADATIONS = {
    row.name: row
    for row in (
        Degradation(
            name="motion-blurry",
            title="blur of a moving camera",
            function="data.degradations.camera:motion_blurry",
            varied="data.varied.camera:blurry",
            published=True,
        ),
        Degradation(
            name="hazy",
            title="haze that thickens with the distance",
            function="data.degradations.weather:hazy",
            varied="data.varied.weather:hazy",
            published=True,
            wide=True,
        ),
        Degradation(
            name="jpeg-compressed",
            title="strong JPEG compression",
            function="data.degradations.camera:jpeg_compressed",
            varied="data.varied.camera:jpeg_compressed",
            published=True,
        ),
        Degradation(
            name="low-light",
            title="too little light, with sensor noise",
            function="data.degradations.camera:low_light",
            varied="data.varied.camera:low_light",
            published=True,
        ),
        Degradation(
            name="noisy",
            title="Gaussian noise",
            function="data.degradations.camera:noisy",
            varied="data.varied.camera:noisy",
            published=True,
        ),
        Degradation(
            name="raindrop",
            title="drops on a pane in front of the lens",
            function="data.degradations.weather:raindrop",
            varied="data.varied.weather:raindrop",
            published=True,
        ),
        Degradation(
            name="rainy",
            title="streaks of heavy rain",
            function="data.degradations.weather:rainy",
            varied="data.varied.weather:rainy",
            published=True,
        ),
        Degradation(
            name="shadowed",
            title="cast shadows",
            function="data.degradations.holes:shadowed",
            varied="data.varied.holes:shadowed",
            published=True,
            wide=True,
        ),
        Degradation(
            name="snowy",
            title="falling snow",
            function="data.degradations.weather:snowy",
            varied="data.varied.weather:snowy",
            published=True,
        ),
        Degradation(
            name="uncompleted",
            title="white holes to be filled",
            function="data.degradations.holes:uncompleted",
            varied="data.varied.holes:uncompleted",
            published=True,
            wide=True,
        ),
    )
}
