"""Degradations to train on: for each task several generators, of strengths from hardly visible to severe.

`degradations.py` makes test sets: each task in one way, with strengths like those of the published sets. A network that
is trained on that alone takes for degraded, and changes, whatever looks a little like it. Here each task is drawn from
several generators that have nothing in common but the name, weak ones included; some images suffer from two things, and
some from nothing, and are to stay as they are.

Every generator takes an image (H, W, 3), float32 RGB in [0, 1], and a random generator, and returns a degraded one.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..names import TASKS
from . import degradations as plain
from .degradations import Image, Map, blurred, clipped, clouds, displayed, linear, smoothstep

Generator = Callable[[Image, np.random.Generator], Image]

NONE = "none"
# What is recognised in an image: the ten degradations, and nothing.
KINDS: tuple[str, ...] = (*TASKS, NONE)

# Degraded images closer than this to the clean one count as clean (PSNR in dB).
_AS_GOOD_AS_CLEAN = 42.0
# Whose exposure is the more certain the brighter the clean image is: darker ones than this are brightened first.
_WELL_EXPOSED = (0.32, 0.5)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _mixed(image: Image, rng: np.random.Generator, choices: Sequence[tuple[float, Generator]]) -> Image:
    """What one of several generators makes; the numbers are how often each is drawn."""
    shares = np.cumsum([share for share, _ in choices])
    index = min(int(np.searchsorted(shares, rng.uniform() * shares[-1], side="right")), len(choices) - 1)
    return choices[index][1](image, rng)


# ---- blur: by a moving camera, by something that moves, out of focus


def _convolved(image: Image, rng: np.random.Generator, kernel: Map) -> Image:
    """Blurred in linear light, as a lens does, or in display values, as many data sets are."""
    import cv2

    in_light = rng.uniform() < 0.5
    seen = linear(image) if in_light else image
    found = cv2.filter2D(seen, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT_101)
    result = np.asarray(found, np.float32)
    return clipped(displayed(result) if in_light else result)


def _line_kernel(length: float, angle: float, width: float = 0.5) -> Map:
    half = int(np.ceil(length / 2 + 2 * width)) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    along, across = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
    inside = np.clip(length / 2 + 0.5 - np.abs(along), 0, 1)
    return np.asarray(inside * np.exp(-0.5 * (across / width) ** 2), np.float32)


def _disk_kernel(radius: float) -> Map:
    half = int(np.ceil(radius)) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    return np.asarray(np.clip(radius + 0.5 - np.hypot(x, y), 0, 1), np.float32)


def _shaken(image: Image, rng: np.random.Generator) -> Image:
    length = _log_uniform(rng, 2.5, 28)
    return plain.motion_blurry(image, rng, length=length, roll=rng.normal(0, 0.8))


def _moved_straight(image: Image, rng: np.random.Generator) -> Image:
    return _convolved(image, rng, _line_kernel(_log_uniform(rng, 3, 26), rng.uniform(0, np.pi), rng.uniform(0.4, 0.9)))


def _out_of_focus(image: Image, rng: np.random.Generator) -> Image:
    return _convolved(image, rng, _disk_kernel(_log_uniform(rng, 0.9, 6)))


def _soft(image: Image, rng: np.random.Generator) -> Image:
    import cv2

    first = _log_uniform(rng, 0.6, 3.5)
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


def _sensor(image: Image, rng: np.random.Generator) -> Image:
    """What a camera adds to most photographs: a little noise, good compression; or nothing."""
    if rng.uniform() < 0.25:
        image = _grainy(image, rng, rng.uniform(0.5, 4))
    if rng.uniform() < 0.25:
        image = _through_jpeg(image, rng, int(rng.integers(75, 98)))
    return image


def blurry(image: Image, rng: np.random.Generator) -> Image:
    """Blur of several kinds, that of a moving camera most often."""
    kinds = ((0.45, _shaken), (0.2, _moved_straight), (0.15, _out_of_focus), (0.08, _soft), (0.12, _something_moved))
    return _sensor(_mixed(image, rng, kinds), rng)


# ---- haze


def _veiled(image: Image, rng: np.random.Generator, depth: Map, density: float) -> Image:
    airlight = rng.uniform(0.6, 1.0)
    tint = np.clip(rng.normal(0, 0.025, 3), -0.07, 0.07) * (rng.uniform() < 0.6)
    colour = (airlight * (1 + tint)).astype(np.float32)
    t = np.exp(-density * depth)[..., None]
    return clipped(image * t + colour * (1 - t))


def _haze_by_depth(image: Image, rng: np.random.Generator) -> Image:
    depth = rng.uniform(0, 0.4) + plain.scene_depth(image, rng)
    return _veiled(image, rng, depth, _log_uniform(rng, 0.15, 2.2))


def _haze_by_planes(image: Image, rng: np.random.Generator) -> Image:
    """A floor that runs away, walls and things before it: depth in steps, smooth between."""
    height, width = image.shape[:2]
    y = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    horizon = rng.uniform(-0.2, 0.6)
    floor = np.clip(0.1 / np.maximum(y - horizon, 0.05), 0, 1.5) * np.ones((1, width), np.float32)
    steps = clouds(rng, height, width, max(height, width) * rng.uniform(0.3, 0.8), 2)
    near = smoothstep(steps, rng.normal(0, 0.3), rng.normal(0, 0.3) + 0.15 + rng.uniform(0, 0.5))
    depth = floor * (1 - near * rng.uniform(0.3, 0.9)) + rng.uniform(0, 0.3)
    return _veiled(image, rng, np.asarray(depth / max(float(depth.mean()), 1e-3), np.float32), rng.uniform(0.15, 1.6))


def _haze_everywhere(image: Image, rng: np.random.Generator) -> Image:
    height, width = image.shape[:2]
    uneven = 1 + rng.uniform(0, 0.4) * np.tanh(clouds(rng, height, width, max(height, width) * 0.7, 3))
    return _veiled(image, rng, np.asarray(uneven, np.float32), rng.uniform(0.15, 1.5))


def hazy(image: Image, rng: np.random.Generator) -> Image:
    """Haze by several guesses at depth, and haze that is the same everywhere."""
    kinds = ((0.3, plain.hazy), (0.35, _haze_by_depth), (0.2, _haze_by_planes), (0.15, _haze_everywhere))
    return _sensor(_mixed(image, rng, kinds), rng)


# ---- compression


def _encoded(image: Image, kind: str, flags: list[int]) -> Image:
    """Through an encoder of OpenCV and back."""
    import cv2

    pixels = np.round(image[..., ::-1] * 255).astype(np.uint8)
    decoded = np.asarray(cv2.imdecode(cv2.imencode(kind, pixels, flags)[1], cv2.IMREAD_COLOR), np.float32)
    return np.ascontiguousarray(decoded[..., ::-1]) / np.float32(255)


def _through_jpeg(image: Image, rng: np.random.Generator, quality: int) -> Image:
    """With one of the usual chroma subsamplings; blocks begin anywhere in a third of the cases."""
    import cv2

    down, right = (int(x) for x in rng.integers(0, 8, 2)) if rng.uniform() < 0.33 else (0, 0)
    padded = np.pad(image, ((down, 0), (right, 0), (0, 0)), mode="reflect")
    sampling = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)[int(rng.uniform() < 0.35)]
    flags = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling]
    return np.ascontiguousarray(_encoded(padded, ".jpg", flags)[down:, right:])


def _quality(rng: np.random.Generator) -> int:
    """5 to 60, half of them below 18: there most is to be gained."""
    return round(_log_uniform(rng, 5, 60))


def jpeg_compressed(image: Image, rng: np.random.Generator) -> Image:
    """Once, or twice with blocks in other places; WebP now and then."""
    import cv2

    draw = rng.uniform()
    if draw < 0.06:
        return _encoded(image, ".webp", [cv2.IMWRITE_WEBP_QUALITY, int(rng.integers(3, 40))])
    if draw < 0.16:
        image = _through_jpeg(image, rng, int(rng.integers(20, 90)))
    if draw > 0.7:
        return plain.jpeg_compressed(image, rng, quality=int(rng.integers(8, 13)))
    return _through_jpeg(image, rng, _quality(rng))


# ---- noise


def _rounded(image: Image) -> Image:
    return np.asarray(np.round(clipped(image) * 255) / 255, np.float32)


def _gaussian(image: Image, rng: np.random.Generator) -> Image:
    return _rounded(image + np.float32(rng.uniform(3, 65) / 255) * rng.standard_normal(image.shape, dtype=np.float32))


def _published_noise(image: Image, rng: np.random.Generator) -> Image:
    return plain.noisy(image, rng, sigma=rng.uniform(44, 56))


def _grey_noise(image: Image, rng: np.random.Generator) -> Image:
    noise = rng.standard_normal((*image.shape[:2], 1), dtype=np.float32)
    return _rounded(image + np.float32(rng.uniform(3, 50) / 255) * noise)


def _grainy(image: Image, rng: np.random.Generator, strength: float) -> Image:
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
    noisy_image = _grainy(image, rng, _log_uniform(rng, 3, 50))
    return _through_jpeg(noisy_image, rng, int(rng.integers(70, 98))) if rng.uniform() < 0.3 else noisy_image


def _photons(image: Image, rng: np.random.Generator) -> Image:
    """Counted photons in linear light, few or many."""
    light, full = linear(image), _log_uniform(rng, 40, 4000)
    counted = rng.poisson(np.maximum(light, 0) * full).astype(np.float32) / np.float32(full)
    read = rng.normal(0, rng.uniform(0, 0.01), image.shape).astype(np.float32)
    return _rounded(displayed(np.maximum(counted + read, 0)))


def noisy(image: Image, rng: np.random.Generator) -> Image:
    """White noise most often, weak and strong; that of sensors in a third of the cases."""
    kinds = ((0.25, _published_noise), (0.3, _gaussian), (0.08, _grey_noise), (0.27, _sensor_noise), (0.1, _photons))
    return _mixed(image, rng, kinds)


# ---- too little light


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
    exposure, noise = _log_uniform(rng, 0.09, 0.85), rng.uniform(0, 2) * (rng.uniform() < 0.75)
    return plain.low_light(image, rng, exposure=exposure, noise=noise)


def _dark_curve(image: Image, rng: np.random.Generator) -> Image:
    """Scaled and bent in display values, noise that is stronger in the dark after brightening; as often compressed."""
    import cv2

    gain, gamma = _log_uniform(rng, 0.12, 0.9), rng.uniform(0.9, 2.2)
    cast = (1 + rng.normal(0, 0.05, 3)).astype(np.float32)
    dark = np.asarray(cv2.pow(image, gamma), np.float32) * (gain * cast)
    dark = _grainy(clipped(dark), rng, rng.uniform(0, 6)) if rng.uniform() < 0.7 else _rounded(dark)
    return _through_jpeg(dark, rng, int(rng.integers(80, 99))) if rng.uniform() < 0.2 else dark


def low_light(image: Image, rng: np.random.Generator) -> Image:
    """Exposed too little, by a sensor's rules or by a curve; with noise and without."""
    return _mixed(image, rng, ((0.35, plain.low_light), (0.35, _underexposed), (0.3, _dark_curve)))


