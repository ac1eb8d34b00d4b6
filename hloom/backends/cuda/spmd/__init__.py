"""Programs that several GPUs run together."""
