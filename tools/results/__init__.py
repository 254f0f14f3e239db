"""The tables of docs/results/small. Every cell is a run in a folder named after its settings, so none is repeated."""
