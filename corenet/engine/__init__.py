"""The engine: shapes → plan → memory → the steps of one chunk. It knows layers and kernels, but no processes."""

from .layout import Layout
from .planner import Plan, make_plan
from .program import Call, Program, aligned_bytes, initial_state, private_spaces

__all__ = ["Call", "Layout", "Plan", "Program", "aligned_bytes", "initial_state", "make_plan", "private_spaces"]
