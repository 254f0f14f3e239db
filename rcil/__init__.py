"""Continual semantic segmentation with representation compensation (RCIL, CVPR 2022).

Importing `rcil` imports nothing heavy: torch is loaded by the modules that need it.
"""

__version__ = "0.1.0"
