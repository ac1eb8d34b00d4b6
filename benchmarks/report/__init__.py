"""What a benchmark run reports: targets, diagnoses, tables and charts."""
