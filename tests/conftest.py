"""One thread per test process: the suite runs two processes on two cores."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch reads it; ONNX Runtime's sessions and child processes follow it too

import torch

torch.set_num_threads(1)
