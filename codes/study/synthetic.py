"""Networks whose error is known: the exact posterior of images that were drawn from a model, plus a chosen error.

A problem draws clean and degraded images of which p(x_0 | mu) is a mixture, so that E[x_0 | x_t, mu] is exact. Unlike
the mixtures of `codes.exact`, which stand for one degraded point, these are of image size and depend on mu: the study
measures solvers on them in the very way it measures trained networks.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import fft
from torch import Tensor, nn

from ..data.images import read_image, to_uint8
from ..data.resizing import scaled
from ..runtime.paths import locate
from ..sde import Array, MeanRevertingSDE

SIZE = 64  # side of the images; LPIPS needs about as much
IMAGES = 10
LEVEL = 1 / 255


@dataclass(frozen=True, eq=False)
class Posterior:
    """p(x_0 | mu) in coordinates of y = x_0 - mu: N independent parts, each a mixture with diagonal covariance."""

    log_weights: Array  # (N, K)
    means: Array  # (N, K, D)
    variances: Array  # (N, K, D), or 1 in place of N, K or D

    def data(self, y: Array, alpha: float, sigma: float) -> Array:
        """E[y_0 | y_t = y] for y of shape (N, D)."""
        total = alpha**2 * self.variances + sigma**2
        gaps = y[:, None] - alpha * self.means
        dims = self.means.shape[2] // total.shape[2]  # a variance that D coordinates share counts D times
        logits = self.log_weights - 0.5 * (gaps**2 / total).sum(2) - 0.5 * dims * np.log(total).sum(2)
        share = np.exp(logits - logits.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        estimates = self.means + alpha * self.variances / total * gaps
        return np.asarray(np.einsum("nk,nkd->nd", share, estimates))

    def draw(self, rng: np.random.Generator) -> Array:
        """A sample of y_0, (N, D)."""
        share = np.exp(self.log_weights - self.log_weights.max(1, keepdims=True))
        chosen = (share.cumsum(1) < rng.random((len(share), 1)) * share.sum(1, keepdims=True)).sum(1)
        variances = np.broadcast_to(self.variances, self.means.shape)
        parts = np.arange(len(share))
        means = self.means[parts, chosen]
        return np.asarray(means + np.sqrt(variances[parts, chosen]) * rng.standard_normal(means.shape))


class Problem(Protocol):
    """Images, their degradation, and what is known about the clean image once the degraded one is given."""

    def draw(self, number: int) -> tuple[Array, Array]:
        """Clean and degraded image of a number, (3, SIZE, SIZE)."""

    def posterior(self, mu: Array) -> Posterior:
        """What the degraded image says about the clean one."""

    def coordinates(self, image: Array) -> Array:
        """An image (3, SIZE, SIZE) in the posterior's coordinates (N, D), which are orthonormal."""

    def image(self, coordinates: Array) -> Array:
        """The inverse."""


# ---- random fields

_OPPONENT = np.linalg.qr(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]]).T)[0].T


@dataclass(frozen=True)
class Fields:
    """A mixture of Gaussian fields with the spectra of photographs, from smooth to rough; blurred, and noise added."""

    slopes: tuple[float, ...] = (2.2, 2.8, 3.6)  # of the power spectrum
    contrast: float = 0.13  # RMS of the images
    blur: float = 1.5  # standard deviation in pixels
    noise: float = 15 * LEVEL

    @cached_property
    def _frequency(self) -> Array:
        k = np.arange(SIZE)
        return np.hypot(k[:, None], k[None, :])

    @cached_property
    def _variances(self) -> Array:
        """(K, 3, SIZE, SIZE): of luminance, and less of the two other colours."""
        spectra = np.stack([(1 + self._frequency) ** -slope for slope in self.slopes])
        spectra *= (self.contrast * SIZE) ** 2 / spectra.sum((1, 2), keepdims=True)
        return np.asarray(spectra[:, None] * np.array([2.4, 0.4, 0.2])[:, None, None])

    @cached_property
    def _transfer(self) -> Array:
        """The blur, by frequency."""
        return np.exp(-0.5 * (math.pi * self._frequency * self.blur / SIZE) ** 2)

    def draw(self, number: int) -> tuple[Array, Array]:
        rng = np.random.default_rng([1, number])
        spectrum = self._variances[rng.integers(len(self.slopes))]
        clean = np.sqrt(spectrum) * rng.standard_normal(spectrum.shape)
        degraded = self._transfer * clean
        noise = self.noise * rng.standard_normal(spectrum.shape)
        return self.image(clean), self.image(degraded) + noise

    def posterior(self, mu: Array) -> Posterior:
        seen = self.coordinates(mu)[0]
        prior = self._variances.reshape(len(self.slopes), -1)
        transfer = np.broadcast_to(self._transfer, (3, SIZE, SIZE)).ravel()
        total = transfer**2 * prior + self.noise**2
        log_weights = -0.5 * (seen**2 / total + np.log(total)).sum(1)
        means = prior * transfer / total * seen - seen
        return Posterior(log_weights[None], means[None], (prior * self.noise**2 / total)[None])

    def coordinates(self, image: Array) -> Array:
        colours = np.einsum("ij,jhw->ihw", _OPPONENT, image - 0.5)
        return np.asarray(fft.dctn(colours, axes=(1, 2), norm="ortho")).reshape(1, -1)

    def image(self, coordinates: Array) -> Array:
        colours = fft.idctn(coordinates.reshape(3, SIZE, SIZE), axes=(1, 2), norm="ortho")
        return np.asarray(np.einsum("ij,ihw->jhw", _OPPONENT, colours)) + 0.5


