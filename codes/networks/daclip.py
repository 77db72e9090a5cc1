"""DA-CLIP on stock open_clip: what is in an image, and how it is degraded.

A frozen CLIP and a controller, which is a copy of its image tower. The controller's output describes the
degradation; its hidden states, passed through one linear layer each, steer the image tower towards the
features of the clean image. The U-Net gets both: text_context = degradation features, image_context = image
features.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..names import TASKS
from ..runtime.torchvision_compat import ensure_torchvision

_MEAN = (0.48145466, 0.4578275, 0.40821073)
_STD = (0.26862954, 0.26130258, 0.27577711)


class Features(NamedTuple):
    image: Tensor  # (B, embed_dim): content, the U-Net's image_context
    degradation: Tensor  # (B, embed_dim): the U-Net's text_context


class ControlTransformer(nn.Module):
    """The controller's transformer and the layers that hand its hidden states over, initialised to zero."""

    def __init__(self, transformer: nn.Module, layers: int, width: int) -> None:
        super().__init__()
        self.transformer = transformer
        self.zero_modules = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for parameter in self.zero_modules.parameters():
            nn.init.zeros_(parameter)


class DaCLIP(nn.Module):
    """`config` has open_clip's entries: embed_dim, vision_cfg and text_cfg."""

    repeated_keys = "visual."  # the published state dict lists the image tower twice

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        missing = {"embed_dim", "vision_cfg", "text_cfg"} - config.keys()
        unknown = config.keys() - {"embed_dim", "vision_cfg", "text_cfg", "custom_text"}
        if missing or unknown:
            raise ValueError(f"DaCLIP: missing entries {sorted(missing)}, unknown entries {sorted(unknown)}")
        ensure_torchvision()
        from open_clip.model import CLIP

        # open_clip turns the dicts into its own dataclasses and would change ours.
        self.clip = CLIP(config["embed_dim"], copy.deepcopy(config["vision_cfg"]), copy.deepcopy(config["text_cfg"]))
        self.image_size: int = config["vision_cfg"]["image_size"]
        self.visual = self.clip.visual
        self.visual_control = copy.deepcopy(self.clip.visual)
        width = self.visual_control.class_embedding.shape[0]
        layers = len(self.visual_control.transformer.resblocks)
        self.visual_control.transformer = ControlTransformer(self.visual_control.transformer, layers, width)
        self.logit_scale = nn.Parameter(self.clip.logit_scale.detach().clone())

    def preprocess(self, image: Tensor) -> Tensor:
        """(3,H,W) or (B,3,H,W), RGB in [0,1] -> (B, 3, image_size, image_size) as the towers want it."""
        parameter = self.logit_scale
        images = image[None] if image.dim() == 3 else image
        return clip_transform(images, self.image_size).to(parameter)

    def control_hiddens(self, image: Tensor) -> tuple[list[Tensor], Tensor]:
        """The controller: what each layer hands over, (B, tokens, width), and the degradation features."""
        control = self.visual_control.transformer
        hiddens = []
        x = _embed_patches(self.visual_control, image)
        for block, zero in zip(control.transformer.resblocks, control.zero_modules):
            x = block(x)
            hiddens.append(zero(x))
        return hiddens, _pool(self.visual_control, x)

    def controlled(self, image: Tensor, normalize: bool = False) -> Features:
        """Features of preprocessed images (B, 3, image_size, image_size)."""
        hiddens, degradation = self.control_hiddens(image)
        x = _embed_patches(self.clip.visual, image)
        # The last hidden state goes into the first block, as published.
        for block, hidden in zip(self.clip.visual.transformer.resblocks, reversed(hiddens)):
            x = block(x) + hidden
        features = Features(_pool(self.clip.visual, x), degradation)
        return Features(*(F.normalize(f, dim=-1) for f in features)) if normalize else features

    def encode_text(self, text: Tensor, normalize: bool = False) -> Tensor:
        """Token ids (B, context_length) -> (B, embed_dim)."""
        features: Tensor = self.clip.encode_text(text, normalize=normalize)
        return features

    def tokenize(self, words: Sequence[str]) -> Tensor:
        ensure_torchvision()
        from open_clip.tokenizer import SimpleTokenizer

        tokenizer = SimpleTokenizer(context_length=self.clip.context_length)
        if self.clip.vocab_size < tokenizer.vocab_size:
            raise ValueError(
                f"DaCLIP: words need {tokenizer.vocab_size} tokens, this vocabulary has {self.clip.vocab_size}"
            )
        ids: Tensor = tokenizer(list(words))
        return ids.to(self.logit_scale.device)

    @torch.no_grad()
    def describe(self, image: Tensor, words: Sequence[str] = TASKS) -> list[dict[str, float]]:
        """Probabilities of the degradations, one dict per image; (3,H,W) or (B,3,H,W), RGB in [0,1]."""
        degradation = self.controlled(self.preprocess(image), normalize=True).degradation
        text = self.encode_text(self.tokenize(words), normalize=True)
        probabilities = (100.0 * degradation @ text.t()).softmax(dim=-1)
        return [dict(zip(words, row.tolist(), strict=True)) for row in probabilities]


def _embed_patches(tower: Any, image: Tensor) -> Tensor:
    x = tower.conv1(image).flatten(2).transpose(1, 2)
    cls = tower.class_embedding.to(x.dtype).expand(len(x), 1, -1)
    x = torch.cat([cls, x], dim=1) + tower.positional_embedding.to(x.dtype)
    result: Tensor = tower.ln_pre(x)
    return result


def _pool(tower: Any, x: Tensor) -> Tensor:
    result: Tensor = tower.ln_post(x[:, 0]) @ tower.proj
    return result


def clip_transform(images: Tensor, size: int) -> Tensor:
    """The published preprocessing: 8 bit, shorter side to `size`, centre crop, normalise.

    Goes through PIL, whose bicubic resize is what the towers were trained with.
    """
    from PIL import Image

    results = []
    for picture in images.detach().to("cpu", torch.float32).clamp(0, 1):
        pixels = (picture * 255).to(torch.uint8).permute(1, 2, 0).numpy()
        height, width = pixels.shape[:2]
        short, long = min(height, width), max(height, width)
        other = int(size * long / short)
        resized = Image.fromarray(pixels).resize(
            (size, other) if height >= width else (other, size), Image.Resampling.BICUBIC
        )
        left, top = round((resized.width - size) / 2), round((resized.height - size) / 2)
        square = np.array(resized.crop((left, top, left + size, top + size)))
        results.append(torch.from_numpy(square).permute(2, 0, 1).float().div(255))
    mean, std = torch.tensor(_MEAN), torch.tensor(_STD)
    return (torch.stack(results) - mean[:, None, None]) / std[:, None, None]
