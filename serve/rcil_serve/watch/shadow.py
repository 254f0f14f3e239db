"""Tests a new step on the same frames as the current one, and promotes it when it agrees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError, RunError
from rcil.model.class_match import match_classes
from rcil_serve.runtime.backends import Mask
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Frame
from rcil_serve.stream.outputs.receipt import describe_model
from rcil_serve.stream.shutdown import brief_message
from rcil_serve.watch.events import Event, EventLog
from rcil_serve.watch.promotion import Promotion
from rcil_serve.watch.trial import Trial, TrialRule, Verdict


class Shadow:
    """Runs the new step and decides on its promotion. Its errors become events and have no other effect.

    Args:
        path: File of the new step.
        predictor: Predictor of the new step.
        current: Predictor of the current step.
        rule: Conditions for promotion.
        promotion: How the new step is promoted.
        log: Receives the events.
    """

    def __init__(
        self, path: Path, predictor: Predictor, current: Predictor, rule: TrialRule, promotion: Promotion, log: EventLog
    ) -> None:
        self.predictor = predictor
        self._promoter = ThreadPoolExecutor(1, "rcil-promote")
        self._promoter.submit(int)  # start it now: it inherits the priority, which is low in `compare`
        self._path, self._current, self._promotion, self._log = path, current, promotion, log
        self.trial = Trial(match_classes(current.classes, predictor.classes), rule)
        self.compared = 0
        """Compared frames in all rounds."""
        self.alive = True

    def compare(self, frame: Frame, current: Mask) -> bool:
        """Compare on a frame with the current step's mask [H, W]; return True if the new step was promoted."""
        if not self.alive:
            return False
        try:
            mask = self.predictor.segment(frame.picture).mask
            if int(mask.max()) >= len(self.predictor.classes):
                raise RunError(f"{self._path} outputs masks with unknown classes", "Export it again.")
        except Exception as error:  # a failing new step must not disturb the current one
            self.alive = False
            self.close()
            self.predictor.backend.close()
            self._log.add(shadow_failed(self._path, error, frame.time))
            return False
        self.compared += 1
        verdict = self.trial.add(current, mask)
        return verdict is not None and self._follow(verdict, frame.time)

    def _follow(self, verdict: Verdict, time: float) -> bool:
        facts: dict[str, Any] = {
            "model": describe_model(self.predictor.backend),
            "frames": verdict.frames,
            "agreement": {name: round(value, 6) for name, value in verdict.agreement.items()},
        }
        if not verdict.passed:
            text = f"not promoted after {verdict.frames} frames: {'; '.join(verdict.reasons)}"
            self._log.add(Event("refused", time, text, facts | {"reasons": list(verdict.reasons)}))
            return False
        try:
            # processes started by the command inherit the priority of this thread
            self._promoter.submit(self._promotion.apply, self._path, self.predictor.backend.sha256).result()
        except RcilError as error:
            text = f"promotion failed, the current model stays: {error.message}"
            self._log.add(Event("promotion_failed", time, text, facts | {"error": error.message}))
            return False
        self.alive = False
        self.close()
        replaced = describe_model(self._current.backend)
        lowest = min(verdict.agreement.values(), default=1.0)
        text = (
            f"promoted {self._path} (step {self.predictor.backend.metadata.step}) after {verdict.frames} frames; "
            f"old classes agree with an IoU of at least {lowest:.3f}"
        )
        self._log.add(Event("promoted", time, text, facts | {"replaced": replaced}))
        return True

    def close(self) -> None:
        """Stop the thread. The caller closes the model, unless it failed."""
        self._promoter.shutdown()


def shadow_failed(path: Path, error: Exception, time: float = 0.0) -> Event:
    """The event for a new step that cannot be tested."""
    why = brief_message(error)
    return Event("shadow_failed", time, f"{path} is not tested: {why}", {"model": str(path), "error": why})


def rejection_reason(current: Predictor, new: Predictor) -> str | None:
    """Why a new step can never replace the current one; None if it can."""
    if new.backend.sha256 == current.backend.sha256:
        return "it is the current model"
    if new.backend.metadata.rejected is not None:
        return f"a check after training rejected it: {new.backend.metadata.rejected}"
    gone = match_classes(current.classes, new.classes).gone
    return f"it does not know {', '.join(gone)}" if gone else None
