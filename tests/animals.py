"""A small table of objects of every kind, for tests: photo, sound, caption, age and colour, a vector, a class."""

import csv
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

KINDS = ("cat", "dog", "owl")
OPTIONS = {"labels": "kind", "ignore": ["home"], "batch_size": 8, "encoder": "text"}  # of `Objects`
HEAD = ("photo", "sound", "caption", "age", "colour", "vector", "kind", "home")


def rows(folder: Path, n: int, *, seed: int = 0, missing: bool = True) -> list[dict[str, object]]:
    """Write a table of n rows and the files it refers to; some cells are empty if `missing`."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for i in range(n):
        kind = i % 3
        pixels = random.integers(0, 60, (20, 24, 3)) + 70 * kind
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        pitch = 300 * (kind + 1) + random.integers(30)
        soundfile.write(folder / f"{i}.wav", 0.3 * np.sin(2 * np.pi * pitch * np.arange(2000 + i) / 8000), 8000)
        row: dict[str, object] = {
            "photo": f"{i}.png",
            "sound": f"{i}.wav",
            "caption": f"a {KINDS[kind]} über {random.integers(10**6)}",
            "age": round(3 * kind + random.random(), 3),
            "colour": ("red", "grey")[i % 2],
            "vector": [round(float(value), 3) for value in random.normal(kind, 1, 4)],
            "kind": KINDS[kind],
            "home": f"home {i // 2}",
        }
        if missing:
            for remainder, name in enumerate(("photo", "sound", "caption")):
                if i % 7 == remainder:
                    row[name] = None
            if i % 9 == 0:
                row["age"] = None
        made.append(row)
    return made


def write_csv(folder: Path, content: list[dict[str, object]], name: str = "objects.csv") -> Path:
    head = list(dict.fromkeys(key for row in content for key in row))
    with open(folder / name, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, head)
        writer.writeheader()
        writer.writerows({key: "" if value is None else value for key, value in row.items()} for row in content)
    return folder / name
