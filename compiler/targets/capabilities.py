"""What a kernel's writer asks of the device that it is for: the part of a target that kernels know."""

from __future__ import annotations


class Capabilities:
    """The capabilities of a device; by default none is special.

    supports_loop_splitting: a work item runs its innermost loop alone, so that the loop may have several bodies.
    """

    supports_loop_splitting: bool = False

    @property
    def nontemporal_threshold(self) -> int:
        """Bytes read and written from which on a kernel's stores are non-temporal; 0: never."""
        return 0

    @property
    def nontemporal_result_threshold(self) -> int:
        """The same for results that nothing in the program reads again."""
        return 0

    @property
    def nontemporal_bytes(self) -> int:
        """Size of a non-temporal store, whose address is a multiple of it."""
        return 0

    @property
    def cores(self) -> int:
        """Cores among which a kernel's work items may be divided."""
        return 1
