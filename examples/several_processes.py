"""Distribute a batch over processes: loss and gradients equal those of one process with the whole batch.

With `gather=True`, the loss gathers the views of all processes, and each process differentiates its part.

    torchrun --standalone --nproc-per-node 2 examples/several_processes.py
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported first: its default arguments would keep the process group alive
from torch.nn.parallel import DistributedDataParallel

import m3g

K, N, WIDTH = 3, 64, 16


class Model(torch.nn.Module):
    """Encoders and loss in one module, so that a training step is one call of the module wrapped by DDP."""

    def __init__(self, *, gather: bool):
        super().__init__()
        torch.manual_seed(0)  # the same weights in every process
        self.encoders = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(K))
        self.loss = m3g.M3GLoss(epsilon=0.05, gather=gather)

    def forward(self, views: torch.Tensor) -> torch.Tensor:
        return self.loss([encoder(view) for encoder, view in zip(self.encoders, views)])


def compare() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    views = torch.randn(K, N, WIDTH, generator=torch.Generator().manual_seed(1))

    alone = Model(gather=False)
    whole = alone(views)
    whole.backward()

    shared = DistributedDataParallel(Model(gather=True))
    gap = shared(views.chunk(world, dim=1)[rank])  # each process has a part of the objects
    gap.backward()

    if rank == 0:
        pairs = zip(alone.parameters(), shared.parameters())
        difference = max(float((a.grad - b.grad).abs().max()) for a, b in pairs)
        print(f"one process, {N} objects       gap {whole.item():.4f}")
        print(f"{world} processes, {N // world} each          gap {gap.item():.4f}")
        print(f"largest difference between gradients {difference:.0e}")


def main() -> None:
    dist.init_process_group("gloo")  # "nccl" on GPUs
    try:
        compare()
        dist.barrier()  # wait until all processes have finished their communication
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