# ---- drops on the lens


def _lens_drops(image: Image, rng: np.random.Generator) -> Image:
    coverage, size = _log_uniform(rng, 0.01, 0.25), _log_uniform(rng, 5, 32)
    return plain.raindrop(image, rng, coverage=coverage, size=size, defocus=_log_uniform(rng, 0.5, 5))


def _smears(image: Image, rng: np.random.Generator) -> Image:
    """Drops far out of focus: soft spots that show a blurred, lighter or darker view; some have run down the pane."""
    import cv2

    height, width = image.shape[:2]
    mask = np.zeros((height, width), np.float32)
    size = _log_uniform(rng, 4, 26)
    for _ in range(int(rng.integers(3, 3 + max(3, round(0.12 * height * width / size**2))))):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        radius = size * rng.uniform(0.3, 1.2)
        axes = (max(1, round(radius * rng.uniform(0.7, 1.1))), max(1, round(radius * rng.uniform(0.8, 1.5))))
        strength = float(rng.uniform(0.5, 1))
        cv2.ellipse(mask, (round(x), round(y)), axes, rng.uniform(-25, 25), 0, 360, strength, -1)
        if rng.uniform() < 0.15:
            end = (round(x + rng.normal(0, radius)), round(y + rng.uniform(1, 6) * radius))
            cv2.line(mask, (round(x), round(y)), end, strength * 0.8, max(1, round(radius * rng.uniform(0.3, 0.8))))
    mask = blurred(mask, _log_uniform(rng, 0.6, 0.35 * size + 0.7))
    view = blurred(image, _log_uniform(rng, 3, 14))
    if rng.uniform() < 0.5:
        view = np.roll(np.ascontiguousarray(view[::-1]), int(rng.integers(height)), 0)
    view = view * np.float32(rng.uniform(0.7, 1.25)) + np.float32(rng.uniform(-0.05, 0.15))
    rim = np.abs(mask - blurred(mask, 1.5))[..., None] * np.float32(rng.uniform(-1, 1))
    return clipped(image + mask[..., None] * np.float32(rng.uniform(0.6, 1)) * (view - image) + rim)


