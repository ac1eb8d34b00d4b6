"""Tracers, traces, regions, references and callbacks."""
