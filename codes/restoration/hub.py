"""Restorers on the Hugging Face Hub, and in folders of the same layout: config.json, model.safetensors, README.md.

The .safetensors file is a checkpoint of this project and enough by itself; config.json repeats what it records for
people and programs that do not open it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..names import OptionsError
from ..networks.checkpoints import Metadata, save_checkpoint
from ..networks.recommended import given
from ..networks.rows import SDESettings
from ..runtime.files import write_atomically

if TYPE_CHECKING:
    from .restorer import Restorer

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
_REPOSITORY = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")  # owner/name, or owner/name@revision

Scores = Mapping[str, Mapping[str, float]]  # data set -> metric -> value


class OnTheHub:
    """What makes a `Restorer` save to, load from and push to the Hub."""

    def save_pretrained(
        self, folder: str | Path, *, scores: Scores | None = None, license: str = "mit", overwrite: bool = False
    ) -> Path:
        """Write weights, configuration and model card into a folder, as `from_pretrained` reads them.

        scores   for the card: for each data set the metrics by name, for example {"Rain100H": {"psnr": 31.4}}
        """
        restorer: Restorer = self  # type: ignore[assignment]
        metadata, target = metadata_of(restorer), Path(folder)
        for name in (WEIGHTS, CONFIG, CARD):
            if (target / name).exists() and not overwrite:
                raise FileExistsError(f"{target / name}: exists already; it is replaced only with overwrite=True")
        target.mkdir(parents=True, exist_ok=True)
        save_checkpoint(target / WEIGHTS, restorer.network.state_dict(), metadata, overwrite)
        text = json.dumps(configuration(metadata, restorer), indent=2) + "\n"
        write_atomically(target / CONFIG, text.encode())
        write_atomically(target / CARD, model_card(metadata, target.name, scores or {}, license).encode())
        return target

    @classmethod
    def from_pretrained(cls, name: str | Path, *, device: str = "auto", revision: str | None = None) -> Restorer:
        """The restorer in a folder, or in a repository 'owner/name' of the Hub (then downloaded once)."""
        from .loading import load_restorer

        if Path(name).is_dir():
            return load_restorer(Path(name) / WEIGHTS, device)
        return load_restorer(downloaded(str(name), revision), device)

    def push_to_hub(
        self, repository: str, *, private: bool = False, token: str | None = None, scores: Scores | None = None
    ) -> str:
        """Save and upload to 'owner/name', which is made if necessary; returns the address of the upload."""
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        with tempfile.TemporaryDirectory() as folder:
            saved = self.save_pretrained(Path(folder) / repository.split("/")[-1], scores=scores)
            api.create_repo(repository, private=private, exist_ok=True)
            message = f"Upload with mr-sampler {__version__}"
            return str(api.upload_folder(repo_id=repository, folder_path=saved, commit_message=message))


def from_address(path: str | Path) -> Path | None:
    """The file of an address hf://owner/name, downloaded once; None for other paths.

    >>> from_address("model.safetensors")
    """
    # A Path has swallowed one of the slashes.
    address = re.fullmatch(r"hf:/{1,2}(.*)", str(path))
    if address is None:
        return None
    match = _REPOSITORY.fullmatch(address[1])
    if match is None:
        raise OptionsError(f"hf://{address[1]}: expected hf://owner/name, or hf://owner/name@revision")
    return downloaded(match[1], match[2])


def downloaded(repository: str, revision: str | None = None) -> Path:
    """The weight file of a repository on the Hub, from the user's cache if it is there."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        raise OptionsError(f"hf://{repository}: needs a package: pip install huggingface_hub") from None
    try:
        return Path(hf_hub_download(repository, WEIGHTS, revision=revision))
    except (OSError, HFValidationError) as error:
        reason = " ".join(str(error).split())
        raise OptionsError(f"hf://{repository}: {WEIGHTS} cannot be had from the Hub: {reason}") from None


def metadata_of(restorer: Restorer) -> Metadata:
    """What a checkpoint of this restorer records."""
    if restorer.daclip is not None or restorer.latent is not None:
        raise ValueError("a restorer that needs DA-CLIP's encoder or a latent network is more than one weight file")
    known = restorer.metadata
    if known is None:
        raise ValueError("the architecture of the network is not known: load the restorer with `load_restorer`")
    sde = restorer.sde
    settings = SDESettings(sde.max_sigma, T=sde.T, schedule=sde.schedule, eps=sde.eps, convention=sde.convention)
    return Metadata(
        known.architecture,
        restorer.fit_target,
        settings,
        weights=known.weights,
        source=known.source,
        recommended=known.recommended,
        bf16=known.bf16,
    )


def configuration(metadata: Metadata, restorer: Restorer) -> dict[str, Any]:
    """The content of config.json."""
    choice = metadata.architecture
    assert metadata.sde is not None
    return {
        "library_name": "mr-sampler",
        "mr_sampler_version": __version__,
        "which_model_G": choice.which_model_G,
        "variant": choice.variant,
        "setting": dict(choice.setting),
        "fit_target": metadata.fit_target,
        "sde": asdict(metadata.sde),
        "solver": given(restorer.solver()),
    }


def model_card(metadata: Metadata, name: str, scores: Scores, license: str) -> str:
    """The model card: metadata that the Hub indexes, and how to use the model."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="image-to-image",
            dataset_type=re.sub(r"\W+", "-", dataset.lower()),
            dataset_name=dataset,
            metric_type=metric,
            metric_value=value,
        )
        for dataset, values in scores.items()
        for metric, value in values.items()
    ]
    data = ModelCardData(
        library_name="mr-sampler",
        pipeline_tag="image-to-image",
        license=license,
        tags=["image-restoration", "diffusion"],
        model_name=name if results else None,
        eval_results=results or None,
    )
    return f"""---
{data.to_yaml()}
---

# {name}

Restores images by mean-reverting diffusion: {metadata.architecture}, predicts {metadata.fit_target}.

```python
from mr_sampler import load_restorer, read_image, save_image

restorer = load_restorer("hf://OWNER/{name}")
save_image(restorer(read_image("photo.jpg")), "restored.png")
```
"""
