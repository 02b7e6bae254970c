"""Networks of k views: encoders, projection and prediction heads, and the teacher."""

from m3g.nets.backbones import ModuleEncoder, TransformersEncoder, import_module_class
from m3g.nets.build import build_encoders, build_net
from m3g.nets.chunks import embed_in_chunks
from m3g.nets.encoders import MLP, EEGEncoder
from m3g.nets.heads import Head, Predictor, Projector
from m3g.nets.linear import Linear, Residual
from m3g.nets.multiview import MultiViewNet
from m3g.nets.processors import processor_of
from m3g.nets.registry import build_encoder
from m3g.nets.teacher import Teacher

__all__ = [
    "MLP",
    "EEGEncoder",
    "Head",
    "Linear",
    "ModuleEncoder",
    "MultiViewNet",
    "Predictor",
    "Projector",
    "Residual",
    "Teacher",
    "TransformersEncoder",
    "build_encoder",
    "build_encoders",
    "build_net",
    "embed_in_chunks",
    "import_module_class",
    "processor_of",
]
