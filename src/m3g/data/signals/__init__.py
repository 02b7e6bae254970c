"""Sleep recordings in their published formats, converted to windows for `m3g.data.Signals`."""

from m3g.data.signals.prepare import READERS, Prepared, prepare_recordings
from m3g.data.signals.recording import Recording, Source, Stage

__all__ = ["READERS", "Prepared", "Recording", "Source", "Stage", "prepare_recordings"]
