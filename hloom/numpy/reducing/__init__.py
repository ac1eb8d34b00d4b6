"""Reductions, scans, quantiles, histograms and statistics."""
