"""Targets: how kernels become launches and machine code on a kind of device."""
