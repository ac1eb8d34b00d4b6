"""Runs passes on a module of HLO text or StableHLO and prints the result as HLO text.

hloom opt layer.hlo --passes simplify,cse,dce --print-after-all --time-passes
"""

from hloom.compiler.opt import add_arguments, run

__all__ = ["add_arguments", "run"]
