"""Linear algebra of real matrices: a work item is a matrix of the batch, or a block of right sides."""

__all__: list[str] = []