def raindrop(image: Image, rng: np.random.Generator) -> Image:
    """Sharp small lenses, soft smears."""
    return _mixed(image, rng, ((0.3, plain.raindrop), (0.35, _lens_drops), (0.35, _smears)))


# ---- rain


def _lines(
    rng: np.random.Generator, height: int, width: int, angle: float, length: float, thick: float, count: float
) -> Map:
    """Straight streaks of one direction, hard or soft; `count` per 10,000 pixels."""
    import cv2

    margin = int(length)
    canvas = np.zeros((height + 2 * margin, width + 2 * margin), np.float32)
    number = int(rng.poisson(count * canvas.size / 1e4))
    starts = rng.uniform(0, 1, (number, 2)) * canvas.shape[::-1]
    reach = length * rng.uniform(0.5, 1.2, number)
    turns = np.pi / 2 + angle + rng.normal(0, 0.03, number)
    ends = starts + np.stack([np.cos(turns), np.sin(turns)], 1) * reach[:, None]
    levels = rng.uniform(0.3, 1, number)
    wide = max(1, round(thick))
    kind = cv2.LINE_AA if rng.uniform() < 0.6 else cv2.LINE_8
    for (x0, y0), (x1, y1), level in zip(np.round(starts).astype(int), np.round(ends).astype(int), levels):
        cv2.line(canvas, (int(x0), int(y0)), (int(x1), int(y1)), float(level), wide, kind)
    inside = canvas[margin : margin + height, margin : margin + width]
    return blurred(np.ascontiguousarray(inside), rng.uniform(0, 0.9))


