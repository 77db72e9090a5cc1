"""Network and solver as one graph for ONNX Runtime or OpenVINO: image and noise in, restored image out.

All evaluations of the solver are unrolled in the graph, so that no Python of this project is needed to run it. Height
and width are free, in multiples of 8.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..restoration.restorer import Restorer
from ..runtime.files import write_atomically
from ..solvers import Plan
from ..solvers.sampling import State, advance, noise_source

Format = Literal["onnx", "openvino"]
MULTIPLE_OF = 8  # what height and width are promised for
SUFFIXES: dict[str, str] = {"onnx": ".onnx", "openvino": ".xml"}


class ExportError(ValueError):
    """A restorer that cannot be exported; the message says why."""


class Unrolled(nn.Module):
    """A restorer with a fixed solver: (1, 3, H, W) and its noise (draws, 1, 3, H, W) to the restored image.

    >>> from codes.networks import build_network
    >>> from codes.sde import MeanRevertingSDE
    >>> setting = {"width": 8, "enc_blk_nums": [1], "middle_blk_num": 1, "dec_blk_nums": [1]}
    >>> restorer = Restorer(
    ...     network=build_network("ConditionalNAFNet", setting), sde=MeanRevertingSDE(), fit_target="velocity"
    ... )
    >>> module = Unrolled(restorer, restorer.plan("posterior", 2))
    >>> image, rng = torch.rand(1, 3, 16, 24), torch.Generator().manual_seed(5)
    >>> noise = torch.stack([torch.randn(image.shape[1:], generator=rng)[None] for _ in range(module.draws)])
    >>> bool((module(image, noise)[0] - restorer(image[0], nfe=2, algorithm="posterior", seed=5)).abs().max() < 1e-6)
    True
    """

    def __init__(self, restorer: Restorer, plan: Plan) -> None:
        super().__init__()
        if restorer.daclip is not None or restorer.latent is not None:
            raise ExportError("networks that need DA-CLIP's encoder or a latent network cannot be exported")
        self.network, self.restorer, self.plan = restorer.network, restorer, plan

    @property
    def draws(self) -> int:
        """How often the solver draws noise, the start included."""
        rows = [row for step in self.plan.steps for row in (step.correct, step.advance) if row is not None]
        return 1 + sum(row.d != 0 for row in rows)

    @torch.no_grad()
    def forward(self, image: Tensor, noise: Tensor) -> Tensor:
        predict, draw = self.restorer.predictor(image), noise_source(image, None, noise)
        x = image + self.plan.start_sigma * draw()
        state = State(x, before=x)
        for i, step in enumerate(self.plan.steps):
            y = predict(state.x, image, step.point.t)
            state = advance(self.plan, i, state, y, image, self.restorer.fit_target, draw)
        return state.x.clamp(0, 1)


def export(
    restorer: Restorer, file: Path, format: Format = "onnx", *, nfe: int = 2, algorithm: str | None = None
) -> Unrolled:
    """Write the graph of a restorer at full strength, and for ONNX an example beside it; returns what was written.

    Its arithmetic is float32, whatever the restorer's.

    file   ends in .onnx, or for OpenVINO in .xml; its weights are in the .bin file beside it
    """
    module = Unrolled(replace(restorer, precision="fp32"), restorer.plan(algorithm, nfe)).eval()
    graph = _onnx_graph(module)
    if format == "openvino":
        _save_openvino(graph, file)
    else:
        write_atomically(file, graph)
        write_atomically(example_file(file), Path(__file__).with_name("run_onnx.py").read_bytes())
    return module


def example_file(file: Path) -> Path:
    """Where the example of an exported graph goes."""
    return file.with_name(f"run_{file.stem.replace('-', '_')}.py")


def _onnx_graph(module: Unrolled) -> bytes:
    import onnx

    # The smallest image that no network pads: branches for large ones (pieces of less memory, packed weights) must not
    # enter the graph. What is padded is computed in the graph.
    side = max(MULTIPLE_OF, int(2 ** getattr(module.network, "stages", 3)))
    example = torch.rand(1, 3, side, side), torch.randn(module.draws, 1, 3, side, side)
    image, noise = {2: "height", 3: "width"}, {3: "height", 4: "width"}
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # every shape that the trace fixes is one that stays fixed
        torch.onnx.export(
            module,
            example,
            written,  # type: ignore[arg-type]  # this exporter takes open files too
            dynamo=False,
            opset_version=17,
            input_names=["image", "noise"],
            output_names=["restored"],
            dynamic_axes={"image": image, "noise": noise, "restored": image},
        )
    model = onnx.load_from_string(written.getvalue())
    entry = model.metadata_props.add()
    entry.key, entry.value = "multiple_of", str(MULTIPLE_OF)
    return bytes(model.SerializeToString())


def _save_openvino(graph: bytes, file: Path) -> None:
    import openvino

    openvino.save_model(openvino.Core().read_model(graph), file, compress_to_fp16=False)


def runner(file: Path, threads: int | None = None) -> Callable[[Any, Any], Any]:
    """A function (image, noise) -> restored of numpy arrays that runs an exported graph, for comparisons.

    threads   of the library; its own choice if None
    """
    if file.suffix == ".xml":
        import openvino

        # Its default would be bf16 where the CPU announces it.
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32"}
        if threads is not None:
            settings["INFERENCE_NUM_THREADS"] = threads
        compiled = openvino.Core().compile_model(file, "CPU", settings)
        return lambda image, noise: compiled([image, noise])[0]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0 is its own choice
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda image, noise: session.run(None, {"image": image, "noise": noise})[0]
