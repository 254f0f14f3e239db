"""The tables of docs/results. Every cell is a run in a folder named by its settings, so that nothing runs twice."""