def _noise_rain(rng: np.random.Generator, height: int, width: int, angle: float, length: float, density: float) -> Map:
    """The recipe of image editors: noise, a threshold, blur along a direction, more contrast."""
    import cv2

    margin = int(length)
    zoom = rng.uniform(1, 2.2)
    shape = (int((height + 2 * margin) / zoom) + 2, int((width + 2 * margin) / zoom) + 2)
    fine = rng.standard_normal(shape, dtype=np.float32)
    size = (width + 2 * margin, height + 2 * margin)
    noise = np.asarray(cv2.resize(fine, size, interpolation=cv2.INTER_LINEAR), np.float32)
    drops = np.maximum(noise - float(np.quantile(noise[::3, ::3], 1 - density)), 0)
    kernel = _line_kernel(length, np.pi / 2 + angle, rng.uniform(0.35, 0.9))
    streaks = cv2.filter2D(drops, -1, kernel, borderType=cv2.BORDER_CONSTANT)
    streaks = streaks[margin : margin + height, margin : margin + width]
    return np.asarray(streaks / max(float(np.quantile(streaks[::3, ::3], 0.98)), 1e-3), np.float32)


def _streaks(image: Image, rng: np.random.Generator) -> Image:
    """One to five layers of streaks of several directions, lighter than what is behind, added or blended."""
    height, width = image.shape[:2]
    layers = int(rng.choice([1, 1, 2, 3, 4, 5]))
    main = float(np.clip(rng.normal(0, 0.4), -1.2, 1.2))
    alike = rng.uniform() < 0.5
    strength = _log_uniform(rng, 0.15, 1.0)
    from_noise = rng.uniform() < 0.45
    total = np.zeros((height, width), np.float32)
    for _ in range(layers):
        angle = main + rng.normal(0, 0.08) if alike else float(np.clip(rng.normal(0, 0.55), -1.3, 1.3))
        length = _log_uniform(rng, 8, 70)
        if from_noise:
            layer = np.clip(_noise_rain(rng, height, width, angle, length, _log_uniform(rng, 0.004, 0.12)), 0, 1.3)
        else:
            thick = rng.choice([1, 1, 1, 2, 2, 3, 4])
            count = _log_uniform(rng, 0.4, 14) * 20 / length
            layer = _lines(rng, height, width, angle, length, float(thick), count)
        total = np.maximum(total, layer) if rng.uniform() < 0.3 else total + layer * rng.uniform(0.4, 1)
    rain = np.clip(strength * total, 0, 1.2)[..., None]
    colour = np.float32(rng.uniform(0.75, 1)) * (1 + np.clip(rng.normal(0, 0.02, 3), -0.05, 0.05)).astype(np.float32)
    if rng.uniform() < 0.6:
        result = image + rain * colour
    else:
        result = image + np.minimum(rain, 0.97) * np.maximum(colour - image, 0)
    if rng.uniform() < 0.25:
        veil = np.float32(rng.uniform(0, 0.3))
        result = result + veil * (np.float32(rng.uniform(0.5, 0.9)) - result)
    return clipped(np.asarray(result, np.float32))


