"""Losses of k views. The modules, except `InfoNCE`, have one interface, `loss(views, *, mask=None)`.

`build("infonce-pwe", temperature=0.1)` builds a loss module by name, and `available()` lists the names. Most losses
have two forms: a function, such as `mmcr`, whose docstring gives the formula, and a module, such as `MMCR`. `infonce`,
`InfoNCE`, `byol` and `barlow_twins` are losses of a pair of views.
"""

from m3g.losses.aggregate import AverageOfRest, Pairwise, average_of_rest, pairwise
from m3g.losses.barlow_twins import BarlowTwins, barlow_twins
from m3g.losses.base import ViewLoss
from m3g.losses.byol import BYOLAverage, BYOLPairwise, byol
from m3g.losses.convergence import ConvergenceWarning
from m3g.losses.gather import gather_views
from m3g.losses.gram import Gram, gram
from m3g.losses.infonce import InfoNCE, InfoNCEAverage, InfoNCEPairwise, infonce
from m3g.losses.kl import KLLoss, matching_divergence
from m3g.losses.lejepa import LeJEPA, lejepa
from m3g.losses.m3g import M3GLoss, leave_one_out, matching_gap
from m3g.losses.m3g_pairs import M3GPairs
from m3g.losses.m3g_rest import M3GRest
from m3g.losses.mcca import MCCA, mcca
from m3g.losses.mmcr import MMCR, mmcr
from m3g.losses.mv_dhel import MVDHEL, mv_dhel
from m3g.losses.mv_infonce import MVInfoNCE, mv_infonce
from m3g.losses.pmrl import PMRL, pmrl
from m3g.losses.polyview import PolyView, polyview
from m3g.losses.registry import available, build, describe, options, register
from m3g.losses.symile import Symile, symile
from m3g.losses.temperature import Temperature
from m3g.losses.triangle import Triangle, triangle
from m3g.losses.vicreg import VICReg, vicreg

__all__ = [
    "MCCA",
    "MMCR",
    "MVDHEL",
    "PMRL",
    "AverageOfRest",
    "BYOLAverage",
    "BYOLPairwise",
    "BarlowTwins",
    "ConvergenceWarning",
    "Gram",
    "InfoNCE",
    "InfoNCEAverage",
    "InfoNCEPairwise",
    "KLLoss",
    "LeJEPA",
    "M3GLoss",
    "M3GPairs",
    "M3GRest",
    "MVInfoNCE",
    "Pairwise",
    "PolyView",
    "Symile",
    "Temperature",
    "Triangle",
    "VICReg",
    "ViewLoss",
    "available",
    "average_of_rest",
    "barlow_twins",
    "build",
    "byol",
    "describe",
    "gather_views",
    "gram",
    "infonce",
    "leave_one_out",
    "lejepa",
    "matching_divergence",
    "matching_gap",
    "mcca",
    "mmcr",
    "mv_dhel",
    "mv_infonce",
    "options",
    "pairwise",
    "pmrl",
    "polyview",
    "register",
    "symile",
    "triangle",
    "vicreg",
]
