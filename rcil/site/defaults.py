"""Defaults of `rcil add-class`, shared by the command, the request and `rcil.add_class`. Nothing is imported here."""

METHOD = "rcil-plus"
EPOCHS = 30
LR = 0.001
BATCH = 8
CROP = 512
WORKERS = 2
SCALE = 1.0
MAX_DROP = 5.0
SEED = 0
