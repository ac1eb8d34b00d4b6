"""Register-tiled inner loops of contractions, written as LLVM vector code."""
