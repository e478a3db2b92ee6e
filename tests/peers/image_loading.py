#!/usr/bin/env python3
"""Images from a folder, decoded, cropped at random, flipped and normalized: samples a second of
`engine bench io` and of PyTorch's DataLoader with torchvision, in turns on one core.

    tests/peers/image_loading.py build/release/tools/engine --python VENV/bin/python

PyTorch's variants: ImageFolder with Pillow and transforms of images, and torchvision's own decoders
with transforms of uint8 tensors; each with one worker process, as the engine has one worker thread.
All are bound to one core: what a core prepares in a second is compared.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile


def make_folder(folder, kind, count, width, height):
    """Photograph-like files: smooth shapes with some noise, so that coders have work as usual."""
    from PIL import Image, ImageFilter
    for i in range(count):
        chance = random.Random(i)
        small = Image.new("RGB", (width // 16, height // 16))
        small.putdata([tuple(chance.randrange(256) for _ in range(3))
                       for _ in range(small.width * small.height)])
        image = small.resize((width, height), Image.BICUBIC)
        noise = Image.effect_noise((width, height), 24).convert("RGB")
        image = Image.blend(image, noise, 0.15).filter(ImageFilter.SMOOTH)
        part = "val" if i % 10 == 9 else "train"
        target = os.path.join(folder, part, "ab"[i // 10 % 2])
        os.makedirs(target, exist_ok=True)
        options = {"quality": 90} if kind == "jpg" else {}
        image.save(os.path.join(target, f"{i:05}.{kind}"), **options)


def torch_rate(folder, variant, size, batch, seconds):
    import time
    import torch
    from torchvision import datasets, io, transforms
    from torchvision.transforms import v2
    torch.set_num_threads(1)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    if variant == "pillow":
        data = datasets.ImageFolder(os.path.join(folder, "train"), transforms.Compose([
            transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(),
            transforms.ToTensor(), transforms.Normalize(mean, std)]))
    else:
        data = datasets.ImageFolder(
            os.path.join(folder, "train"), v2.Compose([
                v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]),
            loader=lambda path: io.decode_image(io.read_file(path), io.ImageReadMode.RGB))

    def batches():
        while True:
            yield from torch.utils.data.DataLoader(
                data, batch, shuffle=True, num_workers=1, drop_last=True, prefetch_factor=4)
    source = batches()
    next(source)
    done, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        done += len(next(source)[1])
    return done / (time.monotonic() - start)


def engine_rate(options, folder):
    out = subprocess.run(
        ["taskset", "-c", str(options.core), options.engine, "bench", "io", "--dataset", "images",
         "--data-dir", folder, "--image-size", str(options.size), "--augment", "resized-crop,flip",
         "--batch-size", str(options.batch), "--workers", "1", "--model", "mlp", "--rounds", "1",
         "--seconds", str(options.seconds), "--dir", folder, "--format", "json"],
        check=True, capture_output=True, text=True).stdout
    rows = [row for row in json.loads(out)["rows"] if "augmented" in row["what"]]
    return rows[0]["median"]


def peer_rate(options, folder, variant):
    out = subprocess.run(
        ["taskset", "-c", str(options.core), options.python, __file__, "--torch", variant,
         "--folder", folder, "--size", str(options.size), "--batch", str(options.batch),
         "--seconds", str(options.seconds)], check=True, capture_output=True, text=True).stdout
    return float(out.split()[-1])


def compare(options):
    print("| files | engine | Pillow | torchvision's decoders | ratio to the faster (min to max) |")
    print("|---|--:|--:|--:|--:|", flush=True)
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([options.python, __file__, "--make", kind, "--folder", folder,
                            "--count", str(options.count), "--pixels", options.pixels], check=True)
            rates = {"engine": [], "pillow": [], "decoders": []}
            for _ in range(options.rounds):
                rates["engine"].append(engine_rate(options, folder))
                for variant in ("pillow", "decoders"):
                    rates[variant].append(peer_rate(options, folder, variant))
            ratios = [ours / max(theirs) for ours, *theirs in zip(*rates.values())]
            middle = {name: statistics.median(values) for name, values in rates.items()}
            print(f"| {kind}, {options.pixels} | {middle['engine']:.0f} | {middle['pillow']:.0f} | "
                  f"{middle['decoders']:.0f} | {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f}) |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("engine", nargs="?")
    parser.add_argument("--python", default=sys.executable, help="with torch and torchvision")
    parser.add_argument("--kinds", default="jpg,png")
    parser.add_argument("--pixels", default="500x375")
    parser.add_argument("--count", type=int, default=400, help="files")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    parser.add_argument("--torch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        width, height = map(int, options.pixels.split("x"))
        make_folder(options.folder, options.make, options.count, width, height)
    elif options.torch:
        print(torch_rate(options.folder, options.torch, options.size, options.batch,
                         options.seconds))
    elif options.engine is None:
        parser.error("the path of the engine program is missing")
    else:
        compare(options)


if __name__ == "__main__":
    main()
