"""Sizes that torch leaves open: `symbols` has torch's SymInts as sizes of hloom, `graphs` compiles graphs with them."""
