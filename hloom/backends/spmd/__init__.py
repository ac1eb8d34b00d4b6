"""Programs that several devices run together: one plan, compiled once, that each device runs on its shards."""
