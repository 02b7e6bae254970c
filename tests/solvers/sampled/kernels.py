"""Small problems for tests of the sampled solver, and their sampled kernels."""

import torch

import m3g
from m3g.solvers.sampled.draws import GeneratorDraws
from m3g.solvers.sampled.product_kernel import product_list
from m3g.solvers.sampled.proposals import anchors_of, tuple_list
from m3g.solvers.sampled.tuple_kernel import full_list

EPSILON = 0.2


def problem_of(sizes, *, b=1, d=6, seed=0, dtype=torch.float64, cost=None):
    generator = torch.Generator().manual_seed(seed)
    views = [torch.randn(b, n, d, generator=generator, dtype=dtype) for n in sizes]
    return (cost or m3g.CircularVariance())([torch.nn.functional.normalize(view, dim=-1) for view in views])


def kernel_list(form, log_kernel, seed, rank=32, b=1, *, anchored=True):
    if form == "full":
        return full_list(log_kernel)
    draws = seed if isinstance(seed, GeneratorDraws) else draws_of(seed)
    centres = draws.tuples(log_kernel.sizes, b, rank // 4)
    zero = torch.zeros_like(log_kernel.shift)
    target = torch.cat([torch.full((b, n), 1 / n, dtype=torch.float64) for n in log_kernel.sizes], 1)
    anchors = anchors_of(target, log_kernel.sizes)[:, : None if anchored else 0]
    build = product_list if form == "products" else tuple_list
    return build(log_kernel, centres, zero, 4, draws, anchors)


def draws_of(seed):
    return GeneratorDraws(torch.device("cpu"), torch.Generator().manual_seed(seed))


def coupling_of(kernel):
    zero = torch.zeros_like(kernel.base)
    return kernel.with_base(zero).coupling_at(zero, torch.ones(len(zero), 1, dtype=torch.float64))
