"""Tables of rewrite rules, by subject."""
