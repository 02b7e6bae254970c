"""Small recordings in the real formats: EDF and EDF+ by pyedflib, .mat, .hea and annotations by wfdb."""

from __future__ import annotations

import numpy as np
import pyedflib
import wfdb
from scipy.io import savemat

PHYSIONET = ["F3-M2", "F4-M1", "C3-M2", "C4-M1", "O1-M2", "O2-M1", "E1-M2", "SaO2"]


def wave(seconds, rate, frequency):
    return 50 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


def write_sleep_edf(
    folder, name, *, seconds=200, rate=100, names=("EEG Fpz-Cz", "EOG horizontal", "EEG Pz-Oz"), hypnogram=True
):
    """A night: 20 s unscored, 70 s awake, 60 s stage 4, 30 s movement, then stage R until the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with pyedflib.EdfWriter(str(folder / f"{name}E0-PSG.edf"), len(names)) as edf:
        for c, label in enumerate(names):
            header = {"label": label, "dimension": "uV", "sample_frequency": rate, "physical_max": 500.0,
                      "physical_min": -500.0, "digital_max": 2047, "digital_min": -2048, "transducer": "",
                      "prefilter": ""}  # fmt: skip
            edf.setSignalHeader(c, header)
        edf.writeSamples([wave(seconds, rate, 1 + c) for c in range(len(names))])
    if hypnogram:
        with pyedflib.EdfWriter(str(folder / f"{name}EC-Hypnogram.edf"), 0, pyedflib.FILETYPE_EDFPLUS) as edf:
            edf.writeAnnotation(0, 20, "Sleep stage ?")
            edf.writeAnnotation(20, 70, "Sleep stage W")
            edf.writeAnnotation(90, 60, "Sleep stage 4")
            edf.writeAnnotation(150, 15, "Movement time")
            edf.writeAnnotation(165, 600, "Sleep stage R")


def write_physionet(folder, name, *, seconds=200, rate=200, names=PHYSIONET, annotated=True):
    """A recording that is first scored at 30 s: W, N1 at 90 s with an arousal in it, N2 at 120 s until the end."""
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    signals = np.stack([wave(seconds, rate, 1 + c) for c in range(len(names))], axis=1)
    units, formats = ["uV"] * len(names), ["16"] * len(names)
    wfdb.wrsamp(name, rate, units, list(names), p_signal=signals, fmt=formats, write_dir=str(home))
    # The challenge's .mat files are MATLAB 4: 24 bytes, then the samples as in a .dat file.
    digital = wfdb.rdrecord(str(home / name), physical=False).d_signal.astype(np.int16)
    savemat(home / f"{name}.mat", {"val": digital.T}, format="4")
    (home / f"{name}.dat").unlink()
    header = home / f"{name}.hea"
    header.write_text(header.read_text().replace(f"{name}.dat 16 ", f"{name}.mat 16+24 "))
    if annotated:
        times = np.array([30, 90, 95, 120])
        notes = ["W", "N1", "(arousal_rera", "N2"]
        wfdb.wrann(name, "arousal", times * rate, ["+"] * 4, aux_note=notes, write_dir=str(home))


def damaged_folder(tmp_path):
    for subject in range(4):
        write_sleep_edf(tmp_path / "raw", f"SC4{subject:02}1", hypnogram=subject != 3)
    write_sleep_edf(tmp_path / "raw", "SC4041")
    cut = tmp_path / "raw" / "SC4041E0-PSG.edf"
    cut.write_bytes(cut.read_bytes()[:5000])
    return tmp_path / "raw"
