"""Convolutions, Fourier transforms, ragged and scaled products."""
