"""Literal implementations of the losses with Python loops: slow, and easy to compare with the papers.

All take unit vectors z (k, n, d) as given, and the bool mask (k, n) of points that are present.
"""

from __future__ import annotations

import cmath
import itertools
import math

import scipy.linalg
import torch


def dot(a, b):
    return float((a * b).sum())


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def cross_entropy(positive, negatives):
    """-log(e^positive / (e^positive + sum e^negatives))."""
    return math.log(sum(math.exp(s) for s in [positive, *negatives])) - positive


def infonce(a, b, t):
    n = len(a)
    return mean(cross_entropy(dot(a[i], b[i]) / t, [dot(a[i], b[j]) / t for j in range(n) if j != i]) for i in range(n))


def byol(a, b):
    n = len(a)
    return 2 - 2 / n * sum(dot(a[i], b[i]) for i in range(n))


def gap_of_two(a, b, epsilon):
    """h(J) - h(P) of two views, P by plain Sinkhorn scaling."""
    n = len(a)
    cost = torch.tensor([[1 - float(((x + y) / 2).norm()) ** 2 for y in b] for x in a], dtype=torch.float64)
    kernel, u, v = torch.exp(-cost / epsilon), torch.ones(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)
    for _ in range(500):
        u = 1 / n / (kernel @ v)
        v = 1 / n / (kernel.T @ u)
    coupling = u[:, None] * kernel * v

    def h(p):
        return float((p * cost).sum() + epsilon * (torch.special.xlogy(p, p) - p).sum())

    return h(torch.eye(n, dtype=torch.float64) / n) - h(coupling)


def pairwise(z, mask, pair, *, pairs=None, target=None, min_points=1):
    k, n, _ = z.shape
    target = z if target is None else target
    total, weight = 0.0, 0
    for l, m in pairs or list(itertools.combinations(range(k), 2)):
        both = [i for i in range(n) if mask[l, i] and mask[m, i]]
        if len(both) >= min_points:
            total += len(both) * pair(z[l, both], target[m, both])
            weight += len(both)
    return total / weight


def average_of_rest(z, mask, pair, *, renormalize=True, symmetric=False, target=None, min_points=1):
    k, n, _ = z.shape
    target = z if target is None else target
    total, weight = 0.0, 0
    for l in range(k):
        rows, averages = [], []
        for i in range(n):
            others = [target[m, i] for m in range(k) if m != l and mask[m, i]]
            if mask[l, i] and others:
                average = sum(others) / len(others)
                averages.append(average / average.norm() if renormalize else average)
                rows.append(i)
        if len(rows) >= min_points:
            sides = [(z[l, rows], torch.stack(averages))]
            for a, b in [*sides, *((b, a) for a, b in sides if symmetric)]:
                total += len(rows) * pair(a, b)
                weight += len(rows)
    return total / weight


def query_of_rest(z, mask, temperature, *, renormalize=False):
    """The two-view gap of each view with the scaled product of the others that are present."""
    k, n, d = z.shape
    total, weight = 0.0, 0
    for l in range(k):
        rows = [i for i in range(n) if mask[l, i] and sum(bool(mask[m, i]) for m in range(k)) > 1]
        queries = []
        for i in rows:
            others = [z[m, i] for m in range(k) if m != l and mask[m, i]]
            query = torch.tensor(
                [d ** ((len(others) - 1) / 2) * math.prod(float(z[c]) for z in others) for c in range(d)]
            ).double()
            queries.append(query / query.norm() if renormalize else query)
        if len(rows) >= 2:
            # A circular variance of two is -<x, y> / 2 and terms of one view: epsilon is half the temperature.
            total += len(rows) * gap_of_two(z[l, rows], torch.stack(queries), temperature / 2)
            weight += len(rows)
    return total / weight


def score(z, indices):
    """The multilinear inner product of the tuple of these points."""
    d = z.shape[-1]
    return sum(math.prod(float(z[l, i, c]) for l, i in enumerate(indices)) for c in range(d))


def symile(z, mask, t, negatives):
    """Every complete object i as anchor of every view l, against the tuples negatives(l, i) that are present."""
    k, n, _ = z.shape

    def term(l, i):
        tuples = [u for u in negatives(l, i) if all(mask[m, u[m]] for m in range(k))]
        return cross_entropy(score(z, (i,) * k) / t, [score(z, u) / t for u in tuples])

    return mean(term(l, i) for l in range(k) for i in range(n) if mask[:, i].all())


