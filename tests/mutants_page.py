"""docs/mutations.md, written from a run of `mutate.py`; and which mutants cannot make a difference, and why."""

import re
import textwrap
from collections import Counter

from mutants import ANOTHER, RULES_TEXT, Mutant

# Why a mutant cannot be noticed, and those of which this is true: "module function: before → after".
NO_DIFFERENCE: dict[str, tuple[str, ...]] = {
    "Both sides of the border give the same value there.": (
        "activation _sigmoid: x < 0 → x <= 0",
        "activation sigmoid: x < 0 → x <= 0",
        "activation phi_by_tanh: x < np.float32(-FAR) → x <= np.float32(-FAR)",
        "elementwise relu_forward_nest: x[i, j] < 0 → x[i, j] <= 0",
        "exponential split: x > np.float32(LOWEST) → x >= np.float32(LOWEST)",
        "gradient clip_nest: value > most → value >= most",
        "losses binary_cross_entropy: x < 0 → x <= 0",
        "losses binary_cross_entropy_nest: value < 0 → value <= 0",
        "losses huber: np.abs(d) <= delta → np.abs(d) < delta",
    ),
    "Both sides give the same value but for a rounding there.": (
        "exponential tanh32: size < np.float32(0.625) → size <= np.float32(0.625)",
        "exponential normal32: x > 0 → x >= 0",
    ),
    "The slice of strided positions ends before the next one either way, or beyond all there are.": (
        "conv _windows: (count - 1) * step + 1 → (count - 1) * step + 1 + 1",
    ),
    "The image with its border only becomes larger, and its middle is what is taken.": (
        "conv backward_data: dy.shape[1 + a] - 1 → dy.shape[1 + a]",
    ),
    "What the division leaves out is less than the stride.": (
        "conv _phase: f * dilation - phase → f * dilation",
        "conv backward_data_nest: h + padding[1] - h0 → h + padding[1]",
    ),
    "One more turn of the loop finds nothing to do.": (
        "conv backward_weights_nest: elements // run * tiles + TILES - 1 → elements // run * tiles + TILES",
        "winograd_2x3 forward_nest: places.shape[0] + BLOCK - 1 → places.shape[0] + BLOCK",
        "winograd_4x3 forward_nest: places.shape[0] + BLOCK - 1 → places.shape[0] + BLOCK",
        "winograd_4x5 forward_nest: places.shape[0] + BLOCK - 1 → places.shape[0] + BLOCK",
        "winograd_2x3 backward_data_adjoint_nest: places.shape[0] + together - 1 → places.shape[0] + together",
        "winograd_4x3 backward_data_adjoint_nest: places.shape[0] + together - 1 → places.shape[0] + together",
        "winograd_4x5 backward_data_adjoint_nest: places.shape[0] + together - 1 → places.shape[0] + together",
        *(
            f"winograd_{member} backward_data_adjoint_nest: (places.shape[0] + together - 1) // together → "
            "places.shape[0] + together - 1"
            for member in ("2x3", "4x3", "4x5")
        ),
    ),
    "Rows beyond the last pixel are never stored, and the last entry of their table is not read.": (
        "conv backward_data_nest: max(0, pixels - 1) → pixels - 1",
        "conv backward_data_nest: range(pixels, pixels + ROWS) → range(pixels, pixels + ROWS - 1)",
    ),
    "The number of samples is padded to a multiple of the step.": (
        "linear backward_data_nest: range(0, samples, LANES) → range(0, samples - 1, LANES)",
    ),
    "A place before the window has a negative number, and no window has noted that.": (
        "pool max_backward_nest: max(0, -d0) → -d0",
    ),
    "Every tile of a run begins before the run ends.": (
        "conv _row_of: min(number % tiles * ROWS, run) → number % tiles * ROWS",
    ),
    "Rows of another width give the same sums but for rounding.": (
        "bias backward_nest: dy.shape[1] → dy.shape[0]",
        "rows row_width: min(positions, WIDE // C) → positions",
    ),
    "Rows beyond the last patch are copies of it, stored in its place.": (
        "winograd products: min(ROWS, count - t) → ROWS",
        "winograd products: count - t → count",
    ),
    "Rows beyond the last one are read, but not used.": ("winograd _tables: rows - 1 → rows",),
    "Between the points lie floats that nothing uses: they are for the cache.": (
        "winograd _step: count + LANES → count",
        "winograd _block_memory: :middle → :middle - 1",
        "winograd gradient_memory: v_end:g_end → v_end:g_end - 1",
    ),
    "Blocks that overlap make the same words again.": ("dropout forward_nest: 4 * BLOCK → 4",),
    "It chooses between two ways of which one is faster.": (
        "conv backward_weights_nest: 2 * run > padded(run, ROWS) → 2 * run >= padded(run, ROWS)",
    ),
}
EXPLAINED = {text: reason for reason, texts in NO_DIFFERENCE.items() for text in texts}

