"""Runs as a command makes them: settings, folders, resuming, reports."""
