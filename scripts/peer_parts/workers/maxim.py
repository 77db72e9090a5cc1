"""MAXIM: graph models of TensorFlow.js, read into TensorFlow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from harness import Pixels, Restore, serve
from numpy.typing import NDArray

_STEP = 64  # sides must be multiples of it


def graph(folder: Path) -> "tf.compat.v1.GraphDef":
    """The graph of a model.json with the weights of its shards."""
    model = json.loads((folder / "model.json").read_text())
    content = {}
    for group in model["weightsManifest"]:
        data = b"".join((folder / name).read_bytes() for name in group["paths"])
        offset = 0
        for weight in group["weights"]:
            if "quantization" in weight:
                raise ValueError(f"{weight['name']}: quantised weights are not supported")
            dtype = np.dtype({"bool": "?"}.get(weight["dtype"], weight["dtype"]))
            count = int(np.prod(weight["shape"], dtype=np.int64))
            content[weight["name"]] = np.frombuffer(data, dtype, count, offset).reshape(weight["shape"])
            offset += count * dtype.itemsize
    topology = model["modelTopology"]
    for node in topology["node"]:
        node["input"] = node.pop("inputs", node.get("input", []))
        node["attr"] = {key: value for key, value in node.get("attr", {}).items() if not key.startswith("_")}
    definition = json_format.ParseDict(
        {"node": topology["node"], "versions": topology.get("versions", {})},
        tf.compat.v1.GraphDef(),
        ignore_unknown_fields=True,
    )
    for node in definition.node:
        if node.op == "Const":
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(content[node.name]))
    return definition


def make(files: Path, options: Mapping[str, Any]) -> Restore:
    """Restore images of any size: the sides are filled up to multiples of 64."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    definition = graph(files / "package" / "models")
    holder = tf.Graph()
    with holder.as_default():
        tf.import_graph_def(definition, name="")
    session = tf.compat.v1.Session(
        graph=holder,
        config=tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1),
    )

    def restore(image: Pixels, holes: NDArray[np.bool_]) -> Pixels:
        height, width = image.shape[:2]
        padded = np.pad(image, ((0, -height % _STEP), (0, -width % _STEP), (0, 0)), mode="reflect")
        (result,) = session.run(["Identity:0"], {"xs_0:0": padded[None].astype(np.float32) / 255})
        return (result[0, :height, :width].clip(0, 1) * 255).round().astype(np.uint8)

    return restore


if __name__ == "__main__":
    serve(make)