# ---- a finite set of images


@dataclass(frozen=True)
class Patches:
    """Photographs whose every block of 8x8 pixels is one of a few of the photograph, alike when seen from afar.

    That is a finite set of images: `choices` to the power of the number of blocks, times the number of photographs.
    Degraded, a block of 4x4 pixels has its mean, and noise is added: detail is to be guessed.
    """

    block: int = 8
    choices: int = 24
    noise: float = 24 * LEVEL
    spread: float = 1.5 * LEVEL  # of the pixels around a patch

    @cached_property
    def _photographs(self) -> Array:
        """(IMAGES, 3, SIZE, SIZE): parts of the demonstration images."""
        found = []
        for path in sorted(locate("options/demo/GT").glob("*.png")):
            photo = scaled(to_uint8(read_image(path)), 0.5).transpose(2, 0, 1) * LEVEL
            height, width = photo.shape[1:]
            top = (height - SIZE) // 2
            found += [photo[:, top : top + SIZE, left : left + SIZE] for left in (0, width - SIZE)]
        # Little contrast: noise must not be clipped, which the posterior knows nothing of.
        return 0.25 + 0.5 * np.stack(found[:IMAGES])

    @cached_property
    def _patches(self) -> Array:
        """(IMAGES, N, choices, D): the patches that each block may be."""
        side, found = self.block, []
        for photo in self._photographs:
            blocks = self.coordinates(photo)
            windows = np.lib.stride_tricks.sliding_window_view(photo, (side, side), axis=(1, 2))[:, ::2, ::2]
            known = windows.transpose(1, 2, 0, 3, 4).reshape(-1, blocks.shape[1])
            distances = ((self._afar(known)[None] - self._afar(blocks)[:, None]) ** 2).sum(2)
            found.append(known[np.argsort(distances, axis=1, kind="stable")[:, : self.choices]])
        return np.stack(found)

    def _afar(self, patches: Array) -> Array:
        """Patches (..., D) with every 4x4 pixels replaced by their mean."""
        half = self.block // 4
        split = patches.reshape(*patches.shape[:-1], 3, half, 4, half, 4)
        means = split.mean((-3, -1), keepdims=True)
        return np.broadcast_to(means, split.shape).reshape(patches.shape)

    def draw(self, number: int) -> tuple[Array, Array]:
        rng = np.random.default_rng([2, number])
        patches = self._patches[number % len(self._patches)]
        chosen = patches[np.arange(len(patches)), rng.integers(self.choices, size=len(patches))]
        clean = chosen + self.spread * rng.standard_normal(chosen.shape)
        degraded = self._afar(chosen) + self.noise * rng.standard_normal(chosen.shape)
        return self.image(clean), self.image(degraded)

    def posterior(self, mu: Array) -> Posterior:
        seen = self.coordinates(mu)
        # One photograph is so much more likely than the others that these need not be carried along.
        gaps = [((self._afar(self.coordinates(photo)) - seen) ** 2).sum() for photo in self._photographs]
        patches = self._patches[int(np.argmin(gaps))]
        misfit = ((seen[:, None] - self._afar(patches)) ** 2).sum(2)
        return Posterior(-0.5 * misfit / self.noise**2, patches - seen[:, None], np.full((1, 1, 1), self.spread**2))

    def coordinates(self, image: Array) -> Array:
        n, side = SIZE // self.block, self.block
        return image.reshape(3, n, side, n, side).transpose(1, 3, 0, 2, 4).reshape(n * n, -1)

    def image(self, coordinates: Array) -> Array:
        n, side = SIZE // self.block, self.block
        return coordinates.reshape(n, n, 3, side, side).transpose(2, 0, 3, 1, 4).reshape(3, SIZE, SIZE)


