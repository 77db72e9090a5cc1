"""The ten degradations, made from clean images: one pure function per task.

Each takes an image (H, W, 3), float32 RGB in [0, 1], and a generator, and returns a degraded image of the same kind.
Strengths are keywords. Those that are not given are drawn from the generator, within ranges like those of the published
sets. They are drawn even where they are given, so that a given strength leaves the others as they were.
"""

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..names import check_choice, unknown
from .images import read_image
from .pairs import find_images

Image = NDArray[np.float32]  # (H, W, 3)
Map = NDArray[np.float32]  # (H, W)
Floats = NDArray[np.float64]
Degrade = Callable[[Tensor, np.random.Generator], Tensor]

_GAMMA = 2.2
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def _drawn(given: float | None, value: float) -> float:
    return float(value) if given is None else float(given)


def clipped(image: Image) -> Image:
    return np.clip(image, 0, 1, out=image).astype(np.float32, copy=False)


def linear(image: Image) -> Image:
    """Light instead of display values; OpenCV's power is four times faster than numpy's."""
    import cv2

    return np.asarray(cv2.pow(image, _GAMMA), np.float32)


def displayed(light: Image) -> Image:
    import cv2

    return np.asarray(cv2.pow(np.maximum(light, 0), 1 / _GAMMA), np.float32)


def blurred(image: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    import cv2

    if sigma < 0.05:
        return image
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101), np.float32)


def smoothstep(value: NDArray[np.float32], low: float, high: float) -> NDArray[np.float32]:
    """0 below `low`, 1 above `high` (or the other way round), smooth between."""
    x = np.clip((value - low) / (high - low), 0, 1)
    return np.asarray(x * x * (3 - 2 * x), np.float32)


def _unit(height: int, width: int) -> float:
    """The size of things such as drops and flakes: 1 for images up to 256x256, growing slowly above.

    A patch of 128x128 then looks like a part of an image of 256x256, and a large photograph has no tiny drops only.
    """
    return max(1.0, float(np.sqrt(min(height, width) / 256)))


def clouds(rng: np.random.Generator, height: int, width: int, scale: float, octaves: int = 4) -> Map:
    """Fractal noise with mean 0 and spread about 1; `scale` is the size of its largest features in pixels."""
    import cv2

    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        cell = scale / 2**octave
        if cell < 1:
            break
        rows, columns = int(height / cell) + 4, int(width / cell) + 4
        grid = rng.standard_normal((rows, columns), dtype=np.float32) * 2.0**-octave
        left, top = rng.uniform(1, 2, 2)
        # Where each pixel lies on the grid: an affine map, interpolated smoothly.
        matrix = np.array([[1 / cell, 0, left], [0, 1 / cell, top]], np.float32)
        flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        total += cv2.warpAffine(grid, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT_101)
    return total


def _ramp(height: int, width: int, angle: float) -> Map:
    """-1 to 1 across the image along a direction (0: to the right, pi/2: downwards)."""
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    return np.asarray((np.cos(angle) * x + np.sin(angle) * y) / (abs(np.cos(angle)) + abs(np.sin(angle))), np.float32)


