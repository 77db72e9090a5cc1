"""Degradations made by the weather: haze, drops on the lens, rain, snow."""

import numpy as np
from numpy.typing import NDArray

from .common import LUMA, Image, Map, blurred, clipped, clouds, drawn, outline_of, ramp, smoothstep, unit_of


def scene_depth(image: Image, rng: np.random.Generator) -> Map:
    """A guess at the depth of a scene, 0 (near) to 1: growing to the top, in patches, with the borders of the image."""
    import cv2

    height, width = image.shape[:2]
    side = max(height, width)
    slope = ramp(height, width, -np.pi / 2 + rng.normal(0, 0.35))
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
    density = drawn(density, rng.uniform(0.4, 1.7))
    airlight = drawn(airlight, rng.uniform(0.72, 0.98))
    tint = drawn(tint, np.clip(rng.normal(0, 0.4), -1, 1))
    guess = scene_depth(image, rng)
    far = guess if depth is None else depth.astype(np.float32)
    veil = 1 + 0.08 * clouds(rng, height, width, max(height, width) / 2, 3)  # haze is not even
    t = np.exp(-density * (0.25 + far) * np.maximum(veil, 0.5))[..., None]
    colour = airlight * np.array([1 + 0.03 * tint, 1, 1 - 0.05 * tint], np.float32)
    return clipped(image * t + colour * (1 - t))


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
    unit = unit_of(height, width)
    coverage = drawn(coverage, rng.uniform(0.03, 0.18))
    size = drawn(size, rng.uniform(10, 22) * unit)
    defocus = drawn(defocus, rng.uniform(1, 3.5) * unit)
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
    q = np.sqrt(dx * dx + (dy / np.float32(stretch)) ** 2) / (radius * outline_of(dx, dy, *bumps))
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
    unit = unit_of(height, width)
    density = drawn(density, rng.uniform(0.35, 1.5))
    angle = drawn(angle, np.clip(rng.normal(0, 0.35), -0.9, 0.9))
    length = drawn(length, rng.uniform(14, 28) * unit)
    brightness = drawn(brightness, rng.uniform(0.55, 0.95))
    mist = drawn(mist, rng.uniform(0, 0.25))
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


def _flake(rng: np.random.Generator, radius: float, blur: float, drift: tuple[float, float]) -> Map:
    """A filter that draws a flake: an irregular blob, out of focus, moving by `drift` pixels. Peak 1."""
    import cv2

    reach = int(np.ceil(radius * 1.5 + 2.5 * blur + max(map(abs, drift)) / 2)) + 1
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].astype(np.float32)
    outline = outline_of(x, y, rng.normal(0, [0.18, 0.14, 0.1]), rng.uniform(0, 2 * np.pi, 3))
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
    density = drawn(density, rng.uniform(0.4, 1.4))
    size = drawn(size, rng.uniform(0.8, 1.3)) * unit_of(height, width)
    speed = drawn(speed, rng.choice([0.1, 0.5, 1]) * rng.uniform(0.6, 1))
    angle = drawn(angle, np.clip(rng.normal(0, 0.5), -1.2, 1.2))
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
