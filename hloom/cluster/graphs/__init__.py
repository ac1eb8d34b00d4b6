"""Programs of `hl.sessions` at a server: their runs, cut into stages where variables are on several tasks."""
