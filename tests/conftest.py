"""One thread per test process: the suite runs two processes on two cores."""

import torch

torch.set_num_threads(1)
