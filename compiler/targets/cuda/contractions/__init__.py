"""Matrix products and convolutions on CUDA."""
