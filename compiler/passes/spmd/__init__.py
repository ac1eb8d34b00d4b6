"""Programs for several devices: sharding propagation (`propagate`), partitioning and collectives."""
