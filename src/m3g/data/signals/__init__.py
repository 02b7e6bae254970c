"""Sleep recordings in their published formats, turned once into windows that `m3g.data.Signals` reads."""

from m3g.data.signals.prepare import READERS, Prepared, prepare_recordings
from m3g.data.signals.recording import Recording, Source, Stage

__all__ = ["READERS", "Prepared", "Recording", "Source", "Stage", "prepare_recordings"]
