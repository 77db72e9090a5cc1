"""Training generators of what a camera does: blur, compression, noise, too little light."""

import numpy as np

from ..degradations import camera as plain
from ..degradations.common import Image, Map, blurred, clipped, clouds, displayed, linear
from .common import line_kernel, log_uniform, mixed_from

# A dark image is first brightened to a mean in this range: the brighter the clean image, the better its exposure is
# known.
_WELL_EXPOSED = (0.32, 0.5)


def _convolved(image: Image, rng: np.random.Generator, kernel: Map) -> Image:
    """Blurred in linear light, as a lens does, or in display values, as many data sets are."""
    import cv2

    in_light = rng.uniform() < 0.5
    seen = linear(image) if in_light else image
    found = cv2.filter2D(seen, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT_101)
    result = np.asarray(found, np.float32)
    return clipped(displayed(result) if in_light else result)


def _disk_kernel(radius: float) -> Map:
    half = int(np.ceil(radius)) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    return np.asarray(np.clip(radius + 0.5 - np.hypot(x, y), 0, 1), np.float32)


def _shaken(image: Image, rng: np.random.Generator) -> Image:
    length = log_uniform(rng, 2.5, 28) if rng.uniform() < 0.6 else rng.uniform(10, 32)
    return plain.motion_blurry(image, rng, length=length, roll=rng.normal(0, 0.8))


def _moved_straight(image: Image, rng: np.random.Generator) -> Image:
    return _convolved(image, rng, line_kernel(log_uniform(rng, 3, 26), rng.uniform(0, np.pi), rng.uniform(0.4, 0.9)))


def _out_of_focus(image: Image, rng: np.random.Generator) -> Image:
    return _convolved(image, rng, _disk_kernel(log_uniform(rng, 0.9, 6)))


def _soft(image: Image, rng: np.random.Generator) -> Image:
    import cv2

    first = log_uniform(rng, 0.6, 3.5)
    second = first * rng.uniform(0.5, 1)
    half = int(np.ceil(3 * first)) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    angle = rng.uniform(0, np.pi)
    along, across = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
    kernel = np.exp(-0.5 * ((along / first) ** 2 + (across / second) ** 2)).astype(np.float32)
    return np.asarray(cv2.filter2D(image, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT_101), np.float32)


def _something_moved(image: Image, rng: np.random.Generator) -> Image:
    """Two parts of the image, blurred differently."""
    height, width = image.shape[:2]
    border = clouds(rng, height, width, max(height, width) * rng.uniform(0.3, 1), 2)
    mask = blurred((border > rng.normal(0, 0.4)).astype(np.float32), rng.uniform(1, 6))[..., None]
    first = _moved_straight(image, rng)
    second = image if rng.uniform() < 0.5 else _shaken(image, rng)
    return np.asarray(second + mask * (first - second), np.float32)


def sensor(image: Image, rng: np.random.Generator) -> Image:
    """What a camera adds to most photographs: a little noise, good compression; or nothing."""
    if rng.uniform() < 0.25:
        image = grainy(image, rng, rng.uniform(0.5, 4))
    if rng.uniform() < 0.25:
        image = through_jpeg(image, rng, int(rng.integers(75, 98)))
    return image


def blurry(image: Image, rng: np.random.Generator) -> Image:
    """Blur of several kinds, that of a moving camera most often."""
    kinds = ((0.45, _shaken), (0.2, _moved_straight), (0.15, _out_of_focus), (0.08, _soft), (0.12, _something_moved))
    return sensor(mixed_from(image, rng, kinds), rng)


def _encoded(image: Image, kind: str, flags: list[int]) -> Image:
    """Through an encoder of OpenCV and back."""
    import cv2

    pixels = np.round(image[..., ::-1] * 255).astype(np.uint8)
    decoded = np.asarray(cv2.imdecode(cv2.imencode(kind, pixels, flags)[1], cv2.IMREAD_COLOR), np.float32)
    return np.ascontiguousarray(decoded[..., ::-1]) / np.float32(255)


def through_jpeg(image: Image, rng: np.random.Generator, quality: int) -> Image:
    """With one of the usual chroma subsamplings; blocks begin anywhere in a third of the cases."""
    import cv2

    down, right = (int(x) for x in rng.integers(0, 8, 2)) if rng.uniform() < 0.33 else (0, 0)
    padded = np.pad(image, ((down, 0), (right, 0), (0, 0)), mode="reflect")
    sampling = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)[int(rng.uniform() < 0.35)]
    flags = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    return np.ascontiguousarray(_encoded(padded, ".jpg", flags)[down:, right:])


def _quality(rng: np.random.Generator) -> int:
    """5 to 60, half of them below 18: there most is to be gained."""
    return round(log_uniform(rng, 5, 60))


def jpeg_compressed(image: Image, rng: np.random.Generator) -> Image:
    """Once, or twice with blocks in other places; WebP now and then."""
    import cv2

    draw = rng.uniform()
    if draw < 0.06:
        return _encoded(image, ".webp", [cv2.IMWRITE_WEBP_QUALITY, int(rng.integers(3, 40))])
    if draw < 0.16:
        image = through_jpeg(image, rng, int(rng.integers(20, 90)))
    if draw > 0.7:
        return plain.jpeg_compressed(image, rng, quality=int(rng.integers(8, 13)))
    return through_jpeg(image, rng, _quality(rng))