def symile_all_tuples(z, mask, t):
    k, n, _ = z.shape
    tuples = list(itertools.product(range(n), repeat=k))
    return symile(z, mask, t, lambda l, i: [u for u in tuples if u[l] == i and u != (i,) * k])


def symile_shuffled(z, mask, t, generator):
    k, n, _ = z.shape
    orders = [{m: torch.randperm(n, generator=generator).tolist() for m in range(k) if m != l} for l in range(k)]

    def negatives(l, i):
        return [[i if m == l else orders[l][m][j] for m in range(k)] for j in range(n) if j != i]

    return symile(z, mask, t, negatives)


def two_way(values, rows, columns, t, smoothing):
    """½ [CE(-values / t) + CE(-values^T / t)] with label smoothing; values[i, j] of anchor i, candidate j."""
    both = [i for i in rows if i in columns]

    def one_way(value, candidates):
        terms = []
        for i in both:
            log_sum = math.log(sum(math.exp(-value(i, j) / t) for j in candidates))
            log_p = {j: -value(i, j) / t - log_sum for j in candidates}
            uniform = sum(log_p.values()) / len(candidates)
            terms.append(-(1 - smoothing) * log_p[i] - smoothing * uniform)
        return mean(terms)

    return (one_way(lambda i, j: values[i, j], columns) + one_way(lambda j, i: values[i, j], rows)) / 2


def gram(z, mask, t, *, anchor=0, smoothing=0.1, floor=1e-6):
    k, n, _ = z.shape
    others = [l for l in range(k) if l != anchor]
    values = {}
    for i, j in itertools.product(range(n), range(n)):
        vectors = torch.stack([z[anchor, i], *(z[l, j] for l in others if mask[l, j])])
        values[i, j] = math.sqrt(max(abs(float(torch.linalg.det(vectors @ vectors.T))), floor))
    rows = [i for i in range(n) if mask[anchor, i]]
    columns = [j for j in range(n) if any(mask[l, j] for l in others)]
    return two_way(values, rows, columns, t, smoothing)


def triangle(z, mask, t, *, smoothing=0.1):
    n = z.shape[1]
    values = {}
    for i, j in itertools.product(range(n), range(n)):
        u, v = z[0, i] - z[1, j], z[0, i] - z[2, j]
        values[i, j] = (dot(u, u) * dot(v, v) - dot(u, v) ** 2) / 2
    rows = [i for i in range(n) if mask[0, i]]
    columns = [j for j in range(n) if mask[1, j] and mask[2, j]]
    return two_way(values, rows, columns, t, smoothing)


def polyview(z, mask, t):
    k, n, _ = z.shape
    terms = []
    for i, a, b in itertools.product(range(n), range(k), range(k)):
        if a != b and mask[a, i] and mask[b, i]:
            negatives = [dot(z[a, i], z[g, j]) / t for j in range(n) for g in range(k) if j != i and mask[g, j]]
            terms.append(cross_entropy(dot(z[a, i], z[b, i]) / t, negatives))
    return mean(terms)


def positive_terms(z, mask, t, i):
    k = len(z)
    return sum(
        math.exp(dot(z[l, i], z[m, i]) / t) for l, m in itertools.permutations(range(k), 2) if mask[l, i] and mask[m, i]
    )


def mv_infonce(z, mask, t):
    k, n, _ = z.shape
    terms = []
    for i in range(n):
        if mask[:, i].sum() >= 2:
            everything = sum(
                math.exp(dot(z[l, i], z[m, j]) / t)
                for l, m, j in itertools.product(range(k), range(k), range(n))
                if (j, m) != (i, l) and mask[l, i] and mask[m, j]
            )
            terms.append(-math.log(positive_terms(z, mask, t, i) / everything))
    return mean(terms)


def mv_dhel(z, mask, t):
    k, n, _ = z.shape
    terms = []
    for i in range(n):
        if mask[:, i].sum() >= 2:
            product = 1.0
            for l in range(k):
                energies = [math.exp(dot(z[l, i], z[l, j]) / t) for j in range(n) if j != i and mask[l, j]]
                if mask[l, i] and energies:
                    product *= sum(energies)
            terms.append(-math.log(positive_terms(z, mask, t, i) / product))
    return mean(terms)


def nuclear_norm(matrix):
    return float(torch.linalg.matrix_norm(matrix, ord="nuc"))


