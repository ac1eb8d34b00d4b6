"""Tests of jax and of libraries on it, with hloom as their device."""
