"""What a network may predict, and how one prediction follows from another.

With x = alpha x0 + (1 - alpha) mu + sigma eps, cos(phi) = alpha and sin(phi) = sigma / sigma_inf:

    data      x0
    noise     eps
    velocity  v = dx/dphi = (mu - x0) sin(phi) + sigma_inf cos(phi) eps                                Eq. (31)
    score     s = -eps / sigma

Every conversion is linear in the state x, mu and the prediction y, so it is three numbers: Eqs. (30), (32), (33).
"""

from torch import Tensor

from .names import PREDICTIONS, check_choice
from .sde import Point, linear_combination


def conversion_weights(source: str, target: str, point: Point, sigma_inf: float) -> tuple[float, float, float]:
    """(w_x, w_mu, w_y) such that `target = w_x x + w_mu mu + w_y y` for a prediction y of kind `source`.

    Raises ZeroDivisionError where no conversion exists: at sigma = 0 the data prediction determines neither noise,
    velocity nor score, and at alpha = 0 the noise determines nothing else.
    """
    check_choice("prediction", source, PREDICTIONS)
    check_choice("prediction", target, PREDICTIONS)
    if source == target:
        return 0.0, 0.0, 1.0
    alpha, sigma = point.alpha, point.sigma
    cos, sin = alpha, sigma / sigma_inf
    if target == "data":
        if source == "velocity":
            return cos, 1 - cos, -sin
        w_eps = -sigma / alpha
        return 1 / alpha, -(1 - alpha) / alpha, w_eps if source == "noise" else -sigma * w_eps
    if target == "noise":
        if source == "score":
            return 0.0, 0.0, -sigma
        if source == "velocity":
            return sin / sigma_inf, -sin / sigma_inf, cos / sigma_inf
        return 1 / sigma, -(1 - alpha) / sigma, -alpha / sigma
    if target == "velocity":
        if source == "data":
            return cos / sin, (1 - cos) / sin, -1 / sin
        w_eps = sigma_inf / cos
        return -sin / cos, sin / cos, w_eps if source == "noise" else -sigma * w_eps
    w_x, w_mu, w_y = conversion_weights(source, "noise", point, sigma_inf)
    return -w_x / sigma, -w_mu / sigma, -w_y / sigma


def convert(y: Tensor, x: Tensor, mu: Tensor, point: Point, *, source: str, target: str, sigma_inf: float) -> Tensor:
    """The `target` prediction that the `source` prediction y at the state x amounts to."""
    w_x, w_mu, w_y = conversion_weights(source, target, point, sigma_inf)
    if (w_x, w_mu, w_y) == (0.0, 0.0, 1.0):
        return y
    return linear_combination([(w_x, x), (w_mu, mu), (w_y, y)])
