"""What the attention kernels of every target share: masks, row nests and pattern matching."""
