"""The files that `restore.py` writes for a photo: restorations, their mean, uncertainty, before and after."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.contact_sheet import Image, side_by_side
from ..data.images import ImageError, Picture, encode_image, encode_like, to_uint8
from .photo_files import Photo
from .restorer import Restoration

# Standard deviation shown as white in uncertainty maps, a fifth of the image range: fixed, so that maps are comparable.
WHITE_STD = 0.2


@dataclass(frozen=True, kw_only=True)
class RestoreSettings:
    """Settings applied to every photo."""

    nfe: int | None = None
    algorithm: str | None = None
    seed: int = 0
    samples: int = 1
    tile: int | str | None = None
    strength: float | None = None  # None: as the checkpoint's rule decides for each photo
    uncertainty: bool = False
    compare: bool = False
    overwrite: bool = False
    describe: bool = False


def result_names(name: str, settings: RestoreSettings) -> dict[str, str]:
    """Names of a photo's result files, by their content."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  (keeps the folder)
    names = {"sample 1": name}
    if settings.samples > 1:
        names |= {f"sample {k}": f"{stem}.sample-{k}{suffix}" for k in range(2, settings.samples + 1)}
        names["mean"] = f"{stem}.mean{suffix}"
    if settings.uncertainty:
        names["uncertainty"] = f"{stem}.uncertainty.png"
    if settings.compare:
        names["compare"] = f"{stem}.compare.png"
    return names


def encoded(picture: Picture, restoration: Restoration, names: dict[str, str]) -> dict[str, bytes]:
    """Contents of a photo's result files; its alpha and metadata are kept."""
    images = {f"sample {k}": image for k, image in enumerate(restoration.samples, 1)}
    if len(images) > 1:
        images["mean"] = restoration.mean
    files = {
        names[what]: encode_like(picture, image, Path(names[what]).suffix)
        for what, image in images.items()
        if what in names
    }
    if "uncertainty" in names:
        files[names["uncertainty"]] = encode_image(uncertainty_map(restoration), ".png")
    if "compare" in names:
        columns = [to_uint8(image) for image in (picture.rgb, restoration.sample)]
        columns += [to_uint8(restoration.mean), uncertainty_map(restoration)] if len(images) > 1 else []
        files[names["compare"]] = encode_image(side_by_side(columns), ".png")
    return files


def uncertainty_map(restoration: Restoration) -> Image:
    """The samples' standard deviation as a grey image: black is 0, white is WHITE_STD or more."""
    std = restoration.std.square().mean(dim=0, keepdim=True).sqrt()
    return to_uint8((std / WHITE_STD).expand(3, -1, -1))


def check_can_be_written(picture: Picture, photo: Photo) -> None:
    """Raise ImageError early if the format cannot store the image, such as transparency in JPEG."""
    corner = replace(
        picture, rgb=picture.rgb[:, :1, :1], alpha=None if picture.alpha is None else picture.alpha[:1, :1]
    )
    try:
        encode_like(corner, corner.rgb, Path(photo.name).suffix)
    except ImageError as error:
        raise ImageError(f"{photo.path}: {error}") from error
