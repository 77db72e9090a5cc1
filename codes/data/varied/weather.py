"""Training generators of what the weather does: haze, drops on the lens, rain, snow."""

import numpy as np

from ..degradations import weather as plain
from ..degradations.common import Image, Map, blurred, clipped, clouds, smoothstep
from .camera import sensor
from .common import line_kernel, log_uniform, mixed_from


def _veiled(image: Image, rng: np.random.Generator, depth: Map, density: float) -> Image:
    airlight = rng.uniform(0.6, 1.0)
    tint = np.clip(rng.normal(0, 0.025, 3), -0.07, 0.07) * (rng.uniform() < 0.6)
    colour = (airlight * (1 + tint)).astype(np.float32)
    t = np.exp(-density * depth)[..., None]
    return clipped(image * t + colour * (1 - t))


def _haze_by_depth(image: Image, rng: np.random.Generator) -> Image:
    depth = rng.uniform(0, 0.4) + plain.scene_depth(image, rng)
    return _veiled(image, rng, depth, log_uniform(rng, 0.15, 2.2))


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
    return sensor(mixed_from(image, rng, kinds), rng)


def _lens_drops(image: Image, rng: np.random.Generator) -> Image:
    coverage, size = log_uniform(rng, 0.01, 0.25), log_uniform(rng, 5, 32)
    return plain.raindrop(image, rng, coverage=coverage, size=size, defocus=log_uniform(rng, 0.5, 5))


def _smears(image: Image, rng: np.random.Generator) -> Image:
    """Drops far out of focus: soft spots that show a blurred, lighter or darker view; some have run down the pane."""
    import cv2

    height, width = image.shape[:2]
    mask = np.zeros((height, width), np.float32)
    size = log_uniform(rng, 4, 26)
    for _ in range(int(rng.integers(3, 3 + max(3, round(0.12 * height * width / size**2))))):
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        radius = size * rng.uniform(0.3, 1.2)
        axes = (max(1, round(radius * rng.uniform(0.7, 1.1))), max(1, round(radius * rng.uniform(0.8, 1.5))))
        strength = float(rng.uniform(0.5, 1))
        cv2.ellipse(mask, (round(x), round(y)), axes, rng.uniform(-25, 25), 0, 360, strength, -1)
        if rng.uniform() < 0.15:
            end = (round(x + rng.normal(0, radius)), round(y + rng.uniform(1, 6) * radius))
            cv2.line(mask, (round(x), round(y)), end, strength * 0.8, max(1, round(radius * rng.uniform(0.3, 0.8))))
    mask = blurred(mask, log_uniform(rng, 0.6, 0.35 * size + 0.7))
    view = blurred(image, log_uniform(rng, 3, 14))
    if rng.uniform() < 0.5:
        view = np.roll(np.ascontiguousarray(view[::-1]), int(rng.integers(height)), 0)
    view = view * np.float32(rng.uniform(0.7, 1.25)) + np.float32(rng.uniform(-0.05, 0.15))
    rim = np.abs(mask - blurred(mask, 1.5))[..., None] * np.float32(rng.uniform(-1, 1))
    return clipped(image + mask[..., None] * np.float32(rng.uniform(0.6, 1)) * (view - image) + rim)


def raindrop(image: Image, rng: np.random.Generator) -> Image:
    """Sharp small lenses, soft smears."""
    return mixed_from(image, rng, ((0.3, plain.raindrop), (0.35, _lens_drops), (0.35, _smears)))


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
    kernel = line_kernel(length, np.pi / 2 + angle, rng.uniform(0.35, 0.9))
    streaks = cv2.filter2D(drops, -1, kernel, borderType=cv2.BORDER_CONSTANT)
    streaks = streaks[margin : margin + height, margin : margin + width]
    return np.asarray(streaks / max(float(np.quantile(streaks[::3, ::3], 0.98)), 1e-3), np.float32)


def _streaks(image: Image, rng: np.random.Generator) -> Image:
    """One to five layers of streaks of several directions, lighter than what is behind, added or blended."""
    height, width = image.shape[:2]
    layers = int(rng.choice([1, 1, 2, 3, 4, 5]))
    main = float(np.clip(rng.normal(0, 0.4), -1.2, 1.2))
    alike = rng.uniform() < 0.5
    strength = log_uniform(rng, 0.15, 1.0)
    from_noise = rng.uniform() < 0.45
    total = np.zeros((height, width), np.float32)
    for _ in range(layers):
        angle = main + rng.normal(0, 0.08) if alike else float(np.clip(rng.normal(0, 0.55), -1.3, 1.3))
        length = log_uniform(rng, 8, 70)
        if from_noise:
            layer = np.clip(_noise_rain(rng, height, width, angle, length, log_uniform(rng, 0.004, 0.12)), 0, 1.3)
        else:
            thick = rng.choice([1, 1, 1, 2, 2, 3, 4])
            count = log_uniform(rng, 0.4, 14) * 20 / length
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


def _downpour(image: Image, rng: np.random.Generator) -> Image:
    """Streaks over a tenth to nearly all of the image, in one or two directions, mostly added to what is behind."""
    height, width = image.shape[:2]
    layers = int(rng.integers(1, 4))
    directions = np.clip(rng.normal(0, 0.5, 2), -1.3, 1.3)
    cover, from_noise = log_uniform(rng, 0.12, 0.9) / layers, rng.uniform() < 0.3
    total = np.zeros((height, width), np.float32)
    for _ in range(layers):
        angle = float(directions[int(rng.uniform() < 0.25)] + rng.normal(0, 0.05))
        length = log_uniform(rng, 12, 70)
        if from_noise:
            layer = np.clip(_noise_rain(rng, height, width, angle, length, log_uniform(rng, 0.02, 0.2)), 0, 1.2)
        else:
            thick = float(rng.choice([1, 1, 2, 2, 3]))
            layer = _lines(rng, height, width, angle, length, thick, cover * 1e4 / (length * thick))
        total = np.maximum(total, layer) if rng.uniform() < 0.5 else total + layer
    rain = np.clip(np.float32(rng.uniform(0.45, 1)) * total, 0, 1)[..., None]
    light = np.float32(rng.uniform(0.7, 1))
    if rng.uniform() < 0.7:
        return clipped(image + rain * light)
    return clipped(image + np.minimum(rain, 0.97) * np.maximum(light - image, 0))


def rainy(image: Image, rng: np.random.Generator) -> Image:
    """Sparse and dense, in one direction and in several."""
    return mixed_from(image, rng, ((0.25, plain.rainy), (0.4, _streaks), (0.35, _downpour)))


def _fallen(image: Image, rng: np.random.Generator) -> Image:
    density, size, speed = log_uniform(rng, 0.08, 1.8), log_uniform(rng, 0.6, 2.2), rng.uniform(0, 1.6)
    return plain.snowy(image, rng, density=density, size=size, speed=speed)


def _flakes(image: Image, rng: np.random.Generator) -> Image:
    """Drawn flakes: discs and short strokes of all sizes, each opaque to some degree, some layers out of focus."""
    import cv2

    height, width = image.shape[:2]
    result = image
    for _ in range(int(rng.integers(1, 4))):
        layer = np.zeros((height, width), np.float32)
        radius = log_uniform(rng, 0.6, 7)
        number = min(4000, int(rng.poisson(log_uniform(rng, 0.004, 0.09) * height * width / (1 + 2 * radius**2))))
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
    return mixed_from(image, rng, ((0.3, plain.snowy), (0.35, _fallen), (0.35, _flakes)))
