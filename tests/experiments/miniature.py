"""Small sets in the formats of the real ones, and runs of experiments on them that take seconds."""

import io
import zipfile

import numpy as np
from PIL import Image

from m3g.experiments.engine.command import prepare_sets
from m3g.experiments.engine.pool import run_pool
from m3g.experiments.engine.registry import find
from m3g.experiments.engine.spec import Request
from m3g.experiments.engine.store import Store

FONTS = ("serif", "sans_serif", "monospace", "handwriting", "display")
PACS = ("art_painting", "cartoon", "photo", "sketch")


def write_sets(folder):
    """Small versions of all files that the laptop experiments read."""
    random = np.random.default_rng(0)
    chars = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh"))
    pictures = random.integers(0, 255, (len(chars), 28, 28))
    fonts = {
        style: (pictures[None] // 2 + random.integers(0, 120, (6, len(chars), 28, 28))).astype(np.uint8)
        for style in FONTS
    }
    np.savez(folder / "fonts_5styles_28.npz", chars=chars, **fonts)
    with zipfile.ZipFile(folder / "pacs_64jpg.zip", "w") as archive:
        for domain in PACS:
            for kind in range(7):
                for image in range(6):
                    archive.writestr(f"PACS/{domain}/{kind}/{image}.jpg", _jpeg(random, kind))
    with zipfile.ZipFile(folder / "tinyimagenet10_jpg.zip", "w") as archive:
        archive.writestr("classes.json", "{}")
        for part in ("train", "val"):
            for kind in range(4):
                for image in range(30):
                    archive.writestr(f"{part}/n{kind}/{image}.JPEG", _jpeg(random, kind))
    vendors = np.array(["noto", "twemoji"])
    drawn = random.integers(0, 255, (2, 120, 32, 32, 3)).astype(np.uint8)
    np.savez(folder / "emoji_5vendors_32.npz", X=drawn, domains=vendors, category=np.arange(120) % 4)
    subjects = np.repeat([f"SC4{i:02}" for i in range(10)], 16)
    stages = np.arange(160) % 5
    sensors = {
        name: (random.normal(size=(160, width)) + stages[:, None]).astype(np.float32)
        for name, width in (("EEG_Fpz_Cz", 24), ("EEG_Pz_Oz", 24), ("EOG", 24), ("EMG", 17), ("Resp", 18), ("Temp", 18))
    }
    names = np.array(["N1", "N2", "N3", "REM", "W"])
    np.savez(
        folder / "sleepedfx_sc20_features.npz", y=stages.astype(np.int8), stages=names, subject=subjects, **sensors
    )
    channels = np.array(["A2-A1", "C3", "C4", "Cz", "F3", "F4", "O1", "O2"])
    recordings = {
        f"s{i:02}_{j}": random.integers(-500, 500, (8, 1300)).astype(np.int16) for i in range(6) for j in (1, 2)
    }
    np.savez(folder / "eegmat_125hz.npz", channels=channels, fs=125, scale_uV=np.float32(0.1), **recordings)
    np.savez(
        folder / "uci_eeg_smni.npz",
        X=random.normal(size=(96, 8, 256)).astype(np.float16),
        channels=channels,
        subject=np.repeat([f"co{i:03}" for i in range(12)], 8),
        alcoholic=np.arange(96) % 2 == 0,
        fs=256,
    )


def _jpeg(random, kind):
    image = random.integers(0, 100, (16, 16, 3)) + 20 * kind
    file = io.BytesIO()
    Image.fromarray(image.astype(np.uint8)).save(file, "JPEG")
    return file.getvalue()


def small_runs(name, sets, out, *, methods=None, keep=lambda spec: True, miniature=True):
    """Execute the runs selected by `keep` with a few steps each; return the output of `--collect`."""
    experiment = find(name)
    request = Request(seeds=1, methods=methods, miniature=miniature)
    store = Store(out)
    planned = [spec for spec in experiment.specs(request) if keep(spec)]
    missing = prepare_sets(experiment, planned, "laptop", sets, store.data)
    specs = [spec for spec in planned if spec.labels.get("data") not in missing]
    errors = run_pool(experiment, specs, store, store.data, jobs=1, report=lambda line: None)
    assert not errors, errors
    return experiment.collect(list(store.collect().values()), out), specs
