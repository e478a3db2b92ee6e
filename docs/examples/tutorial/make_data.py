#!/usr/bin/env python3
"""Makes the data that docs/tutorial.md trains on, in the current folder: flowers.csv, shapes/ (images) and stories/ (text).

Only so that the tutorial has something to train on: it needs nothing but Python's own library, and always makes the same files.
"""
import random
import struct
import zlib
from pathlib import Path

draw = random.Random(1)


def make_table(file, rows=600):
    """Three kinds of flowers, told apart by four measurements and a color; some values are missing."""
    kinds = {"rose": (5.0, 3.4, 1.5, 0.3), "tulip": (5.9, 2.8, 4.2, 1.3), "lily": (6.6, 3.0, 5.5, 2.0)}
    colors = {"rose": "red", "tulip": "yellow", "lily": "white"}
    with open(file, "w") as out:
        print("height,width,petal,stem,color,kind", file=out)
        for _ in range(rows):
            kind = draw.choice(list(kinds))
            values = [f"{draw.gauss(mean, 0.35):.1f}" for mean in kinds[kind]]
            if draw.random() < 0.05:
                values[draw.randrange(4)] = ""
            color = colors[kind] if draw.random() < 0.7 else draw.choice(list(colors.values()))
            print(*values, color, kind, sep=",", file=out)


def png(side, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(pixels[y * side * 3 : (y + 1) * side * 3]) for y in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make_images(folder, train=200, val=40, side=32):
    """Circles, squares and crosses of any color, size and place, on a noisy background."""
    inside = {
        "circle": lambda x, y: x * x + y * y <= 1,
        "cross": lambda x, y: min(abs(x), abs(y)) <= 0.3 and max(abs(x), abs(y)) <= 1,
        "square": lambda x, y: max(abs(x), abs(y)) <= 0.9,
    }
    for part, count in (("train", train), ("val", val)):
        for name, test in inside.items():
            place = Path(folder, part, name)
            place.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                radius = draw.uniform(6, 12)
                cx, cy = (draw.uniform(radius, side - radius) for _ in "xy")
                color = [draw.randrange(128, 256) for _ in "rgb"]
                pixels = []
                for y in range(side):
                    for x in range(side):
                        hit = test((x - cx) / radius, (y - cy) / radius)
                        pixels += color if hit else [draw.randrange(96) for _ in "rgb"]
                (place / f"{i:03}.png").write_bytes(png(side, pixels))


def make_text(folder, sentences=4000):
    """Short sentences by a small grammar."""
    who = ["the cat", "a bird", "my friend", "the old man", "a child"]
    does = ["sees", "likes", "follows", "hears", "finds"]
    what = ["the river", "a red ball", "the moon", "a small house", "the garden"]
    when = ["every day", "at night", "in the morning", "when it rains"]
    Path(folder).mkdir(exist_ok=True)
    with open(Path(folder, "stories.txt"), "w") as out:
        for _ in range(sentences):
            sentence = " ".join(draw.choice(words) for words in (who, does, what, when))
            print(sentence[0].upper() + sentence[1:] + ".", file=out)


make_table("flowers.csv")
make_images("shapes")
make_text("stories")
print("made flowers.csv, shapes and stories")
