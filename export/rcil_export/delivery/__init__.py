"""A delivered model: its files, the model card and the signature."""

from rcil.core.signing import FAILED_REPORTS, SIGNATURE_NAME

ONNX_NAME, ENGINE_NAME, SIDECAR_NAME = "model.onnx", "model.engine", "model.engine.json"
JSON_NAME, HTML_NAME, CARD_NAME = "report.json", "report.html", "model_card.md"
FAILED_JSON_NAME, FAILED_HTML_NAME = FAILED_REPORTS
"""Reports of an export that failed its checks; a model beside them is that of an earlier export."""
DELIVERED = (ONNX_NAME, ENGINE_NAME, SIDECAR_NAME, JSON_NAME, HTML_NAME, CARD_NAME, SIGNATURE_NAME)
"""Files that make up a delivery; statements of earlier steps, `stepN.sig`, come on top."""