INTRODUCTION = """# Mutations

Would the tests notice if a kernel were wrong? `tests/mutate.py` makes small changes in the kernels, one at a time, by
these rules, and runs the tests with each:

{rules}

Definitions, nests and what they call are changed alike; a few places of each function are taken, evenly spread over it
(`--every` takes all). Nothing on disk changes: a mutant is a fork of a process that has collected the tests, and one
function in it is given other code. The tests of its operations run first, the nest as plain Python before it is
compiled, then all the others that need no process of their own; a test that fails, crashes or takes too long has
noticed. Those that it runs:

    {files}

`mutate_edges.py` does here what `test_tile_heights.py` and `test_winograd.py` have done in other processes: arrays lie
at the edges of pages that may not be touched.

Not changed are constants of modules, what compiles nests (`numba_backend.py`) and the C library. This page is what the
script writes, in some minutes; lines are those of the sources it was written from:

    python tests/mutate.py --write docs/mutations.md

| module | mutants | noticed | no difference | survived |
|---|---|---|---|---|
{table}

## No difference

Mutants that give the same results as the original, so that no test can fail.

{equal}

## Survived

{survived}

## All mutants, and the first test that notices

Tests by number:

{tests}

{all}
"""


def key(mutant: Mutant) -> str:
    """A mutant without its line, which changes with every edit above it."""
    return f"{mutant.module} {mutant.function}: {mutant.before} → {mutant.after}"


def test_name(noticed: str) -> str:
    """A test without its folder and parameters."""
    return re.sub(r"\[.*\]", "", noticed).rpartition("tests/")[2]


def page(of: list[Mutant], noticed: dict[str, str], files: list[str]) -> str:
    """The text of the page; `noticed` has, for each mutant, the test that failed."""
    names = [name for name, _ in Counter(test_name(noticed[str(m)]) for m in of).most_common() if name]
    rows, lists = [], []
    kinds = {m: "noticed" if noticed[str(m)] else "equal" if key(m) in EXPLAINED else "survived" for m in of}
    for module in [*dict.fromkeys(m.module for m in of), "all"]:
        count = Counter(kinds[m] for m in of if module in (m.module, "all"))
        numbers = [count.total(), count["noticed"], count["equal"], count["survived"]]
        rows.append(f"| {module} | {' | '.join(map(str, numbers))} |")
    for module in dict.fromkeys(m.module for m in of):
        lists.append(f"### {module}\n")
        for m in (m for m in of if m.module == module):
            number = names.index(test_name(noticed[str(m)])) + 1 if noticed[str(m)] else kinds[m]
            lists.append(f"- {m.line} {m.function}: {change(m)} – {number}")
        lists.append("")
    equal = [
        f"- {reason}\n" + "".join(f"  - {m.module}.py:{m.line} {m.function}: {change(m)}\n" for m in some)
        for reason, texts in NO_DIFFERENCE.items()
        if (some := [m for m in of if kinds[m] == "equal" and key(m) in texts])
    ]
    survived = [f"- {m.module}.py:{m.line} {m.function}: {change(m)}" for m in of if kinds[m] == "survived"]
    return INTRODUCTION.format(
        rules=RULES_TEXT,
        files="\n    ".join(textwrap.wrap(", ".join(files), 110)),
        table="\n".join(rows),
        equal="".join(equal).strip() or "None.",
        survived="\n".join(survived) or "None.",
        tests="\n".join(f"{number}. {name}" for number, name in enumerate(names, 1)),
        all="\n".join(lists).strip(),
    )


def change(mutant: Mutant) -> str:
    """Before and after."""
    return f"`{mutant.before}` → `{mutant.after}`" if mutant.after != ANOTHER else mutant.before + " " + ANOTHER
