"""Assembly of kernels, and what vector instructions look like in it."""

ANY = r"%[yz]mm"
