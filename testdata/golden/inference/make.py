"""Make the golden files of this folder with ONNX Runtime and Pillow from Python, independently of the Rust code.

Run from the repository root, with the models in assets/models (`reelbench assets fetch`):
    pip install numpy pillow onnxruntime==1.32.0
    python testdata/golden/inference/make.py
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MODELS = {
    "squeezenet": ROOT / "testdata/models/squeezenet11-fp16.onnx",
    "lite0": ROOT / "assets/models/lite0.onnx",
    "resnet50-seeded": ROOT / "assets/models/resnet50-seeded.onnx",
}
CROP = {"squeezenet": 227, "lite0": 224, "resnet50-seeded": 224}
IMAGES = ["coffee", "chelsea", "rocket"]
CAFFE = np.array([103.939, 116.779, 123.68], np.float32)
TORCH_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
TORCH_STD = np.array([0.229, 0.224, 0.225], np.float32)


def session(name):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(MODELS[name]), options, providers=["CPUExecutionProvider"])


def noise(seed, count):
    """Top bytes of SplitMix64, moved to [-2, 2): exact in 32-bit floats."""
    mask = (1 << 64) - 1
    values = np.empty(count, np.float32)
    for index in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        values[index] = (((z ^ (z >> 31)) >> 56) - 128) / 64
    return values


def crop(path, side, keep_aspect=True):
    image = Image.open(path).convert("RGB")
    if not keep_aspect:
        return np.asarray(image.resize((side, side), Image.BILINEAR))
    width, height = image.size
    size = (256, height * 256 // width) if width <= height else (width * 256 // height, 256)
    image = image.resize(size, Image.BILINEAR)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    return np.asarray(image.crop((left, top, left + side, top + side)))


def softmax(x):
    powers = np.exp(x.astype(np.float64) - x.max())
    return powers / powers.sum()


def variants(name, path):
    """Right preprocessing under "right", and the ways people get it wrong."""
    side = CROP[name]
    rgb = crop(path, side).astype(np.float32)
    squashed = crop(path, side, keep_aspect=False).astype(np.float32)
    if name == "lite0":
        return {
            "right": (rgb - 127) / 128,
            "swapped": (rgb[..., ::-1] - 127) / 128,
            "torch": (rgb / 255 - TORCH_MEAN) / TORCH_STD,
        }
    bgr = rgb[..., ::-1]
    return {
        "right": bgr - CAFFE,
        "swapped": rgb - CAFFE[::-1],
        "no-mean": bgr,
        "scaled": bgr / 255,
        "squashed": squashed[..., ::-1] - CAFFE,
    }


def classify(run, name, image):
    x = np.ascontiguousarray(image.transpose(2, 0, 1)[None])
    scores = run.run(None, {run.get_inputs()[0].name: x})[0][0]
    probabilities = scores if name == "squeezenet" else softmax(scores)
    best = np.argsort(-probabilities, kind="stable")[:3]
    return [[int(c), round(float(probabilities[c]), 4)] for c in best]


def main():
    classes = {}
    for name in MODELS:
        run = session(name)
        side = CROP[name]
        x = noise(2024, 2 * 3 * side * side).reshape(2, 3, side, side)
        output = run.run(None, {run.get_inputs()[0].name: x})[0]
        (HERE / f"{name}-noise.f32").write_bytes(output.astype("<f4").tobytes())
        if name == "resnet50-seeded":
            continue
        for image in IMAGES:
            path = ROOT / f"testdata/images/{image}.jpg"
            found = {key: classify(run, name, x) for key, x in variants(name, path).items()}
            classes.setdefault(image, {})[name] = found
            samples = np.ascontiguousarray(crop(path, side)[::16, ::16])
            classes[image].setdefault("crop_every_16", {})[str(side)] = samples.tobytes().hex()
    (HERE / "classes.json").write_text(json.dumps(classes, indent=1) + "\n")


if __name__ == "__main__":
    main()
