"""Loops, branches, scans, named axes and implicit differentiation. Exports nothing."""
