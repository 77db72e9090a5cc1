"""Degradations within a mask: cast shadows and white holes."""

import numpy as np

from .common import LUMA, Image, Map, blurred, clipped, clouds, displayed, drawn, linear, ramp, smoothstep, unit_of


def shadow_mask(height: int, width: int, rng: np.random.Generator, share: float, softness: float) -> Map:
    """How much of the direct light is taken away, 0 to 1: the shadow of something irregular with a penumbra.

    share: of the image that lies in shadow; softness: width of the penumbra in pixels.
    """
    import cv2

    side = max(height, width)
    kind = rng.choice(["cloud", "object", "foliage"], p=[0.35, 0.4, 0.25])
    scale = side * rng.uniform(0.5, 1.1)
    # Shadows fall on the ground and on what stands there: rather below than above.
    field = clouds(rng, height, width, scale, 4) + 1.8 * ramp(height, width, np.pi / 2 + rng.normal(0, 0.7))
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
    near = smoothstep(ramp(height, width, rng.uniform(0, 2 * np.pi)), -0.8, 0.8)
    return np.asarray(sharp + near * (wide - sharp), np.float32)


def _sky(image: Image) -> Map:
    """Where the image shows sky, 0 to 1: bright or blue, smooth, and nothing else above."""
    import cv2

    grey = np.ascontiguousarray(image @ LUMA)
    busy = blurred(np.abs(grey - blurred(grey, 2)), 2)
    tone = smoothstep(grey + 1.5 * (image[..., 2] - image[..., 0]), 0.6, 0.8)
    sky = np.minimum.accumulate(blurred(tone, 1) * smoothstep(busy, 0.05, 0.025), axis=0)
    # Borders are busy: the sky goes on to where the tone ends.
    return blurred(np.asarray(cv2.dilate(sky, np.ones((15, 15), np.uint8)), np.float32) * tone, 0.7)


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
    darkness = drawn(darkness, rng.uniform(0.6, 0.88))
    share = drawn(share, rng.uniform(0.15, 0.5))
    softness = drawn(softness, np.exp(rng.uniform(np.log(1), np.log(6))) * unit_of(height, width))
    shift = drawn(shift, rng.uniform(0.2, 1))
    made_up = shadow_mask(height, width, rng, share, softness)
    # The sky is spared mostly, not always: a white table looks like it, and its shadows are to be learned too.
    if rng.uniform() < 0.7:
        made_up = made_up * (1 - _sky(image))
    mask = made_up if mask is None else mask.astype(np.float32)
    left = (1 - darkness) * (1 + shift * np.array([-0.18, 0.0, 0.3], np.float32))
    return clipped(displayed(linear(image) * (1 - mask[..., None] * (1 - np.minimum(left, 1)))))


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
    share = drawn(share, 0.035 + 0.46 * rng.beta(1.7, 1.25))
    made_up = hole_mask(image.shape[0], image.shape[1], rng, share)
    keep = (made_up if mask is None else mask.astype(np.float32))[..., None]
    return image * keep + (1 - keep)
