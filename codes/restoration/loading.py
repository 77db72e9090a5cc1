"""From an option file, a checkpoint or a folder to a restorer."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config import (
    Options,
    OptionsError,
    build_sde,
    build_solvers,
    check_against_checkpoint,
    check_context_dim,
    check_settings,
    gathered,
    options_for,
)
from ..defaults import SOLVER
from ..networks import architecture
from ..networks.auto_precision import automatic
from ..networks.checkpoints import (
    CheckpointError,
    Metadata,
    SDESettings,
    load_network,
    missing_file_message,
    published_sde,
)
from ..networks.daclip import DaCLIP
from ..networks.latent import LatentUNet
from ..networks.recommended import Recommended, given
from ..networks.unet import UNet
from ..runtime.device import choose_device
from ..runtime.paths import locate
from ..sde import MeanRevertingSDE
from .hub import from_address
from .restorer import Restorer

log = logging.getLogger(__name__)


def load_restorer(path: str | Path, device: str = "auto", overrides: Sequence[str] = ()) -> Restorer:
    """Load a restorer from an option file (.yml), or from a checkpoint that describes itself (.safetensors).

    path        an option file: its weights, schedule, solvers, tile and precision apply, its datasets do not matter.
                Or weights, whose metadata name the network, its prediction and its schedule. A path that does not
                exist is also looked for in the package. hf://owner/name is a repository of the Hugging Face Hub.
    device      'cpu', 'cuda', 'cuda:1'; 'auto' is what the option file says, else a GPU if there is one
    overrides   options as `test.py --set` takes them, e.g. ["precision=bf16", "path.daclip=pretrained/daclip.pt"]

    Raises OptionsError with one line for each problem of the file.

    >>> import tempfile
    >>> import numpy as np
    >>> from codes.networks import architecture, build
    >>> from codes.networks.checkpoints import Metadata, SDESettings, save_checkpoint
    >>> choice = architecture(
    ...     "ConditionalNAFNet", {"width": 8, "enc_blk_nums": [1], "middle_blk_num": 1, "dec_blk_nums": [1]}
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "untrained.safetensors"
    ...     save_checkpoint(file, build(choice).state_dict(), Metadata(choice, "noise", SDESettings(50)))
    ...     restorer = load_restorer(file, device="cpu")
    >>> restorer.fit_target, restorer.solver().algorithm
    ('noise', 'mrsampler')
    >>> restorer(np.zeros((16, 20, 3), np.uint8), nfe=2).shape
    torch.Size([3, 16, 20])
    """
    if not str(path):
        raise OptionsError("load_restorer: the path is empty; expected an option file or a checkpoint")
    return restorer_of(options_for(from_address(path) or locate(path), overrides), device)


def restorer_of(options: Options, device: str | torch.device = "auto", *, checked: bool = False) -> Restorer:
    """The restorer of options that have been read: every network is loaded once and checked against them.

    checked   `check_weights` has been called
    """
    if isinstance(device, str):
        device = choose_device(options.device if device == "auto" else device)
    if options.kind == "restore":  # commands that use datasets log them themselves
        for line in options.notes:
            log.info(line)
    if not checked:
        check_weights(options)
    networks = load_networks(options, device)
    metadata = networks.metadata
    check_against_checkpoint(options, described(metadata))
    coder = networks.network if isinstance(networks.network, LatentUNet) else None
    if (coder is not None) != (options.model == "latent"):
        text = f"{options.model} contradicts the weights, which are {metadata.architecture}"
        raise options.error(("model",), f"{text}: only model latent runs the UNet, and nothing else")
    if networks.daclip is None and isinstance(networks.network, UNet) and networks.network.takes_contexts:
        raise options.error(("path", "daclip"), f"missing, {metadata.architecture} takes its contexts")
    sde = build_sde(options, described(metadata))
    advice = metadata.recommended or Recommended()
    solvers = build_solvers(options, sde, given(advice.solver) if advice.solver else SOLVER)
    targets = {solver.fit_target for _, solver, _ in solvers} - {None}
    if len(targets) > 1:
        raise options.error(("sampler", "fit_target"), f"one network predicts one thing, not {targets}")
    return Restorer(
        network=networks.network,
        sde=sde,
        # From the option file, else the checkpoint, else 'noise', which all published checkpoints predict.
        fit_target=str(next(iter(targets), None) or metadata.fit_target or "noise"),
        device=device,
        solvers=tuple(solvers),
        daclip=networks.daclip,
        latent=coder or networks.latent,
        precision=_precision(options, networks, device, sde),
        compile=options.compile,
        tile=options.tile,
        recommended=advice.solver,
        careful=advice.careful,
        metadata=metadata,
    )


def _precision(options: Options, networks: "Networks", device: torch.device, sde: MeanRevertingSDE) -> str:
    """The options' precision; where they leave it to the program, what suits device and network."""
    if options.precision != "auto":
        return options.precision
    metadata = networks.metadata
    chosen = automatic(networks.network, device, sde.T, metadata.bf16, metadata.source)
    if chosen != "fp32":
        log.info("precision: %s on this device; fp32 is exact, and slower", chosen)
    return chosen


@dataclass(frozen=True)
class Networks:
    """The networks of an option file, on their device."""

    network: nn.Module
    metadata: Metadata
    daclip: DaCLIP | None = None
    latent: LatentUNet | None = None


def load_networks(options: Options, device: torch.device) -> Networks:
    """Load the network and the encoders that the options name; raises OptionsError."""
    wanted, path = options.network_G, options.path
    try:
        network, metadata = load_network(
            locate(path.pretrain_model_G or ""), wanted.which_model_G, wanted.setting, wanted.variant
        )
        log.info("network: %s, %s weights of %s", metadata.architecture, metadata.weights, metadata.source)
        return Networks(network.to(device), metadata, *load_encoders(options, device))
    except CheckpointError as error:
        raise OptionsError(str(error)) from error


def load_encoders(options: Options, device: torch.device) -> tuple[DaCLIP | None, LatentUNet | None]:
    """DA-CLIP and the network between images and latents, where the options name them; raises CheckpointError."""
    path = options.path
    daclip = latent = None
    if path.daclip is not None:
        loaded, found = load_network(locate(path.daclip))
        if not isinstance(loaded, DaCLIP):
            text = f"{path.daclip} is not DA-CLIP but {found.architecture}"
            raise options.error(("path", "daclip"), text)
        check_context_dim(options, int(found.architecture.setting["embed_dim"]))
        daclip = loaded.to(device)
    if path.pretrain_model_L is not None:
        setting = options.network_L.setting
        first_stage, found = load_network(locate(path.pretrain_model_L), *(("UNet", setting) if setting else ()))
        if not isinstance(first_stage, LatentUNet):
            text = f"{path.pretrain_model_L} is not the network between images and latents but {found.architecture}"
            raise options.error(("path", "pretrain_model_L"), text)
        latent = first_stage.to(device)
    return daclip, latent


def check_weights(options: Options) -> None:
    """Raise unless every weight file that the options name is there, and networks have what their settings say.

    The error has a line for each problem.
    """
    network = options.network_G
    if options.path.pretrain_model_G is None:
        raise options.error(("path", "pretrain_model_G"), "missing, nothing to restore images with")

    def check(key: str, name: str | None, setting: Mapping[str, Any], variant: str | None = None) -> None:
        path = getattr(options.path, key)
        if path is None or locate(path).is_file() or locate(path).is_dir():
            return
        if locate(path).exists():
            raise options.error(("path", key), f"{path}: neither a file nor a folder")
        try:
            wanted = None if name is None else architecture(name, setting, variant)
        except ValueError:  # `check_settings` says it
            wanted = None
        raise options.error(("path", key), missing_file_message(locate(path), wanted))

    gathered(
        lambda: check_settings(options),
        lambda: check("pretrain_model_G", network.which_model_G, network.setting, options.variant),
        lambda: check("daclip", "DaCLIP", {}),
        lambda: check("pretrain_model_L", "UNet", {}),
    )


def described(metadata: Metadata) -> dict[str, Any]:
    """Checkpoint metadata as the options know it, with the published SDE where the file records none."""
    sde = metadata.sde
    choice = metadata.architecture
    result: dict[str, Any] = {
        "which_model_G": choice.which_model_G,
        "variant": choice.variant,
        "setting": dict(choice.setting),
        "fit_target": metadata.fit_target,
    }
    if sde is not None:
        result["sde"] = asdict(sde)
    else:
        published = published_sde(choice)
        # Only the convention: max_sigma differs between published checkpoints of one architecture.
        result["sde"] = {} if published is None else {"convention": published.convention}
    return result


def sde_settings(sde: MeanRevertingSDE) -> SDESettings:
    """The schedule as checkpoints record it."""
    return SDESettings(sde.max_sigma, T=sde.T, schedule=sde.schedule, eps=sde.eps, convention=sde.convention)