def rainy(image: Image, rng: np.random.Generator) -> Image:
    """Sparse and dense, in one direction and in several."""
    return _mixed(image, rng, ((0.25, plain.rainy), (0.75, _streaks)))


# ---- shadow


def _cast_shadow(image: Image, rng: np.random.Generator) -> Image:
    darkness, share = rng.uniform(0.2, 0.92), rng.uniform(0.05, 0.7)
    softness, shift = _log_uniform(rng, 0.5, 14), rng.uniform(-0.3, 1.2)
    return plain.shadowed(image, rng, darkness=darkness, share=share, softness=softness, shift=shift)


def _flat_shadow(image: Image, rng: np.random.Generator) -> Image:
    """A factor for each colour within the mask, in display values."""
    height, width = image.shape[:2]
    mask = plain.shadow_mask(height, width, rng, rng.uniform(0.05, 0.7), _log_uniform(rng, 0.5, 8))
    left = (rng.uniform(0.25, 0.8) * (1 + rng.normal(0, 0.05, 3))).astype(np.float32)
    return clipped(image * (1 - mask[..., None] * (1 - left)))


def shadowed(image: Image, rng: np.random.Generator) -> Image:
    """Light and deep, sharp and soft."""
    return _mixed(image, rng, ((0.35, plain.shadowed), (0.4, _cast_shadow), (0.25, _flat_shadow)))


