"""Derivatives and batching of scans: which values of a step the backward pass needs, and how they get there."""
