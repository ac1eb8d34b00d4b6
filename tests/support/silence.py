"""Tests that nothing warns. A filter that turns warnings into errors does not show those of a compilation
(`hloom.ir.source.warn_while_compiling`)."""

import warnings
from contextlib import contextmanager


@contextmanager
def no_warnings(category: type[Warning] = Warning):
    """A block in which a warning of the category is a failure of the test."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    assert not [str(w.message) for w in found if issubclass(w.category, category)]
