"""Evaluation of embeddings: probes, nearest neighbours, cross-view retrieval, polymatching, geometry, plots."""

from m3g.evaluation.canonical import CanonicalViews
from m3g.evaluation.clustering import Clustering, clustering
from m3g.evaluation.embedded import Embedded, Readout, read_out
from m3g.evaluation.few_shot import FewShot, few_shot_probe
from m3g.evaluation.geometry import alignment, effective_rank, uniformity
from m3g.evaluation.linear_cca import LinearCCA, mean_reciprocal_rank
from m3g.evaluation.linear_probe import ProbeResult, augmented_probe, linear_probe
from m3g.evaluation.matching import polymatching_accuracy
from m3g.evaluation.missing import view_subsets, without_views
from m3g.evaluation.probes import Probe, knn_accuracy, quick_probe, transfer_probe
from m3g.evaluation.report import METRICS, Report, evaluate
from m3g.evaluation.retrieval import Retrieval, retrieval

__all__ = [
    "METRICS",
    "CanonicalViews",
    "Clustering",
    "Embedded",
    "FewShot",
    "LinearCCA",
    "Probe",
    "ProbeResult",
    "Readout",
    "Report",
    "Retrieval",
    "alignment",
    "augmented_probe",
    "clustering",
    "effective_rank",
    "evaluate",
    "few_shot_probe",
    "knn_accuracy",
    "linear_probe",
    "mean_reciprocal_rank",
    "polymatching_accuracy",
    "quick_probe",
    "read_out",
    "retrieval",
    "transfer_probe",
    "uniformity",
    "view_subsets",
    "without_views",
]
