"""The tables of docs/results: every cell a run, kept in a folder named by what it does, so that nothing runs twice."""
