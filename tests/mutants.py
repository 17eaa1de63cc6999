"""Small wrongs in the kernels' sources, made by rule: what `mutate.py` tries, one at a time, by the rules below.

A function has many places for each; a few are taken, spread evenly, so that the list is the same every time and a
change of one function leaves the mutants of the others as they are.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import corenet.kernels

FOLDER = Path(corenet.kernels.__file__).parent
NO_KERNELS = {"__init__", "backend", "c_tile", "clock", "native", "numba_backend", "operation"}
RULES_TEXT = """\
    element   after the last statement, one element of an output is changed
    term      a + b → a,  a · b → a,  x += y → x = y,  −x → x,  max(0, x) → x
    border    range(n) → range(n − 1) or range(1, n),  x[:n] → x[:n − 1],  i + 1 → i + 1 + 1,  < → <=
    geometry  padding → padding + 1, stride and dilation exchanged, a neighbour's axis: x.shape[1] → x.shape[0]"""
RULES = ("element", "term", "border", "geometry")
SIDES = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
EXCHANGED = {"stride": "dilation", "dilation": "stride", "window": "stride"}
PADDINGS = {"padding", "pad", "before", "shift"}
ANOTHER = "is another"
MIDDLE = """
    if {0} is not None:
        if {0}.size > 0:
            {0}.reshape(-1)[{0}.size // 2] += {1}"""


@dataclass(frozen=True)
class Change:
    """`text` in the place of a node, or behind it."""

    rule: str
    node: ast.expr | ast.stmt
    before: str
    after: str
    text: str
    behind: bool = False


@dataclass(frozen=True)
class Mutant:
    """One change of a module's source: what stands at the bytes start … end gives way to `text`."""

    module: str
    function: str
    line: int
    before: str
    after: str
    start: int
    end: int
    text: str

    def source(self) -> str:
        """The module's text with the change in it."""
        old = (FOLDER / f"{self.module}.py").read_bytes()
        return (old[: self.start] + self.text.encode() + old[self.end :]).decode()

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line} {self.function}: {self.before} → {self.after}"


def modules() -> list[str]:
    """The modules that hold kernels, or what kernels are made of."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NO_KERNELS)


def mutants(module: str, outputs: dict[str, dict[str, str]], every: bool = False) -> list[Mutant]:
    """Those of a module. `outputs`: for each function that writes arrays, their names and what to add to an element."""
    text = (FOLDER / f"{module}.py").read_bytes()
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []
    for function in ast.parse(text).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        all_of_it = list(changes(function, outputs.get(function.name, {})))
        for change in all_of_it if every else chosen(all_of_it):
            node = change.node
            assert node.end_lineno is not None and node.end_col_offset is not None
            start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
            start = end if change.behind else start
            line = node.end_lineno if change.behind else node.lineno
            found.append(Mutant(module, function.name, line, change.before, change.after, start, end, change.text))
    return list({str(mutant): mutant for mutant in found}.values())  # x - m twice in a line is one


def chosen(changes: list[Change]) -> list[Change]:
    """A few of each rule, evenly spread over the function."""
    found = []
    for rule in RULES:
        some = [change for change in changes if change.rule == rule]
        count = min(len(some), 1 + (len(some) // 16 if rule != "element" else 0))
        found += [some[(2 * j + 1) * len(some) // (2 * count)] for j in range(count)]
    return found


def changes(function: ast.FunctionDef, outputs: dict[str, str]) -> Iterator[Change]:
    """All changes of a function, in the order of its text for each rule."""
    for name, more in outputs.items():
        yield Change("element", function.body[-1], f"one element of {name}", ANOTHER, MIDDLE.format(name, more), True)
    names = {argument.arg for argument in function.args.args}
    body = function.body[1:] if ast.get_docstring(function) else function.body
    nodes = [node for statement in body for node in ast.walk(statement) if hasattr(node, "lineno")]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        for rule, new in rewritten(node, names):
            inside = isinstance(node, ast.stmt | ast.Slice)
            yield Change(rule, node, ast.unparse(node), new, new if inside else f"({new})")


def rewritten(node: ast.AST, names: set[str]) -> Iterator[tuple[str, str]]:
    """(rule, what to write instead) for one node."""
    match node:
        case ast.BinOp(left):
            yield "term", ast.unparse(left)
            if isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
                yield "border", f"{ast.unparse(node)} {'+' if isinstance(node.op, ast.Add) else '-'} 1"
        case ast.AugAssign(target, _, value):
            yield "term", f"{ast.unparse(target)} = {ast.unparse(value)}"
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "term", ast.unparse(operand)
        case ast.Call(ast.Name("max" | "min" | "abs"), [*_, last]):
            yield "term", ast.unparse(node.args[0] if not isinstance(node.args[0], ast.Constant) else last)
        case ast.Call(ast.Name("range" | "prange" as name), [end]):
            yield "border", f"{name}({ast.unparse(end)} - 1)"
            yield "border", f"{name}(1, {ast.unparse(end)})"
        case ast.Call(ast.Name("range" | "prange" as name), [begin, end, *step]):
            rest = "".join(f", {ast.unparse(a)}" for a in step)
            yield "border", f"{name}({ast.unparse(begin)}, {ast.unparse(end)} - 1{rest})"
            yield "border", f"{name}({ast.unparse(begin)} + 1, {ast.unparse(end)}{rest})"
        case ast.Slice(begin, end) if end is not None:
            yield "border", f"{ast.unparse(begin) if begin else ''}:{ast.unparse(end)} - 1"
        case ast.Compare(left, [operator], [right]) if type(operator) in SIDES:
            yield "border", f"{ast.unparse(left)} {SIDES[type(operator)]} {ast.unparse(right)}"
        case ast.Subscript(ast.Name(name), ast.expr(), ast.Load()) if name in PADDINGS:
            yield "geometry", f"{ast.unparse(node)} + 1"
        case ast.Subscript(value, ast.Constant(int(axis)), ast.Load()):
            yield "geometry", f"{ast.unparse(value)}[{axis - 1 if axis else 1}]"
        case ast.Name(name, ast.Load()) if EXCHANGED.get(name) in names:
            yield "geometry", EXCHANGED[name]
