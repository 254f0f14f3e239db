"""A new step beside the current one: tried out on the same frames, promoted when it agrees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rcil.core.errors import RcilError, RunError
from rcil.model.class_match import match_classes
from rcil_serve.runtime.backends.protocol import Mask
from rcil_serve.runtime.predictor import Predictor
from rcil_serve.stream.frames import Frame
from rcil_serve.stream.outputs.receipt import describe_model
from rcil_serve.stream.shutdown import in_brief
from rcil_serve.watch.events import Event, EventLog
from rcil_serve.watch.promotion import Promotion
from rcil_serve.watch.trial import Trial, TrialRule, Verdict


class Shadow:
    """Runs the new step and decides; whatever goes wrong with it becomes an event and nothing more.

    Args:
        path: Of the new step.
        predictor: Runs it.
        current: The step whose place it may take.
        rule: What is asked of it.
        promotion: What happens then.
        log: Is told.
    """

    def __init__(
        self,
        path: Path,
        predictor: Predictor,
        current: Predictor,
        rule: TrialRule,
        promotion: Promotion,
        log: EventLog,
    ) -> None:
        self.predictor = predictor
        self._promoter = ThreadPoolExecutor(1, "rcil-promote")
        self._promoter.submit(int)  # threads have the priority of their maker, and `try_on` runs with a low one
        self._path, self._current, self._promotion, self._log = path, current, promotion, log
        self.trial = Trial(match_classes(current.classes, predictor.classes), rule)
        self.compared = 0
        """Frames in all rounds."""
        self.alive = True

    def try_on(self, frame: Frame, current: Mask) -> bool:
        """Compare on a frame that the current step sees as `current` [H, W]; True if the new step takes over."""
        if not self.alive:
            return False
        try:
            mask = self.predictor.segment(frame.pixels).mask
            if int(mask.max()) >= len(self.predictor.classes):
                raise RunError(f"{self._path} gives masks with classes it does not have", "Export it again.")
        except Exception as error:  # a new step that fails in any way must not disturb the current one
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
            # what the command starts goes on with the priority of the thread that started it
            self._promoter.submit(self._promotion.carry_out, self._path, self.predictor.backend.sha256).result()
        except RcilError as error:
            text = f"promotion failed, the current model stays: {error.message}"
            self._log.add(Event("promotion_failed", time, text, facts | {"error": error.message}))
            return False
        self.alive = False
        self.close()
        replaced = describe_model(self._current.backend)
        least = min(verdict.agreement.values(), default=1.0)
        text = (
            f"promoted {self._path} (step {self.predictor.backend.metadata.step}) after {verdict.frames} frames; "
            f"old classes agree by {least:.3f} at least"
        )
        self._log.add(Event("promoted", time, text, facts | {"replaced": replaced}))
        return True

    def close(self) -> None:
        """End its thread; the model is the caller's to close, unless it failed."""
        self._promoter.shutdown()


def shadow_failed(path: Path, error: Exception, time: float = 0.0) -> Event:
    """A new step that cannot be tried out."""
    why = in_brief(error)
    return Event("shadow_failed", time, f"{path} is not tried out: {why}", {"model": str(path), "error": why})


def unfit(current: Predictor, new: Predictor) -> str | None:
    """Why a new step can never take the place of the current one; None where it can."""
    if new.backend.sha256 == current.backend.sha256:
        return "it is the current model"
    if new.backend.metadata.rejected is not None:
        return f"a check after training rejected it: {new.backend.metadata.rejected}"
    gone = match_classes(current.classes, new.classes).gone
    return f"it does not know {', '.join(gone)}" if gone else None
