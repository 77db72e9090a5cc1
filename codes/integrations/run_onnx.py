"""Restore a photo with an exported graph: python THIS_FILE.py model.onnx photo.jpg restored.png [seed]"""

import sys

import numpy as np
import onnxruntime
from PIL import Image


def main(model: str, source: str, target: str, seed: str = "0") -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    multiple = int(session.get_modelmeta().custom_metadata_map["multiple_of"])
    rgb = np.asarray(Image.open(source).convert("RGB"), np.float32) / 255
    height, width = rgb.shape[:2]
    padded = np.pad(rgb, ((0, -height % multiple), (0, -width % multiple), (0, 0)), mode="edge")
    image = np.ascontiguousarray(padded.transpose(2, 0, 1)[None])
    draws = (session.get_inputs()[1].shape[0], *image.shape)
    noise = np.random.default_rng(int(seed)).standard_normal(draws, np.float32)
    (restored,) = session.run(None, {"image": image, "noise": noise})
    pixels = restored[0].transpose(1, 2, 0)[:height, :width]
    Image.fromarray((pixels * 255).round().astype(np.uint8)).save(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
