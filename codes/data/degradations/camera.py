"""Degradations made by the camera: motion blur, too little light, noise, compression."""

import numpy as np

from .common import GAMMA, Image, blurred, clipped, displayed, drawn, linear, unit_of


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
    length = drawn(length, rng.uniform(5, 20) * unit_of(height, width))
    angle = drawn(angle, rng.uniform(0, 2 * np.pi))
    curvature = drawn(curvature, rng.choice([0.3, 1, 2.5]))
    roll = drawn(roll, rng.normal(0, 0.6))
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

    exposure = drawn(exposure, np.exp(rng.uniform(np.log(0.11), np.log(0.38))))
    gamma = drawn(gamma, rng.uniform(1, 1.3))
    noise = drawn(noise, rng.uniform(0.5, 2))
    cast = drawn(cast, rng.uniform(0, 1))
    tone = (1 + 0.12 * cast * np.clip(rng.standard_normal(3), -2, 2)).astype(np.float32)
    light = np.asarray(cv2.pow(image, GAMMA * gamma), np.float32) * (exposure**GAMMA * tone)
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
