"""Proof by killing: programs are killed at random moments, and nothing that they promised is lost."""