def _rounded(image: Image) -> Image:
    return np.asarray(np.round(clipped(image) * 255) / 255, np.float32)


def _gaussian(image: Image, rng: np.random.Generator) -> Image:
    return _rounded(image + np.float32(rng.uniform(3, 65) / 255) * rng.standard_normal(image.shape, dtype=np.float32))


def _published_noise(image: Image, rng: np.random.Generator) -> Image:
    return plain.noisy(image, rng, sigma=rng.uniform(44, 56))


def _grey_noise(image: Image, rng: np.random.Generator) -> Image:
    noise = rng.standard_normal((*image.shape[:2], 1), dtype=np.float32)
    return _rounded(image + np.float32(rng.uniform(3, 50) / 255) * noise)


def grainy(image: Image, rng: np.random.Generator, strength: float) -> Image:
    """Sensor noise: grows with the light, reading adds its own, demosaicking makes it coarse, colours share a part."""
    shape = image.shape
    own = rng.standard_normal(shape, dtype=np.float32)
    shared = rng.standard_normal((*shape[:2], 1), dtype=np.float32)
    mix = rng.uniform(0, 0.8)
    grain = np.sqrt(1 - mix) * own + np.sqrt(mix) * shared
    coarse = rng.uniform(0, 1.1) * (rng.uniform() < 0.7)
    if coarse > 0.3:
        grain = blurred(np.ascontiguousarray(grain, np.float32), coarse)
        grain = grain / max(float(grain.std()), 1e-3)
    shot = rng.uniform(0, 1)
    local = np.sqrt(1 - shot + shot * 2 * image)
    return _rounded(image + np.float32(strength / 255) * local * grain)


def _sensor_noise(image: Image, rng: np.random.Generator) -> Image:
    noisy_image = grainy(image, rng, log_uniform(rng, 3, 50))
    return through_jpeg(noisy_image, rng, int(rng.integers(70, 98))) if rng.uniform() < 0.3 else noisy_image


def _photons(image: Image, rng: np.random.Generator) -> Image:
    """Counted photons in linear light, few or many."""
    light, full = linear(image), log_uniform(rng, 40, 4000)
    counted = rng.poisson(np.maximum(light, 0) * full).astype(np.float32) / np.float32(full)
    read = rng.normal(0, rng.uniform(0, 0.01), image.shape).astype(np.float32)
    return _rounded(displayed(np.maximum(counted + read, 0)))


def noisy(image: Image, rng: np.random.Generator) -> Image:
    """White noise most often, weak and strong; that of sensors in a third of the cases."""
    kinds = ((0.25, _published_noise), (0.3, _gaussian), (0.08, _grey_noise), (0.27, _sensor_noise), (0.1, _photons))
    return mixed_from(image, rng, kinds)


def well_exposed(image: Image, rng: np.random.Generator) -> Image:
    """A dark image brightened, others as they are: what was taken in too little light is to come out well exposed."""
    import cv2

    mean = float(image.mean())
    wanted = rng.uniform(*_WELL_EXPOSED)
    if mean >= _WELL_EXPOSED[0] or mean < 0.02:
        return image
    gamma = max(np.log(wanted) / np.log(mean), 0.45)
    return np.asarray(cv2.pow(image, gamma), np.float32)


def _underexposed(image: Image, rng: np.random.Generator) -> Image:
    exposure, noise = log_uniform(rng, 0.09, 0.85), rng.uniform(0, 2) * (rng.uniform() < 0.75)
    return plain.low_light(image, rng, exposure=exposure, noise=noise)


def _dark_curve(image: Image, rng: np.random.Generator) -> Image:
    """Scaled and bent in display values, noise that is stronger in the dark after brightening; as often compressed."""
    import cv2

    gain, gamma = log_uniform(rng, 0.12, 0.9), rng.uniform(0.9, 2.2)
    cast = (1 + rng.normal(0, 0.05, 3)).astype(np.float32)
    dark = np.asarray(cv2.pow(image, gamma), np.float32) * (gain * cast)
    dark = grainy(clipped(dark), rng, rng.uniform(0, 6)) if rng.uniform() < 0.7 else _rounded(dark)
    return through_jpeg(dark, rng, int(rng.integers(80, 99))) if rng.uniform() < 0.2 else dark


def _nearly_black(image: Image, rng: np.random.Generator) -> Image:
    """An exposure of a few hundredths: what is left has a few dozen of the 256 levels, and coarse, coloured noise."""
    exposure, gamma = log_uniform(rng, 0.04, 0.2), rng.uniform(0.85, 1.25)
    dark = plain.low_light(image, rng, exposure=exposure, gamma=gamma, noise=rng.uniform(0, 1.5))
    if rng.uniform() < 0.5:  # the camera has smoothed it
        dark = blurred(dark, rng.uniform(0.3, 1))
    dark = _rounded(dark + np.float32(rng.uniform(0, 0.012) * (rng.uniform() < 0.4)))
    return through_jpeg(dark, rng, int(rng.integers(88, 100))) if rng.uniform() < 0.3 else dark


def low_light(image: Image, rng: np.random.Generator) -> Image:
    """Exposed too little, by a sensor's rules or by a curve; with noise and without."""
    kinds = ((0.25, plain.low_light), (0.25, _underexposed), (0.2, _dark_curve), (0.3, _nearly_black))
    return mixed_from(image, rng, kinds)
