"""Distances between two sets of images, from their Inception features: FID and KID."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def fid(features_a: ArrayLike, features_b: ArrayLike) -> float:
    """Frechet distance of the Gaussians fitted to two sets of features, (N, D) and (M, D).

    |mean_a - mean_b|^2 + tr C_a + tr C_b - 2 tr (C_a C_b)^(1/2), covariances with N - 1 as usual.

    The usual matrix square root (scipy's sqrtm) of the D x D product breaks down where there are fewer images than
    features: the product is singular, and the result has imaginary parts or depends on an offset added to the diagonal.
    Here C_a = A^T A with A the centred features over sqrt(N - 1), and the eigenvalues of C_a C_b are the squared
    singular values of A B^T: their sum needs no root of a matrix, is real, and for N images costs N^3, not D^3.
    """
    a, b = _checked(features_a, features_b)
    shift = a.mean(axis=0) - b.mean(axis=0)
    root_a, root_b = _covariance_root(a), _covariance_root(b)
    traces = np.sum(root_a**2) + np.sum(root_b**2)
    cross = np.linalg.svd(root_a @ root_b.T, compute_uv=False).sum()
    # Rounding can take the distance of equal sets below zero.
    return max(0.0, float(shift @ shift + traces - 2 * cross))


def kid(
    features_a: ArrayLike, features_b: ArrayLike, *, subsets: int = 100, subset_size: int = 1000, seed: int = 0
) -> float:
    """Kernel distance: the unbiased estimate of MMD^2 with the kernel (x.y / D + 1)^3.

    Unlike FID it has no bias for small sets, and so may be slightly negative for equal distributions. Sets of at most
    `subset_size` images are compared whole; larger ones by the mean over `subsets` pairs of random subsets, the same
    ones for the same `seed`.
    """
    a, b = _checked(features_a, features_b)
    if max(len(a), len(b)) <= subset_size:
        return _mmd(a, b)
    size = min(len(a), len(b), subset_size)
    rng = np.random.default_rng(seed)
    draws = [
        _mmd(a[rng.choice(len(a), size, replace=False)], b[rng.choice(len(b), size, replace=False)])
        for _ in range(subsets)
    ]
    return float(np.mean(draws))


def _covariance_root(features: Floats) -> Floats:
    """A matrix R of at most D rows with R^T R the covariance."""
    centred = (features - features.mean(axis=0)) / np.sqrt(len(features) - 1)
    # The triangular factor stands for all rows where there are more images than features.
    return np.asarray(np.linalg.qr(centred, mode="r")) if len(centred) > centred.shape[1] else centred


def _mmd(a: Floats, b: Floats) -> float:
    def kernel(x: Floats, y: Floats) -> Floats:
        return np.asarray((x @ y.T / x.shape[1] + 1) ** 3)

    def within(x: Floats) -> float:
        # Without the diagonal: an image's likeness to itself is what makes the plain estimate biased.
        values = kernel(x, x)
        return float((values.sum() - np.trace(values)) / (len(x) * (len(x) - 1)))

    return within(a) + within(b) - 2 * float(kernel(a, b).mean())


def _checked(features_a: ArrayLike, features_b: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(features_a, np.float64), np.asarray(features_b, np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"expected two sets of features of shape (N, D) and (M, D), got {a.shape} and {b.shape}")
    if min(len(a), len(b)) < 2:
        raise ValueError(f"each set needs at least 2 images, got {len(a)} and {len(b)}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("the features are not all finite numbers")
    return a, b
