"""Runs passes on a module in HLO or StableHLO text and prints the result as HLO text.

Examples:
    hloom opt layer.hlo --passes simplify,cse,dce --print-after-all
    hloom opt layer.mlir --time-passes
    hloom opt layer.hlo --load my_pass.py

"""

from hloom.compiler.opt import add_arguments, run

__all__ = ["add_arguments", "run"]
