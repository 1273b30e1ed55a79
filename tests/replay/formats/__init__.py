"""Tests of the files that logs come in."""