# ---- errors


@dataclass(frozen=True)
class Error:
    """An error of the prediction, as a smooth function of state, image and time.

    size      RMS, of the prediction named by `of`
    of        'noise': of the noise prediction at all times, so that the data prediction near t = T is off by up to 39
              times as much, as with networks that predict noise; 'data': of the data prediction, none at t = T and
              growing to `size` at t = 0, as with networks whose first estimate is their best
    highest   the highest spatial frequency in it, in half cycles per image: 2 is an error of brightness; None for all
    """

    size: float
    of: str = "noise"
    highest: int | None = None

    def field(self, y: Array, point: tuple[float, float, float, float], sigma_inf: float) -> Array:
        """What the data prediction is off by, (3, SIZE, SIZE), at (t / T, alpha, sigma, lambda)."""
        past, alpha, sigma, lambda_ = point
        rng = np.random.default_rng(7)
        phase = rng.uniform(0, 2 * math.pi, y.shape)
        frequency = rng.uniform(-1, 1, y.shape)
        mixed = np.roll(y, (7, 11), axis=(1, 2)) / sigma_inf
        wave = math.sqrt(2) * np.sin(phase + frequency * lambda_ + mixed)
        if self.highest is not None:
            spectrum = fft.dctn(wave, axes=(1, 2), norm="ortho")
            spectrum[:, self.highest :] = 0
            spectrum[:, :, self.highest :] = 0
            wave = np.asarray(fft.idctn(spectrum, axes=(1, 2), norm="ortho")) * (SIZE / self.highest)
        return wave * self.size * (sigma / alpha if self.of == "noise" else 1 - past)


class SyntheticNetwork(nn.Module):
    """The exact data prediction of a problem, plus an error."""

    def __init__(self, problem: Problem, sde: MeanRevertingSDE, error: Error | None = None) -> None:
        super().__init__()
        self.problem, self.sde, self.error = problem, sde, error

    def forward(self, x: Tensor, mu: Tensor, t: Tensor) -> Tensor:
        """E[x_0 | x_t = x, mu] of images (B, 3, SIZE, SIZE)."""
        images = [self._one(*each) for each in zip(_arrays(x), _arrays(mu), t.tolist(), strict=True)]
        return torch.from_numpy(np.stack(images)).to(x)

    def _one(self, x: Array, mu: Array, t: float) -> Array:
        problem, sde = self.problem, self.sde
        alpha, sigma = float(sde.alpha(t)), float(sde.sigma(t))
        origin = problem.coordinates(mu)
        y = problem.coordinates(x) - origin
        clean = problem.image(problem.posterior(mu).data(y, alpha, sigma) + origin)
        if self.error is not None:
            clean = clean + self.error.field(x - mu, (t / sde.T, alpha, sigma, float(sde.lambda_(t))), sde.sigma_inf)
        return clean


def _arrays(images: Tensor) -> NDArray[np.float64]:
    return images.detach().double().cpu().numpy()


@dataclass(frozen=True)
class Synthetic:
    """A row of the study: a problem, an error of the network, and what it stands for."""

    problem: Callable[[], Problem]
    error: Error | None
    about: str


_WHITE, _DIM, _LATE = Error(0.02), Error(0.02, highest=2), Error(0.03, of="data")
_NOISE = "noise prediction off by 0.02"
SYNTHETIC: Mapping[str, Synthetic] = {
    "fields": Synthetic(Fields, None, "Gaussian fields, no error"),
    "fields-white": Synthetic(Fields, _WHITE, f"Gaussian fields, {_NOISE}, all frequencies"),
    "patches": Synthetic(Patches, None, "a finite set of images, no error"),
    "patches-white": Synthetic(Patches, _WHITE, f"a finite set of images, {_NOISE}, all frequencies"),
    "patches-brightness": Synthetic(Patches, _DIM, f"a finite set of images, {_NOISE}, brightness only"),
    "patches-late": Synthetic(
        Patches, _LATE, "a finite set of images, data prediction off by 0 at t = T, 0.03 at t = 0"
    ),
}
