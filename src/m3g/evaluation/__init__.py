"""What was learned: probes, nearest neighbours, cross-view retrieval, polymatching, geometry, pictures."""

from m3g.evaluation.geometry import alignment, effective_rank, uniformity
from m3g.evaluation.matching import polymatching_accuracy
from m3g.evaluation.probes import ProbeResult, knn_accuracy, linear_probe, quick_probe, transfer_probe
from m3g.evaluation.report import METRICS, Embedded, Report, evaluate, mean_of_views
from m3g.evaluation.retrieval import Retrieval, retrieval

__all__ = [
    "METRICS",
    "Embedded",
    "ProbeResult",
    "Report",
    "Retrieval",
    "alignment",
    "effective_rank",
    "evaluate",
    "knn_accuracy",
    "linear_probe",
    "mean_of_views",
    "polymatching_accuracy",
    "quick_probe",
    "retrieval",
    "transfer_probe",
    "uniformity",
]
