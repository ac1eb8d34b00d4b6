"""Arrays: data with a shape, a weak type and a device."""
