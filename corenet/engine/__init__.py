"""The engine: shapes → plan → memory → the steps of one chunk. It knows kernels, but neither layers nor processes."""

from .layout import Layout
from .plan import Parameter, Plan, Plannable, Statistic, Tensor
from .planner import Planner, make_plan
from .program import Call, Program, aligned_bytes, initial_state, private_spaces

__all__ = [
    "Call",
    "Layout",
    "Parameter",
    "Plan",
    "Plannable",
    "Planner",
    "Program",
    "Statistic",
    "Tensor",
    "aligned_bytes",
    "initial_state",
    "make_plan",
    "private_spaces",
]
