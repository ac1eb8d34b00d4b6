"""Loops, branches, named axes and implicit differentiation."""
