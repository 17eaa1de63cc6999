"""LARS and LAMB: their papers' algorithms for twenty steps, and the same bits whoever owns which block."""

import numpy as np
import pytest

from corenet import optim
from corenet.errors import ConfigError
from corenet.kernels import layerwise
from corenet.kernels.backend import Backend, numba_problem, select
from corenet.optim.layerwise import Blocks, layerwise_step

needs_numba = pytest.mark.skipif(numba_problem() is not None, reason="Numba is not installed")
KERNELS = [pytest.param("numba", "float32", marks=needs_numba), ("numpy", "float64")]
EPS = {"float32": float(np.finfo(np.float32).eps), "float64": float(np.finfo(np.float64).eps)}

ENTRIES = [(0, 2500), (2512, 7), (2528, 0), (2528, 1024), (3552, 1), (3568, 2049)]
SIZE = 5632
LAYERWISE = {
    "LARS": optim.LARS(0.3),
    "LARS, all arguments": optim.LARS(optim.Step(0.3, 1), 0.8, weight_decay=0.05, trust_coefficient=0.02, eps=1e-3),
    "LAMB": optim.LAMB(),
    "LAMB, all arguments": optim.LAMB(optim.Step(0.03, 1), betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2),
}


class Flat:
    """Parameters and slots of a layerwise optimizer in two copies, as training keeps them."""

    def __init__(self, optimizer, dtype, start):
        self.optimizer, self.blocks, self.step = optimizer, Blocks.of(ENTRIES), 0
        self.trust = optimizer.trust(self.blocks)
        self.state = np.stack([start, start]).astype(dtype)
        self.slots = np.zeros((2, optimizer.slots, SIZE), dtype)

    def run(self, gradient, epoch=0.0, **settings):
        copy = self.step & 1
        kept = [self.slots[which, slot] for slot in range(self.optimizer.slots) for which in (copy, 1 - copy)]
        arrays = self.state[copy], self.state[1 - copy], gradient.astype(self.state.dtype), kept
        layerwise_step(
            self.optimizer, self.blocks, self.trust, *arrays, self.step, self.optimizer.lr.rate(epoch), **settings
        )
        self.step += 1
        return self.state[self.step & 1]

    def bits(self):
        return self.state.tobytes() + self.slots.tobytes()


def gradients(rng, steps):
    """Of each entry another size, and of one sometimes nothing."""
    for step in range(steps):
        gradient = rng.standard_normal(SIZE).astype(np.float32)
        for number, (offset, size) in enumerate(ENTRIES):
            gradient[offset : offset + size] *= 10.0 ** (number - 3) * (number != 1 or step % 3 > 0)
        yield gradient


def first_weights(rng):
    weights = np.zeros(SIZE, np.float32)
    for number, (offset, size) in enumerate(ENTRIES):
        weights[offset : offset + size] = rng.standard_normal(size) * (number != 3)  # one begins at 0
    return weights


def paper_lars(o, w, g, memory, t, rate):
    """Algorithm 1 of You, Gitman & Ginsburg (2017)."""
    norm_w, norm_g = np.linalg.norm(w), np.linalg.norm(g)
    local = o.trust_coefficient * norm_w / (norm_g + o.weight_decay * norm_w + o.eps) if norm_w * norm_g > 0 else 1.0
    memory["v"] = o.momentum * memory.get("v", 0) + rate * local * (g + o.weight_decay * w)
    return w - memory["v"]


def paper_lamb(o, w, g, memory, t, rate):
    """Algorithm 2 of You et al. (2020), φ the identity."""
    beta1, beta2 = o.betas
    memory["m"] = beta1 * memory.get("m", 0) + (1 - beta1) * g
    memory["v"] = beta2 * memory.get("v", 0) + (1 - beta2) * g**2
    ratio = memory["m"] / (1 - beta1**t) / (np.sqrt(memory["v"] / (1 - beta2**t)) + o.eps)
    update = ratio + o.weight_decay * w
    norm_w, norm_u = np.linalg.norm(w), np.linalg.norm(update)
    return w - rate * (norm_w / norm_u if norm_w * norm_u > 0 else 1.0) * update


