"""The tables of docs/results. Every cell is a run in a folder named after its settings, so that no run is repeated."""