def mmcr(z, mask, compression=5e-3):
    n = z.shape[1]
    manifolds = [z[mask[:, i], i] for i in range(n)]
    centroids = torch.stack([manifold.mean(0) for manifold in manifolds])
    return -nuclear_norm(centroids) + compression * mean(nuclear_norm(m) for m in manifolds)


def vicreg(x, mask, weights=(25.0, 25.0, 1.0)):
    k, n, d = x.shape
    invariance = mean(
        float((x[l, i] - x[m, i]).square().mean())
        for i, (l, m) in itertools.product(range(n), itertools.combinations(range(k), 2))
        if mask[l, i] and mask[m, i]
    )
    spread, decorrelation = [], []
    for l in range(k):
        points = x[l][mask[l]]
        if len(points) >= 2:
            cov = torch.cov(points.T).reshape(d, d)
            spread.append(mean(max(0.0, 1 - math.sqrt(float(cov[c, c]) + 1e-4)) for c in range(d)))
            decorrelation.append(sum(float(cov[c, e]) ** 2 for c in range(d) for e in range(d) if c != e) / d)
    return weights[0] * invariance + weights[1] * mean(spread) + weights[2] * 2 * mean(decorrelation)


def pmrl(z, mask, t, t_contrast, contrast):
    n = z.shape[1]
    terms, leading = [], []
    for i in range(n):
        views = z[mask[:, i], i]
        _, values, right = torch.linalg.svd(views, full_matrices=False)
        if len(views) >= 2:
            terms.append(cross_entropy(float(values[0]) / t, [float(s) / t for s in values[1:]]))
        leading.append(right[0] if dot(right[0], views[0]) >= 0 else -right[0])
    return mean(terms) + contrast * infonce(leading, leading, t_contrast)


def lejepa(x, mask, regularization, directions, generator):
    k, n, d = x.shape
    axes = torch.randn(directions, d, generator=generator, dtype=torch.float64)
    distances = []
    for l, i in itertools.product(range(k), range(n)):
        if mask[l, i] and mask[:, i].sum() >= 2:
            distances.append(float((x[l, i] - x[mask[:, i], i].mean(0)).square().mean()))
    step = 3 / 16
    statistics = []
    for l in range(k):
        points = x[l][mask[l]]
        per_direction = []
        for axis in axes:
            integral = 0.0
            for knot in range(-16, 17):
                t = knot * step
                character = mean(cmath.exp(1j * t * dot(axis / axis.norm(), point)) for point in points)
                height = abs(character - math.exp(-(t**2) / 2)) ** 2 * math.exp(-(t**2) / 2)
                integral += step * height / (2 if abs(knot) == 16 else 1)
            per_direction.append(len(points) * integral)
        statistics.append(mean(per_direction))
    return (1 - regularization) * mean(distances) + regularization * mean(statistics)


def barlow_twins(a, b, redundancy):
    n, d = a.shape

    def standard(x):
        return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()

    c = standard(a).T @ standard(b) / n
    off = sum(float(c[e, f]) ** 2 for e in range(d) for f in range(d) if e != f)
    return sum((1 - float(c[e, e])) ** 2 for e in range(d)) + redundancy * off


def mcca(x, mask, components, ridge):
    k, _, d = x.shape
    k_used = [l for l in range(k) if mask[l].sum() >= 2]
    centred = {l: x[l] - x[l][mask[l]].mean(0) for l in k_used}
    covariance = torch.zeros(k * d, k * d, dtype=x.dtype)  # S_lm in its blocks
    within = torch.zeros_like(covariance)  # S_l in the blocks of the diagonal
    for l, m in itertools.product(k_used, k_used):
        block = slice(l * d, (l + 1) * d), slice(m * d, (m + 1) * d)
        both = mask[l] & mask[m]
        if both.sum() >= 2:
            covariance[block] = centred[l][both].T @ centred[m][both] / both.sum()
        if l == m:
            variance = float(covariance[block].diagonal().mean())
            covariance[block] += (ridge * variance + 1e-8) * torch.eye(d, dtype=x.dtype)
            within[block] = covariance[block]
    used = [l * d + c for l in k_used for c in range(d)]
    eigenvalues = scipy.linalg.eigh(covariance[used][:, used], within[used][:, used], eigvals_only=True)
    return 1 - mean((rho - 1) / (len(k_used) - 1) for rho in sorted(eigenvalues)[-(components or d) :])