# ---- snow


def _fallen(image: Image, rng: np.random.Generator) -> Image:
    density, size, speed = _log_uniform(rng, 0.08, 1.8), _log_uniform(rng, 0.6, 2.2), rng.uniform(0, 1.6)
    return plain.snowy(image, rng, density=density, size=size, speed=speed)


def _flakes(image: Image, rng: np.random.Generator) -> Image:
    """Drawn flakes: discs and short strokes of all sizes, each opaque to some degree, some layers out of focus."""
    import cv2

    height, width = image.shape[:2]
    result = image
    for _ in range(int(rng.integers(1, 4))):
        layer = np.zeros((height, width), np.float32)
        radius = _log_uniform(rng, 0.6, 7)
        number = min(4000, int(rng.poisson(_log_uniform(rng, 0.004, 0.09) * height * width / (1 + 2 * radius**2))))
        angle, motion = np.pi / 2 + rng.normal(0, 0.6), rng.uniform(0, 4) * (rng.uniform() < 0.5)
        shift = 4  # fractional bits: small flakes lie between pixels
        points = rng.uniform(0, 1, (number, 2)) * (width, height)
        for (x, y), r, level in zip(points, radius * rng.uniform(0.4, 1.5, number), rng.uniform(0.4, 1, number)):
            start = (int(x * 2**shift), int(y * 2**shift))
            if motion * r < 1:
                cv2.circle(layer, start, int(r * 2**shift), float(level), -1, cv2.LINE_AA, shift)
            else:
                reach = motion * r
                end = (int((x + reach * np.cos(angle)) * 2**shift), int((y + reach * np.sin(angle)) * 2**shift))
                cv2.line(layer, start, end, float(level), max(1, round(1.6 * r)), cv2.LINE_AA, shift)
        cover = blurred(layer, rng.uniform(0.2, 0.6) * radius)[..., None] * np.float32(rng.uniform(0.5, 1))
        white = np.float32(rng.uniform(0.85, 1))
        result = result + np.minimum(cover, 1) * np.maximum(white - result, 0)
    if rng.uniform() < 0.2:
        result = result + np.float32(rng.uniform(0, 0.3)) * (np.float32(0.85) - result)
    return clipped(np.asarray(result, np.float32))


def snowy(image: Image, rng: np.random.Generator) -> Image:
    """Few and many flakes, tiny and large, still and fast."""
    return _mixed(image, rng, ((0.3, plain.snowy), (0.35, _fallen), (0.35, _flakes)))


# ---- holes


def _drawn_holes(image: Image, rng: np.random.Generator) -> Image:
    """Rectangles, discs, scribbles and letters."""
    import cv2

    height, width = image.shape[:2]
    side = min(height, width)
    mask = np.zeros((height, width), np.uint8)
    kind = rng.choice(["boxes", "scribbles", "letters", "points"])
    for _ in range(int(rng.integers(1, 14))):
        x, y = int(rng.uniform(0, width)), int(rng.uniform(0, height))
        if kind == "boxes":
            across, down = (int(side * rng.uniform(0.04, 0.35)) for _ in range(2))
            cv2.rectangle(mask, (x, y), (x + across, y + down), 255, -1)
        elif kind == "scribbles":
            points = np.cumsum(rng.normal(0, 0.09 * side, (12, 2)), 0) + np.array([x, y])
            cv2.polylines(
                mask, [np.round(points).astype(np.int32)], False, 255, max(1, int(rng.uniform(1, 0.05 * side)))
            )
        elif kind == "letters":
            text = "".join(rng.choice(list("abcdefghijkmnoprstuvwxyzABDEGHKMR0123456789"), 12))
            cv2.putText(
                mask, text, (x - 60, y), int(rng.integers(0, 8)), rng.uniform(0.4, 1.6), 255, int(rng.integers(1, 4))
            )
        else:
            cv2.circle(mask, (x, y), max(1, int(side * rng.uniform(0.01, 0.12))), 255, -1)
    if cv2.countNonZero(mask) > 0.65 * mask.size:
        return plain.uncompleted(image, rng)
    keep = (mask == 0).astype(np.float32)[..., None]
    return np.asarray(image * keep + (1 - keep), np.float32)


