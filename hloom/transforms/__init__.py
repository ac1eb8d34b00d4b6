"""Function transformations: grad, jvp, vjp, vmap, shard_map, rematerialization, custom rules."""
