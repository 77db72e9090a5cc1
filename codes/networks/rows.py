"""Registry rows of the networks: everything the program asks about each of them.

To add a network, write a file in this folder with an nn.Module whose forward is `(x, mu, t)`, and add a row to ROWS.
Option files, checkpoints, the commands and the Python interface read the rows; codes/networks/protocols.py lists what
a network may have besides `forward`. Importing this module imports no torch, because an option file is checked before
torch is loaded: a row names its class as 'module:Class' within this folder (or holds the class itself).
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from typing import Any, Literal

from ..names import check_schedule_numbers

Setting = Mapping[str, Any]
SCHEDULES = ("cosine", "linear", "constant")  # that a checkpoint can record


@dataclass(frozen=True)
class SDESettings:
    """The SDE that a network was trained with, in the units of the option files."""

    max_sigma: float
    _: KW_ONLY
    T: int = 100
    schedule: str = "cosine"
    eps: float = 0.005
    convention: str = "daclip"  # or irsde: the integral of theta starts at 0

    def __post_init__(self) -> None:
        if self.convention not in ("daclip", "irsde"):
            raise ValueError(f"sde.convention: expected 'daclip' or 'irsde', got {self.convention!r}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"sde.schedule: expected one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        check_schedule_numbers("sde.", T=self.T, max_sigma=self.max_sigma, eps=self.eps)


def _never(setting: Setting) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One network.

    name           `network_G.which_model_G` of option files; the published projects use one name for several networks
    variant        `network_G.variant`, which distinguishes them
    network        the class, as 'module:Class' within this folder or itself; `network_G.setting` are its arguments
    title          for people who lack its weights: which network, and how to recognise the file
    role           'restoration' (predicts for x, mu, t), 'latent' (between images and latents) or 'encoder' (DA-CLIP)
    fixed          arguments of the class that make it this variant; `network_G.setting` cannot have them
    whole_setting  whether the class takes the setting as one mapping instead of as arguments
    setting_of     function of a state dict's tensors by name: the setting of the network that has them, None (or
                   KeyError) if it is not this one. Without it a file must say what it is, or the option file must
    suggested_by   whether a setting without a variant means this one; the first row of a name that says so is taken
    sde            the SDE of its published checkpoints, if it is always the same
    """

    name: str
    variant: str
    network: str | type
    title: str
    role: Literal["restoration", "latent", "encoder"] = "restoration"
    fixed: Setting = field(default_factory=dict)
    whole_setting: bool = False
    setting_of: str | Callable[[Mapping[str, Any]], Setting | None] | None = None
    suggested_by: Callable[[Setting], bool] = _never
    sde: SDESettings | None = None


def load(reference: Any) -> Any:
    """What a row names, for example 'unet:IrsdeUNet'; anything but text stands for itself."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(f".{module}", __package__), name)


CONTEXT_KEYS = {"context_dim", "use_degra_context", "use_image_context"}  # of DA-CLIP's networks

ROWS = (
    Row(
        name="ConditionalUNet",
        variant="daclip",
        network="unet:ContextUNet",
        title="DA-CLIP's restoration U-Net (universal-ir), 224 keys, 48,975,747 parameters",
        fixed={"transformers_at": "fourth", "scale": 1.0},
        setting_of="identify:daclip_unet",
        suggested_by=lambda setting: (
            not {"depth", "scale"} & set(setting) and bool({"ch_mult", *CONTEXT_KEYS} & set(setting))
        ),
        sde=SDESettings(50, convention="daclip"),
    ),
    Row(
        name="ConditionalUNet",
        variant="wild-ir",
        network="unet:ContextUNet",
        title="DA-CLIP's wild-ir U-Net for ViT-L-14, 221 keys",
        fixed={"transformers_at": "deepest", "upscale": 1},
        setting_of="identify:wild_unet",
        suggested_by=lambda setting: "scale" in setting and "depth" not in setting,
        sde=SDESettings(50, convention="daclip"),
    ),
    Row(
        name="ConditionalUNet",
        variant="irsde",
        network="unet:IrsdeUNet",
        title="IR-SDE's U-Net, one per task, 151 keys, 137,147,523 parameters",
        setting_of="identify:irsde_unet",
        suggested_by=lambda setting: True,
    ),
    Row(
        name="ConditionalUNet",
        variant="latent",
        network="unet:LatentDehazingUNet",
        title="the diffusion U-Net of Refusion's latent dehazing",
        setting_of="identify:latent_dehazing_unet",
        sde=SDESettings(50, convention="irsde"),
    ),
    Row(
        name="ConditionalUNet",
        variant="denoising",
        network="unet:DenoisingUNet",
        title="the U-Net of denoising-sde",
        setting_of="identify:denoising_unet",
        sde=SDESettings(70, eps=0.04, convention="irsde"),
    ),
    Row(
        name="ConditionalNAFNet",
        variant="refusion",
        network="nafnet:NAFNet",
        title="Refusion's NAFNet, one per task, 668 keys, 76,608,387 parameters",
        fixed={"intro_residual": False},
        setting_of="identify:refusion_nafnet",
        suggested_by=lambda setting: setting.get("img_channel", 3) in (1, 3),
        sde=SDESettings(50, convention="irsde"),
    ),
    Row(
        name="ConditionalNAFNet",
        variant="latent",
        network="nafnet:NAFNet",
        title="the diffusion NAFNet of Refusion's latent dehazing",
        fixed={"intro_residual": True},
        setting_of="identify:latent_nafnet",
        suggested_by=lambda setting: True,  # latents have 4 or 8 channels
        sde=SDESettings(50, convention="irsde"),
    ),
    Row(
        name="ConditionalNAFNet",
        variant="denoising",
        network="nafnet:DenoisingNAFNet",
        title="the NAFNet of denoising-sde",
        fixed={"intro_residual": False},
        setting_of="identify:denoising_nafnet",
        sde=SDESettings(70, eps=0.04, convention="irsde"),
    ),
    Row(
        name="CodedNAFNet",
        variant="coded",
        network="coded:CodedNAFNet",
        title="a NAFNet of this project that recognises the degradation, as train.py writes it",
        setting_of="identify:coded_nafnet",
    ),
    Row(
        name="UNet",
        variant="latent",
        network="latent:LatentUNet",
        title="the compressing U-Net of Refusion's latent diffusion",
        role="latent",
        setting_of="identify:latent_unet",
    ),
    Row(
        name="DaCLIP",
        variant="open_clip",
        network="daclip:DaCLIP",
        title="DA-CLIP's image and degradation encoder, ViT-B-32 631 keys or ViT-L-14",
        role="encoder",
        whole_setting=True,
        setting_of="identify:daclip",
    ),
)

# Published name -> variant -> row.
NETWORKS: dict[str, dict[str, Row]] = {
    name: {row.variant: row for row in ROWS if row.name == name} for name in dict.fromkeys(row.name for row in ROWS)
}
