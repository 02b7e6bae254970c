"""Fully sharded training (`--loop.strategy fsdp`): every process stores a shard of all weights, on GPUs or CPUs."""

from __future__ import annotations

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard


class FullySharded(ModelParallelStrategy):
    """PyTorch's `fully_shard` over all processes; checkpoints contain whole tensors, as with ddp."""

    def __init__(self, processes: int) -> None:
        super().__init__(data_parallel_size=processes, tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        for optimizer in self.optimizers:
            # `get_optimizer_state_dict` creates missing state by a step with zero gradients; reset the step counter so
            # that this step is not counted.
            get_optimizer_state_dict(self.model, optimizer)  # type: ignore[arg-type]
            for state in optimizer.state.values():
                state["step"].zero_()


def shard(parts: list[nn.Module], mesh: DeviceMesh) -> None:
    """Shard modules over the processes of a mesh, layer by layer: a layer is gathered only while it is used."""
    for part in parts:
        stacks = [module for module in part.modules() if isinstance(module, nn.ModuleList)]
        for layer in [*(layer for stack in stacks for layer in stack), part]:
            if not isinstance(layer, FSDPModule) and any(True for _ in layer.parameters()):
                # By default, a root module stays gathered until its backward pass, and the teacher has none.
                fully_shard(layer, mesh=mesh, reshard_after_forward=True)
