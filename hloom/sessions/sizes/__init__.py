"""Sizes that are unknown while a program is built: its dimensions, and the runs for them."""
