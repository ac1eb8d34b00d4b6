"""Passes over loops and scans."""
