"""The words that options take, derived from the registry rows."""

from typing import TYPE_CHECKING, Literal

from ..networks.rows import ROWS
from ..rows import DEGRADATIONS, METRICS

if TYPE_CHECKING:
    MetricName = str
    TaskName = str
    Degraded = str
    NetworkName = str
    NetworkVariant = str
    LatentNetworkName = str
else:
    MetricName = Literal[tuple(METRICS)]
    TaskName = Literal[tuple(DEGRADATIONS)]
    Degraded = Literal[(*DEGRADATIONS, "super-resolution")]
    NetworkName = Literal[tuple(dict.fromkeys(row.name for row in ROWS if row.role != "encoder"))]
    NetworkVariant = Literal[tuple(dict.fromkeys(row.variant for row in ROWS if row.role != "encoder"))]
    LatentNetworkName = Literal[tuple(dict.fromkeys(row.name for row in ROWS if row.role == "latent"))]