@pytest.mark.parametrize("kernels, dtype", KERNELS)
@pytest.mark.parametrize("name", LAYERWISE)
def test_layerwise_follows_its_paper_for_twenty_steps(name, kernels, dtype):
    rng, optimizer = np.random.default_rng(3), LAYERWISE[name]
    start = first_weights(rng)
    flat, paper = Flat(optimizer, dtype, start), paper_lars if name.startswith("LARS") else paper_lamb
    exact, memories = start.astype(np.float64), [{} for _ in ENTRIES]
    for step, gradient in enumerate(gradients(rng, 20)):
        epoch = step / 7
        got = flat.run(gradient, epoch, backend=select(kernels))
        for (offset, size), memory in zip(ENTRIES, memories, strict=True):
            part = slice(offset, offset + size)
            g = gradient[part].astype(np.float64)
            exact[part] = paper(optimizer, exact[part], g, memory, step + 1, optimizer.lr.rate(epoch))
            moved = np.abs(exact[part] - start[part]).max(initial=0) + np.abs(start[part])
            assert (np.abs(got[part] - exact[part]) <= 6 * np.sqrt(step + 4) * EPS[dtype] * moved).all(), step
    between = np.ones(SIZE, bool)
    for offset, size in ENTRIES:
        between[offset : offset + size] = False
    assert (flat.state[:, between] == 0).all() and (flat.slots[:, :, between] == 0).all()


@needs_numba
@pytest.mark.parametrize("name", LAYERWISE)
def test_layerwise_bits_do_not_depend_on_who_owns_which_block(name):
    """Any deal of the blocks, in any order, serial or parallel."""
    rng = np.random.default_rng(4)
    start, given = first_weights(rng), list(gradients(rng, 3))
    total = len(Blocks.of(ENTRIES).bounds)
    assert total == 3 + 1 + 0 + 1 + 1 + 3
    deals = [
        [(0, total)],
        [(b, b + 1) for b in reversed(range(total))],
        [(4, total), (0, 2), (2, 4)],
        [(0, 0), (0, total)],
    ]
    results = set()
    for owners in deals:
        for backend in (select("numba"), Backend("numba", 2, "parallel")):
            flat = Flat(LAYERWISE[name], np.float32, start)
            for gradient in given:
                flat.run(gradient, owners=owners, backend=backend)
            results.add(flat.bits())
    assert len(results) == 1


def test_blocks_are_cut_by_size_alone():
    blocks = Blocks.of([(0, 10), (16, 0), (32, 5)], [4, 4, 8])
    assert blocks.bounds.tolist() == [[0, 4, 0], [4, 8, 0], [8, 10, 0], [32, 37, 2]]
    assert blocks.starts.tolist() == [0, 3, 3, 4]
    assert Blocks.of([(0, 2500)]).bounds.tolist() == [[0, 1024, 0], [1024, 2048, 0], [2048, 2500, 0]]
    assert Blocks.of([]).bounds.shape == (0, 3) and Blocks.of([]).starts.tolist() == [0]


def test_trust_ratio_by_hand():
    sums = np.array([[4.0, 16.0], [5.0, 9.0], [0.0, 9.0], [9.0, 0.0], [9.0, 4.0]])
    starts, ratios = np.array([0, 2, 3, 4, 5]), np.zeros(4)
    layerwise.trust_ratios(4, starts, sums, np.array([0.5, 0, 0, 0]), np.array([0.1, 1, 1, 0]), ratios, 0.5)
    # ‖w‖ = 3, ‖g‖ = 5; then a norm of 0, twice; then a coefficient of 0
    assert ratios.tolist() == pytest.approx([0.1 * 3 / (5 + 0.5 * 3 + 0.5), 1, 1, 1])


@pytest.mark.parametrize("name", ["LARS, all arguments", "LAMB, all arguments"])
def test_entry_without_decay_and_ratio_takes_plain_steps(name):
    rng, optimizer = np.random.default_rng(5), LAYERWISE[name]
    flat = Flat(optimizer, np.float64, first_weights(rng))
    flat.trust.decays[5] = flat.trust.coefficients[5] = 0
    plain = optim.SGD(0.3, 0.8) if name.startswith("LARS") else optim.AdamW(0.03, optimizer.betas, 1e-3, 0.0)
    part, hyper = slice(ENTRIES[5][0], ENTRIES[5][0] + ENTRIES[5][1]), np.zeros(plain.hyper_size)
    weights, slots = flat.state[0, part].copy(), np.zeros((2, plain.slots, ENTRIES[5][1]))
    for step, gradient in enumerate(gradients(rng, 4)):
        got, old = flat.run(gradient)[part], weights.copy()
        plain.fill_hyper(hyper, step, plain.lr.rate(0))
        kept = [slots[which, slot] for slot in range(plain.slots) for which in (step & 1, 1 - (step & 1))]
        plain.operation(0, len(old), old, weights, gradient[part].astype(np.float64), *kept, hyper)
        assert np.allclose(got, weights, rtol=1e-12, atol=1e-14)


def test_owners_must_deal_all_blocks():
    flat = Flat(LAYERWISE["LARS"], np.float64, first_weights(np.random.default_rng(0)))
    for owners in ([(0, 3)], [(0, 9), (3, 4)], []):
        with pytest.raises(ConfigError, match=r"^layerwise_step\(owners"):
            flat.run(np.zeros(SIZE), owners=owners)