def motion_blurry(
    image: Image,
    rng: np.random.Generator,
    *,
    length: float | None = None,
    angle: float | None = None,
    curvature: float | None = None,
    roll: float | None = None,
) -> Image:
    """The mean of what a shaking camera sees, in linear light.

    length: of the path in pixels; angle: of its start in radians; curvature: how much the path turns (0: not at all);
    roll: rotation about the middle of the image in degrees, which makes the blur differ from place to place.
    """
    import cv2

    height, width = image.shape[:2]
    length = _drawn(length, rng.uniform(5, 20) * _unit(height, width))
    angle = _drawn(angle, rng.uniform(0, 2 * np.pi))
    curvature = _drawn(curvature, rng.choice([0.3, 1, 2.5]))
    roll = _drawn(roll, rng.normal(0, 0.6))
    count = int(np.clip(np.ceil(length), 8, 40))
    # The hand has inertia: its direction and speed change smoothly.
    wobble = np.cumsum(np.cumsum(rng.standard_normal(count)))
    wobble = wobble / max(1e-6, float(np.ptp(wobble)))
    turning = angle + curvature * (rng.choice([-1, 1]) * np.linspace(0, 1.2, count) + wobble)
    speed = 0.5 + 0.5 * np.abs(np.sin(rng.uniform(0, np.pi) + np.linspace(0, np.pi, count) * rng.uniform(0.3, 1)))
    speed *= length / speed[1:].sum()
    steps = np.stack([np.cos(turning), np.sin(turning)], 1) * speed[:, None]
    steps[0] = 0
    path = np.cumsum(steps, 0)
    path -= path.mean(0)  # or the sharp image would be displaced
    turns = np.linspace(-0.5, 0.5, count) * roll
    light, total = linear(image), np.zeros_like(image)
    for (dx, dy), turn in zip(path, turns):
        matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), turn, 1)
        matrix[:, 2] += dx, dy
        total += cv2.warpAffine(light, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    return clipped(displayed(total / np.float32(count)))


def scene_depth(image: Image, rng: np.random.Generator) -> Map:
    """A guess at the depth of a scene, 0 (near) to 1: growing to the top, in patches, with the borders of the image."""
    import cv2

    height, width = image.shape[:2]
    side = max(height, width)
    slope = _ramp(height, width, -np.pi / 2 + rng.normal(0, 0.35))
    weight = rng.uniform(0.4, 1)
    patches = clouds(rng, height, width, side * rng.uniform(0.25, 0.6), 3)
    guess = np.asarray(weight * slope + 0.25 * np.tanh(2 * patches), np.float32)
    # Skies and distance are bright and pale: what has no dark channel is taken to be farther, more so near the top.
    pale = blurred(np.ascontiguousarray(image.min(axis=2)), side / 40)
    guess += rng.uniform(0.2, 0.8) * (pale - pale.mean()) * (1 + slope)
    # A guided filter makes the borders of the guess follow those of the image.
    grey = np.ascontiguousarray(image @ LUMA)
    window = (max(3, side // 10 | 1),) * 2

    def mean(x: Map) -> Map:
        return np.asarray(cv2.boxFilter(x, -1, window, borderType=cv2.BORDER_REFLECT_101), np.float32)

    mean_grey, mean_guess = mean(grey), mean(guess)
    gain = (mean(grey * guess) - mean_grey * mean_guess) / (mean(grey * grey) - mean_grey**2 + 3e-3)
    depth = mean(gain) * grey + mean(mean_guess - gain * mean_grey)
    low, high = np.percentile(depth[::4, ::4], [2, 98])
    return np.asarray(np.clip((depth - low) / max(float(high - low), 1e-3), 0, 1), np.float32)


def hazy(
    image: Image,
    rng: np.random.Generator,
    *,
    density: float | None = None,
    airlight: float | None = None,
    tint: float | None = None,
    depth: Map | None = None,
) -> Image:
    """I = J t + A (1 - t) with transmission t = exp(-density (0.25 + depth)).

    density: optical thickness; airlight: brightness of A; tint: its colour, from bluish (-1) to yellowish (1);
    depth: map (H, W), 0 near to 1 far; guessed from the image otherwise.
    """
    height, width = image.shape[:2]
    density = _drawn(density, rng.uniform(0.4, 1.7))
    airlight = _drawn(airlight, rng.uniform(0.72, 0.98))
    tint = _drawn(tint, np.clip(rng.normal(0, 0.4), -1, 1))
    guess = scene_depth(image, rng)
    far = guess if depth is None else depth.astype(np.float32)
    veil = 1 + 0.08 * clouds(rng, height, width, max(height, width) / 2, 3)  # haze is not even
    t = np.exp(-density * (0.25 + far) * np.maximum(veil, 0.5))[..., None]
    colour = airlight * np.array([1 + 0.03 * tint, 1, 1 - 0.05 * tint], np.float32)
    return clipped(image * t + colour * (1 - t))


def low_light(
    image: Image,
    rng: np.random.Generator,
    *,
    exposure: float | None = None,
    gamma: float | None = None,
    noise: float | None = None,
    cast: float | None = None,
) -> Image:
    """Exposed far too little: dark, contrasts of the shadows lost, sensor noise.

    exposure: about the share of the brightness that is left; gamma: darkening of middle tones; noise: of the sensor, 1
    for an ordinary one; cast: strength of the colour shift.
    """
    import cv2

    exposure = _drawn(exposure, np.exp(rng.uniform(np.log(0.11), np.log(0.38))))
    gamma = _drawn(gamma, rng.uniform(1, 1.3))
    noise = _drawn(noise, rng.uniform(0.5, 2))
    cast = _drawn(cast, rng.uniform(0, 1))
    tone = (1 + 0.12 * cast * np.clip(rng.standard_normal(3), -2, 2)).astype(np.float32)
    light = np.asarray(cv2.pow(image, _GAMMA * gamma), np.float32) * (exposure**_GAMMA * tone)
    # Photons arrive at random (variance grows with the light), and reading the sensor adds its own noise. Demosaicking
    # spreads both a little.
    grain = blurred(rng.standard_normal(image.shape, dtype=np.float32), 0.45) * 1.3
    light += grain * noise * np.sqrt(6e-5 * light + 1.5e-4**2)
    return clipped(_toe(light))


def _toe(light: Image) -> Image:
    """Display values of the sRGB curve, straight near black where a power would magnify noise without bound."""
    import cv2

    curve = 1.055 * cv2.pow(np.maximum(light, 0.0031308), 1 / 2.4) - 0.055
    return np.asarray(np.where(light < 0.0031308, 12.92 * light, curve), np.float32)


def noisy(image: Image, rng: np.random.Generator, *, sigma: float = 50) -> Image:
    """Gaussian noise, clipped and truncated to 8 bits as in the published set; sigma in 8-bit units."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    return np.asarray(np.floor(clipped(image + np.float32(sigma / 255) * noise) * 255) / 255, np.float32)


def jpeg_compressed(image: Image, rng: np.random.Generator, *, quality: int = 10) -> Image:
    """Through OpenCV's JPEG encoder, as in the published set; quality: of the encoder. Draws nothing."""
    import cv2

    pixels = np.round(image[..., ::-1] * 255).astype(np.uint8)
    _, content = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, int(quality)])
    decoded = np.asarray(cv2.imdecode(content, cv2.IMREAD_COLOR), np.float32)
    return np.ascontiguousarray(decoded[..., ::-1]) / np.float32(255)


def _outline(dx: NDArray[np.float32], dy: NDArray[np.float32], bumps: Floats, phases: Floats) -> NDArray[np.float32]:
    """The radius of an irregular blob by direction, about 1."""
    theta = np.arctan2(dy, dx)
    total = np.ones_like(theta)
    for k, (bump, phase) in enumerate(zip(bumps, phases)):
        total += np.float32(bump) * np.cos((k + 2) * theta + np.float32(phase))
    return total


def raindrop(
    image: Image,
    rng: np.random.Generator,
    *,
    coverage: float | None = None,
    size: float | None = None,
    defocus: float | None = None,
) -> Image:
    """Drops on a pane before the lens: each shows a small, flipped, blurred view of the scene.

    coverage: share of the image below drops (they overlap); size: radius of the large ones in pixels; defocus: softness
    of their borders in pixels.
    """
    height, width = image.shape[:2]
    unit = _unit(height, width)
    coverage = _drawn(coverage, rng.uniform(0.03, 0.18))
    size = _drawn(size, rng.uniform(10, 22) * unit)
    defocus = _drawn(defocus, rng.uniform(1, 3.5) * unit)
    result = image.copy()
    # What a drop shows is small: the views are taken from a blurred image, or they would alias.
    views = blurred(image, 3 * unit)
    wet, wanted = 0.0, coverage * height * width
    while wet < wanted:
        # Many small drops, few large ones.
        radius = max(1.0, size * (0.2 + 1.1 * float(rng.beta(1, 2.2))))
        centre = rng.uniform(-0.2 * radius, [width + 0.2 * radius, height + 0.2 * radius])
        _add_drop(result, views, rng, centre, radius, defocus)
        wet += 3 * radius**2
    return clipped(result)


def _within(position: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Positions pressed together towards the borders: none lies outside, where the image would be mirrored."""
    half = (size - 1) / 2
    return np.asarray(half + half * np.tanh((position - half) / half), np.float32)


def _add_drop(
    result: Image, views: Image, rng: np.random.Generator, centre: NDArray[np.float64], radius: float, defocus: float
) -> None:
    """Put one drop into an image."""
    import cv2

    height, width = result.shape[:2]
    stretch = rng.uniform(1, 1.35)  # gravity
    bumps = rng.normal(0, [0.09, 0.06, 0.04]), rng.uniform(0, 2 * np.pi, 3)
    zoom, shift = rng.uniform(2.5, 5), rng.normal(0, 0.15, 2) * (width, height)
    rim, sparkle, gain = rng.uniform(0.3, 0.75), rng.uniform(0, 0.8), rng.uniform(0.85, 1.2)
    reach = 1.5 * radius * stretch + 2 * defocus
    left, right = max(0, int(centre[0] - reach)), min(width, int(centre[0] + reach) + 1)
    top, bottom = max(0, int(centre[1] - reach)), min(height, int(centre[1] + reach) + 1)
    if right <= left or bottom <= top:
        return
    dx = np.arange(left, right, dtype=np.float32)[None, :] - np.float32(centre[0])
    dy = np.arange(top, bottom, dtype=np.float32)[:, None] - np.float32(centre[1])
    # Distance from the centre, 1 at the outline.
    q = np.sqrt(dx * dx + (dy / np.float32(stretch)) ** 2) / (radius * _outline(dx, dy, *bumps))
    soft = min(0.8, defocus / radius)
    alpha = smoothstep(q, 1 + soft, 1 - soft)
    # The drop is a strong lens: the farther from its centre, the farther to the other side it looks.
    bend = zoom * (1 + 0.8 * q * q)
    map_x = _within(centre[0] + shift[0] - bend * dx, width)
    map_y = _within(centre[1] + shift[1] - bend * dy, height)
    view = cv2.remap(views, map_x, map_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    # Light from above leaves the upper side dark and gathers along the lower rim.
    lower = dy / (radius * stretch)
    edge = smoothstep(q, 0.55, 1.05)
    view = view * (gain * (1 - rim * edge * smoothstep(lower, 0.7, -0.6)))[..., None]
    glow = 0.35 * rim * edge * smoothstep(lower, 0, 0.9)
    glint = sparkle * np.exp(-(((dx + 0.3 * radius) ** 2 + (dy + 0.4 * radius) ** 2) / (0.16 * radius + 0.6) ** 2))
    view = view + (glow + glint)[..., None] * (1 - np.minimum(view, 1))
    patch = result[top:bottom, left:right]
    patch += alpha[..., None] * (view.astype(np.float32) - patch)


def _scatter(rng: np.random.Generator, height: int, width: int, share: float) -> Map:
    """A few points of random strength on a black map."""
    count = int(rng.poisson(share * height * width))
    points = np.zeros((height, width), np.float32)
    rows, columns = rng.integers(0, height, count), rng.integers(0, width, count)
    points[rows, columns] = rng.uniform(0.35, 1, count)
    return points


def _streak(length: float, thickness: float, angle: float) -> Map:
    """A filter that draws a streak: a line with soft ends, peak 1. angle in radians, pi/2 is vertical."""
    half = int(np.ceil(length / 2 + 2 * thickness)) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    along, across = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
    profile = np.exp(-0.5 * (across / thickness) ** 2) * smoothstep(np.abs(along), length / 2 + 1, length / 5)
    return np.asarray(profile, np.float32)


def _stamped(points: Map, stamp: Map, margin: int) -> Map:
    """A copy of the stamp at every point; `points` has a margin so that copies enter from outside."""
    import cv2

    stamped = cv2.filter2D(points, -1, stamp, borderType=cv2.BORDER_CONSTANT)
    height, width = points.shape
    return np.asarray(stamped[margin : height - margin, margin : width - margin], np.float32)


def rainy(
    image: Image,
    rng: np.random.Generator,
    *,
    density: float | None = None,
    angle: float | None = None,
    length: float | None = None,
    brightness: float | None = None,
    mist: float | None = None,
) -> Image:
    """Heavy rain: layers of streaks from far (short, thin, many) to near (long, wide, few), and mist.

    density: number of streaks, 1 for much; angle: from the vertical in radians; length: of most streaks in pixels;
    brightness: of the streaks; mist: share of the light that the finest drops scatter.
    """
    height, width = image.shape[:2]
    unit = _unit(height, width)
    density = _drawn(density, rng.uniform(0.35, 1.5))
    angle = _drawn(angle, np.clip(rng.normal(0, 0.35), -0.9, 0.9))
    length = _drawn(length, rng.uniform(14, 28) * unit)
    brightness = _drawn(brightness, rng.uniform(0.55, 0.95))
    mist = _drawn(mist, rng.uniform(0, 0.25))
    clear = np.ones((height, width), np.float32)
    # share of pixels where a streak lies, length, thickness and opacity by layer
    for share, long, thick, opacity in ((0.02, 0.6, 0.5, 0.5), (0.006, 1, 0.8, 0.85), (0.0009, 1.9, 1.4, 0.6)):
        for _ in range(2):  # not all drops fall alike
            streak = _streak(
                length * long * rng.uniform(0.8, 1.2),
                thick * unit**0.5 * rng.uniform(0.85, 1.2),
                np.pi / 2 + angle + rng.normal(0, 0.04),
            )
            margin = streak.shape[0] // 2
            points = _scatter(rng, height + 2 * margin, width + 2 * margin, density * share / 2 / unit)
            clear *= 1 - np.minimum(opacity * brightness * _stamped(points, streak, margin), 0.95)
    veil = mist * (1 + 0.35 * clouds(rng, height, width, max(height, width) / 2, 3))
    grey = np.float32(0.55 + 0.25 * float(image.mean()))
    soft = image + np.clip(veil, 0, 0.6)[..., None] * (grey - image)
    # A drop shows the bright surroundings: streaks are light, a little bluish, whatever is behind them.
    colour = np.array([0.93, 0.95, 0.97], np.float32)
    return clipped(soft + (1 - clear)[..., None] * np.maximum(colour - soft, 0))


def _sky(image: Image) -> Map:
    """Where the image shows sky, 0 to 1: bright or blue, smooth, and nothing else above."""
    import cv2

    grey = np.ascontiguousarray(image @ LUMA)
    busy = blurred(np.abs(grey - blurred(grey, 2)), 2)
    tone = smoothstep(grey + 1.5 * (image[..., 2] - image[..., 0]), 0.6, 0.8)
    sky = np.minimum.accumulate(blurred(tone, 1) * smoothstep(busy, 0.05, 0.025), axis=0)
    # Borders are busy: the sky goes on to where the tone ends.
    return blurred(np.asarray(cv2.dilate(sky, np.ones((15, 15), np.uint8)), np.float32) * tone, 0.7)


def shadow_mask(height: int, width: int, rng: np.random.Generator, share: float, softness: float) -> Map:
    """How much of the direct light is taken away, 0 to 1: the shadow of something irregular with a penumbra.

    share: of the image that lies in shadow; softness: width of the penumbra in pixels.
    """
    import cv2

    side = max(height, width)
    kind = rng.choice(["cloud", "object", "foliage"], p=[0.35, 0.4, 0.25])
    scale = side * rng.uniform(0.5, 1.1)
    # Shadows fall on the ground and on what stands there: rather below than above.
    field = clouds(rng, height, width, scale, 4) + 1.8 * _ramp(height, width, np.pi / 2 + rng.normal(0, 0.7))
    if kind == "object":
        # Straight borders as of roofs, posts and people: the outlines of random shapes, bent a little.
        shape = np.zeros((height, width), np.float32)
        for _ in range(int(rng.integers(1, 4))):
            middle, count = rng.uniform([0, 0.45], [1, 1.15]) * (width, height), int(rng.integers(4, 8))
            turns = np.sort(rng.uniform(0, 2 * np.pi, count))
            reach = side * rng.uniform(0.25, 0.7, (count, 1)) * rng.uniform(0.35, 1)
            corners = middle + reach * np.stack([np.cos(turns), np.sin(turns)], 1)
            cv2.fillPoly(shape, [np.round(corners).astype(np.int32)], 1.0)
        field = 2.5 * blurred(shape, side / 60) + 0.25 * field
    elif kind == "foliage":
        leaves = clouds(rng, height, width, side * rng.uniform(0.08, 0.16), 3)
        field = field + 0.8 * leaves
    border = float(np.quantile(field[::2, ::2], 1 - share))
    mask = (field > border).astype(np.float32)
    # The penumbra widens with the distance from what casts the shadow.
    sharp, wide = blurred(mask, 0.3 + 0.4 * softness), blurred(mask, 1.6 * softness)
    near = smoothstep(_ramp(height, width, rng.uniform(0, 2 * np.pi)), -0.8, 0.8)
    return np.asarray(sharp + near * (wide - sharp), np.float32)


def shadowed(
    image: Image,
    rng: np.random.Generator,
    *,
    darkness: float | None = None,
    share: float | None = None,
    softness: float | None = None,
    shift: float | None = None,
    mask: Map | None = None,
) -> Image:
    """Direct light taken away within a mask, in linear light; what is left is light of the sky, and bluish.

    darkness: share of the light that is lost; share: of the image in shadow; softness: of the border in pixels;
    shift: strength of the change to blue; mask: (H, W), 1 in full shadow; made up otherwise.
    """
    height, width = image.shape[:2]
    darkness = _drawn(darkness, rng.uniform(0.6, 0.88))
    share = _drawn(share, rng.uniform(0.15, 0.5))
    softness = _drawn(softness, np.exp(rng.uniform(np.log(1), np.log(6))) * _unit(height, width))
    shift = _drawn(shift, rng.uniform(0.2, 1))
    made_up = shadow_mask(height, width, rng, share, softness)
    # The sky is spared mostly, not always: a white table looks like it, and its shadows are to be learned too.
    if rng.uniform() < 0.7:
        made_up = made_up * (1 - _sky(image))
    mask = made_up if mask is None else mask.astype(np.float32)
    left = (1 - darkness) * (1 + shift * np.array([-0.18, 0.0, 0.3], np.float32))
    return clipped(displayed(linear(image) * (1 - mask[..., None] * (1 - np.minimum(left, 1)))))


def _flake(rng: np.random.Generator, radius: float, blur: float, drift: tuple[float, float]) -> Map:
    """A filter that draws a flake: an irregular blob, out of focus, moving by `drift` pixels. Peak 1."""
    import cv2

    reach = int(np.ceil(radius * 1.5 + 2.5 * blur + max(map(abs, drift)) / 2)) + 1
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float32)
    outline = _outline(x, y, rng.normal(0, [0.18, 0.14, 0.1]), rng.uniform(0, 2 * np.pi, 3))
    body = blurred(smoothstep(np.hypot(x, y) / (radius * outline), 1.2, 0.5), blur)
    steps = int(np.ceil(max(map(abs, drift)))) + 1
    if steps > 1:
        moved = np.zeros_like(body)
        for t in np.linspace(-0.5, 0.5, steps):
            matrix = np.array([[1, 0, t * drift[0]], [0, 1, t * drift[1]]], np.float32)
            moved += cv2.warpAffine(body, matrix, body.shape[::-1])
        body = moved
    return np.asarray(body / body.max(), np.float32)


def snowy(
    image: Image,
    rng: np.random.Generator,
    *,
    density: float | None = None,
    size: float | None = None,
    speed: float | None = None,
    angle: float | None = None,
) -> Image:
    """Falling snow: flakes from far (tiny, many) to near (large, out of focus, few), moving with the wind.

    density: number of flakes, 1 for much; size: 1 for ordinary flakes; speed: 0 for still ones, 1 for
    streaks as long as two flakes; angle: of the fall from the vertical in radians.
    """
    height, width = image.shape[:2]
    density = _drawn(density, rng.uniform(0.4, 1.4))
    size = _drawn(size, rng.uniform(0.8, 1.3)) * _unit(height, width)
    speed = _drawn(speed, rng.choice([0.1, 0.5, 1]) * rng.uniform(0.6, 1))
    angle = _drawn(angle, np.clip(rng.normal(0, 0.5), -1.2, 1.2))
    clear = np.ones((height, width), np.float32)
    # share of pixels where a flake lies, radius, blur, opacity by layer
    layers = ((0.014, 0.7, 0.35, 0.8), (0.005, 1.5, 0.45, 0.95), (0.0018, 2.8, 0.8, 0.95), (0.0003, 5.5, 2, 0.75))
    for share, radius, blur, opacity in layers:
        for _ in range(2):
            radius_here = radius * size * rng.uniform(0.8, 1.25)
            course, way = angle + rng.normal(0, 0.12), 4 * speed * radius_here * rng.uniform(0.5, 1)
            flake = _flake(rng, radius_here, blur * size, (way * np.sin(course), way * np.cos(course)))
            margin = flake.shape[0] // 2
            points = _scatter(rng, height + 2 * margin, width + 2 * margin, density * share / 2 / size)
            # A moving flake covers each place for a part of the time only.
            cover = opacity / (1 + 0.1 * way / radius_here)
            clear *= 1 - np.minimum(cover * _stamped(points, flake, margin), 1)
    white = np.float32(0.97)
    return clipped(image + (1 - clear)[..., None] * np.maximum(white - image, 0))


def hole_mask(height: int, width: int, rng: np.random.Generator, share: float) -> Map:
    """A keep-mask, 0 in holes and 1 elsewhere: brush strokes along random walks, and blobs, up to the share."""
    import cv2

    if not 0 <= share <= 0.95:
        raise ValueError(f"share of holes must be in [0, 0.95], got {share}")
    side = min(height, width)
    mask = np.zeros((height, width), np.uint8)
    wanted = share * height * width
    while cv2.countNonZero(mask) < wanted:
        x, y = rng.uniform(0, width), rng.uniform(0, height)
        if rng.uniform() < 0.2:
            axes = np.maximum(1, np.round(side * rng.uniform(0.02, 0.07, 2))).astype(int)
            cv2.ellipse(mask, (int(x), int(y)), axes.tolist(), rng.uniform(0, 180), 0, 360, 255, -1)
            continue
        brush = max(1, round(side * rng.uniform(0.02, 0.07)))
        direction = rng.uniform(0, 2 * np.pi)
        for turn, step in zip(rng.normal(0, 0.7, 20), rng.uniform(0.03, 0.09, 20) * side):
            direction += turn
            end = (x + step * np.cos(direction), y + step * np.sin(direction))
            cv2.line(mask, (round(x), round(y)), (round(end[0]), round(end[1])), 255, brush)
            x, y = end
            if cv2.countNonZero(mask) >= wanted or not (0 <= x < width and 0 <= y < height):
                break
    return np.asarray(mask == 0, np.float32)


def uncompleted(
    image: Image, rng: np.random.Generator, *, share: float | None = None, mask: Map | None = None
) -> Image:
    """White holes: LQ = m x + (1 - m). share: of the image in holes; mask: keep-mask m (H, W), drawn otherwise."""
    # 3.5 % to 50 %, 30 % on average, as the published masks.
    share = _drawn(share, 0.035 + 0.46 * rng.beta(1.7, 1.25))
    drawn = hole_mask(image.shape[0], image.shape[1], rng, share)
    keep = (drawn if mask is None else mask.astype(np.float32))[..., None]
    return image * keep + (1 - keep)


DEGRADATIONS: dict[str, Callable[..., Image]] = {
    "motion-blurry": motion_blurry,
    "hazy": hazy,
    "jpeg-compressed": jpeg_compressed,
    "low-light": low_light,
    "noisy": noisy,
    "raindrop": raindrop,
    "rainy": rainy,
    "shadowed": shadowed,
    "snowy": snowy,
    "uncompleted": uncompleted,
}


def degrade(name: str, image: Image, rng: np.random.Generator | int, **strength: object) -> Image:
    """Degrade an image by the name of the task; an integer instead of a generator is a seed."""
    check_choice("degradation", name, DEGRADATIONS)
    keywords = list(inspect.signature(DEGRADATIONS[name]).parameters)[2:]
    for keyword in strength:
        if keyword not in keywords:
            raise unknown(f"strength of {name!r}", keyword, keywords)
    if image.ndim != 3 or image.shape[2] != 3 or min(image.shape[:2]) < 32:
        raise ValueError(f"an image (H, W, 3) of at least 32x32 pixels is needed, got {image.shape}")
    generator = np.random.default_rng(rng) if isinstance(rng, int) else rng
    return DEGRADATIONS[name](np.ascontiguousarray(image, np.float32), generator, **strength)


def tensor_degradation(name: str, **strength: object) -> Degrade:
    """The degradation of a task for tensors (3, H, W), as the evaluation and the training use it."""
    check_choice("degradation", name, DEGRADATIONS)

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        degraded = degrade(name, image.permute(1, 2, 0).cpu().numpy(), rng, **strength)
        return torch.from_numpy(np.ascontiguousarray(degraded.transpose(2, 0, 1))).to(image.device)

    return apply


def gaussian_noise(sigma: float = 25) -> Degrade:
    """The published rule for denoising on the fly: x + (sigma/255) n, not clipped."""

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(rng.standard_normal(tuple(image.shape), dtype=np.float32))
        return image + (sigma / 255) * noise.to(image.device)

    return apply


def super_resolution(scale: int = 4) -> Degrade:
    """The published rule for super-resolution: shrunk by `scale` and enlarged again, both bicubic; draws nothing."""
    if scale < 1:
        raise ValueError(f"scale must be at least 1, got {scale}")

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        height, width = image.shape[-2:]
        small = (max(1, height // scale), max(1, width // scale))
        resize = torch.nn.functional.interpolate
        shrunk = resize(image[None], size=small, mode="bicubic", align_corners=False, antialias=True).clamp(0, 1)
        return resize(shrunk, size=(height, width), mode="bicubic", align_corners=False)[0]

    return apply


def enlarged(image: Tensor, scale: int) -> Tensor:
    """A small image at the size to be restored, as the published super-resolution prepares it: bicubic."""
    resize = torch.nn.functional.interpolate
    return resize(image[None], scale_factor=scale, mode="bicubic", align_corners=False)[0]


def mask_inpainting(mask_root: str | Path) -> Degrade:
    """The published rule for inpainting: m x + (1 - m), with a random mask of a folder (0: hole) for each image."""
    paths = list(find_images(Path(mask_root)).values())

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        mask = read_image(paths[int(rng.integers(len(paths)))])[None, :1]
        keep = torch.nn.functional.interpolate(mask, size=image.shape[-2:], mode="nearest")[0].to(image.device)
        return keep * image + (1 - keep)

    return apply
