from hloom.compiler.transforms import control  # noqa: F401  (its rules belong to ops of the table)
