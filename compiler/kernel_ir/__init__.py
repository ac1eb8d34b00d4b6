"""The kernel language as typed nodes: what a kernel is, before it is printed, rewritten or compiled."""
