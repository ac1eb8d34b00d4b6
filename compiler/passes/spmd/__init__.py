"""Programs for several devices: how every value is laid out (`propagate`), and what one device then runs."""
