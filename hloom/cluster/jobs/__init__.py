"""Jobs of a cluster: how their processes are started, watched and started again."""
