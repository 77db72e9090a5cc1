"""What a network may have besides `forward(x, mu, t)`. All of it is optional and makes sampling faster or safer.

x, mu   images (B, C, H, W): the states and the degraded images
t       times (B,) in [0, T]

takes_mu            attribute, True by default; a network with False is called as `forward(x, t)`
bytes_per_pixel     attribute: peak memory of one evaluation per pixel, for `tile: auto`; measured where it is missing
embed, evaluate     `Embeds`: the work of a time is done once per time, not in every evaluation
embed_context       `TakesContexts`: the network is conditioned on DA-CLIP's features of the degraded image
recognise           `Recognises`: the network derives a context from the degraded image, once per image
"""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Embeds(Protocol):
    """A network whose forward is `evaluate(x, mu, embed(t, context))`; what an embedding is, is its own business."""

    def embed(self, time: Any, context: Any = None) -> Any:
        """Everything that an evaluation at a time needs besides the images."""

    def evaluate(self, x: Tensor, mu: Tensor | None, embedding: Any) -> Tensor:
        """The image-sized part of an evaluation."""


@runtime_checkable
class TakesContexts(Protocol):
    """A network with `Embeds` that is conditioned on DA-CLIP's features."""

    def embed_context(self, text_context: Tensor | None = None, image_context: Tensor | None = None) -> Any:
        """The context for `embed`, from features (B, context_dim) of the degradation and of the image."""


@runtime_checkable
class Recognises(Protocol):
    """A network with `Embeds` that derives its context from the degraded image."""

    def recognise(self, mu: Tensor) -> tuple[Any, Tensor]:
        """The context for `embed`, and logits (B, 11) of the ten degradations and of none."""
