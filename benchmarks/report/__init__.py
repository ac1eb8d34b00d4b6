"""The report of a benchmark run: targets, diagnoses, tables and charts."""
