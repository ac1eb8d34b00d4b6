"""Contractions, transforms and linear algebra."""