def uncompleted(image: Image, rng: np.random.Generator) -> Image:
    """White holes of many shapes."""
    return _mixed(image, rng, ((0.6, plain.uncompleted), (0.4, _drawn_holes)))


VARIED: dict[str, Generator] = {
    "motion-blurry": blurry,
    "hazy": hazy,
    "jpeg-compressed": jpeg_compressed,
    "low-light": low_light,
    "noisy": noisy,
    "raindrop": raindrop,
    "rainy": rainy,
    "shadowed": shadowed,
    "snowy": snowy,
    "uncompleted": uncompleted,
    NONE: lambda image, rng: image,
}

# What comes after another degradation in a photograph: the sensor's noise, then the file's compression.
_SECOND: tuple[tuple[str, Generator], ...] = (
    ("noisy", lambda image, rng: _grainy(image, rng, _log_uniform(rng, 3, 25))),
    ("jpeg-compressed", lambda image, rng: _through_jpeg(image, rng, int(rng.integers(15, 70)))),
)


def _regraded(image: Image, rng: np.random.Generator) -> Image:
    """Another exposure, contrast and saturation, still a clean photograph: dark and pale ones are not degraded."""
    import cv2

    gamma = _log_uniform(rng, 0.7, 1.5)
    result = np.asarray(cv2.pow(image, gamma), np.float32)
    grey = (result @ plain.LUMA)[..., None]
    colours = 0.0 if rng.uniform() < 0.12 else rng.uniform(0.5, 1.25)
    return clipped(np.asarray(grey + np.float32(colours) * (result - grey), np.float32))


def varied_pair(name: str, image: Image, rng: np.random.Generator, mixed: float = 0.0) -> tuple[Image, Image, Map]:
    """A clean image, a degraded one, and what the latter suffers from: shares of KINDS that sum to 1.

    name: the task, or 'none'; mixed: how often a second degradation follows. The clean image is the given one, regraded
    in half of the cases and well exposed where light is what is missing.
    """
    image = _regraded(image, rng) if rng.uniform() < 0.5 else image
    if name == "low-light":
        image = well_exposed(image, rng)
    degraded = VARIED[name](image, rng)
    kinds = [name]
    if rng.uniform() < mixed and name not in (NONE, "noisy", "jpeg-compressed"):
        second, generator = _SECOND[int(rng.uniform() < 0.5)]
        degraded = generator(degraded, rng)
        kinds.append(second)
    error = float(np.mean((degraded - image) ** 2))
    if error < 10 ** (-_AS_GOOD_AS_CLEAN / 10):
        kinds = [NONE]
    shares = np.zeros(len(KINDS), np.float32)
    for kind in kinds:
        shares[KINDS.index(kind)] += 1 / len(kinds)
    return image, degraded, shares


def tensor_pair(
    name: str, mixed: float = 0.0
) -> Callable[[Tensor, np.random.Generator], tuple[Tensor, Tensor, Tensor]]:
    """`varied_pair` for tensors (3, H, W), as the training uses it."""

    def apply(image: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy(), np.float32)
        clean, degraded, shares = varied_pair(name, pixels, rng, mixed)
        clean, degraded = (np.ascontiguousarray(x.transpose(2, 0, 1)) for x in (clean, degraded))
        return torch.from_numpy(clean), torch.from_numpy(degraded), torch.from_numpy(shares)

    return apply
