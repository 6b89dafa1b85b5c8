"""A sweep's model files on all hosts: found by content where they lie elsewhere, fetched where that is allowed.

Comes between what hosts answer and the plan: it puts into their answers, as `orchestrator.on_host.describe` makes them,
the files that they can load after all, and better reasons where they cannot.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orchestrator.distribute import Distribution, Fetch, Reading, distribute, fetched_ref, readings
from schema.canonical import decode
from schema.errors import ModelError, TokfleetError
from schema.job import ModelRef
from schema.sweep import Sweep
from worker import model_questions
from worker.model_search import Content, Part

Answers = dict[str, Any]
"""What each host answers, by label; a TokfleetError where it does not."""

ASK_SECONDS = 120.0
READ_SECONDS = 6 * 3600.0
MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


class Ask(Protocol):
    """Asks hosts a function of ours; see `orchestrator.dispatch.ask`."""

    def __call__(
        self, hosts: Iterable[str], question: Callable[..., Any], *arguments: Any, seconds: float
    ) -> dict[str, Any]:
        """Return by host what the function returned there, or a TokfleetError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlaces:
    """How hosts are asked and sent models. `folders` are those of each host's lab entry; `fetch` does one transfer.

    `fetch` returns the path of the file on the host that lacked it; None where nothing may be fetched. `may_read`:
    files that several hosts see are read whole, once, so that each host need not; a plan alone does not. Nothing can be
    sent to or from hosts that are `apart`.
    `tell` hears what is going on.
    """

    ask: Ask
    folders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fetch: Callable[[Fetch], str] | None = None
    may_read: bool = False
    apart: frozenset[str] = frozenset()
    tell: Callable[[str], None] = lambda _: None

    def __call__(self, sweep: Sweep, answers: Answers) -> Answers:
        """Return `answers` with the models that were found or fetched; those of silent hosts as they are."""
        told = {label: answer for label, answer in answers.items() if _models(answer) is not None}
        for entry in sweep.models:
            if entry.source == "hf" and self.fetch is not None:
                _offer_hub(entry.spec, told)
            elif entry.source == "path" and (self._is_open(entry.spec, told) or not _all_hashed(entry.spec, told)):
                self._settle(entry.spec, told)
        return answers

    def _is_open(self, spec: str, told: Answers) -> bool:
        return any(isinstance(_models(answer).get(spec), str) for answer in told.values())

    def _settle(self, spec: str, told: Answers) -> None:
        having = [label for label, answer in told.items() if isinstance(_models(answer).get(spec), dict)]
        found = self._contents(having, model_questions.content, spec)
        wanted = _own(spec) or next((content for content in found.values() if content is not None), None)
        if wanted is None:
            return
        for folders, labels in self._by_folders(label for label in told if found.get(label) is None).items():
            found |= self._contents(labels, model_questions.look_for, _plain(wanted), folders)
        if self.may_read:
            found, wanted = self._read(found, wanted)
        planned = distribute(spec, wanted, found, allowed=self.fetch is not None, apart=self.apart)
        refs = {**planned.refs, **self._fetched(planned)}
        for label, answer in told.items():
            if label in refs and refs[label].identity != _identity(answer, spec):
                _models(answer)[spec] = self._described(label, refs[label])
            elif label in planned.absent and isinstance(_models(answer).get(spec), str):
                _models(answer)[spec] = planned.absent[label]

    def _contents(self, labels: Iterable[str], question: Callable[..., Any], *words: Any) -> dict[str, Content | None]:
        answers = self.ask(labels, question, *words, seconds=ASK_SECONDS)
        return {label: _content(answer) for label, answer in answers.items()}

    def _by_folders(self, labels: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
        found: dict[tuple[str, ...], list[str]] = {}
        for label in labels:
            found.setdefault(self.folders.get(label, ()), []).append(label)
        return found

    def _read(self, found: dict[str, Content | None], wanted: Content) -> tuple[dict[str, Content | None], Content]:
        """Have each file that several hosts see read by one of them, and return what is known then."""
        for task in (task for task in readings(found) if task.others):
            known = self._read_once(task)
            if known is None:
                continue
            found[task.host] = known
            for host, path in task.others.items():
                taken = self.ask([host], model_questions.take_over, path, _plain(known), seconds=ASK_SECONDS)
                if taken[host] is True:
                    found[host] = Content(path=path, parts=known.parts)
            if wanted.places is not None and wanted.places == known.places:
                wanted = Content(path=wanted.path, parts=known.parts)
        return found, wanted

    def _read_once(self, task: Reading) -> Content | None:
        self.tell(f"{task.host} reads {task.path} whole, for all hosts that see it")
        answer = self.ask([task.host], model_questions.read_whole, task.path, seconds=READ_SECONDS)
        return _content(answer[task.host])

    def _fetched(self, planned: Distribution) -> dict[str, ModelRef]:
        """Fetch what is to be fetched; a host on which that fails goes without, with the reason."""
        refs = {}
        for each in planned.fetches:
            if each.source is None or self.fetch is None:
                continue
            self.tell(f"{each.to} fetches {Path(each.source.content.path).name} from {each.source.host}")
            try:
                refs[each.to] = fetched_ref(each.source.content, self.fetch(each))
            except TokfleetError as error:
                planned.absent[each.to] = str(error)
        return refs

    def _described(self, label: str, ref: ModelRef) -> Any:
        answer = self.ask([label], model_questions.as_described, ref.spec, ref.identity, seconds=ASK_SECONDS)[label]
        return str(answer) if isinstance(answer, TokfleetError) else answer


def _offer_hub(spec: str, told: Answers) -> None:
    """Let hosts that lack a model of the hub load it as one that has it does: they fetch it when they do."""
    having = [found for answer in told.values() if isinstance(found := _models(answer).get(spec), dict)]
    for answer in told.values():
        if having and isinstance(_models(answer).get(spec), str):
            _models(answer)[spec] = having[0]


def _models(answer: Any) -> Any:
    """Return the models in a host's answer; None where that is an error or nonsense."""
    models = answer.get("models") if isinstance(answer, dict) else None
    return models if isinstance(models, dict) else None


def _all_hashed(spec: str, told: Answers) -> bool:
    """Return whether the content of the model is known wherever it is."""
    known = [_identity(answer, spec) for answer in told.values()]
    return all(identity.startswith("sha256:") for identity in known if identity)


def _identity(answer: Any, spec: str) -> str:
    found = _models(answer).get(spec)
    ref = found.get("ref") if isinstance(found, dict) else None
    return str(ref.get("identity", "")) if isinstance(ref, dict) else ""


def _own(spec: str) -> Content | None:
    """Return the file as the driver's own machine has it, which is the one that the sweep means; None without one."""
    return _content(model_questions.content(spec))


def _content(answer: Any) -> Content | None:
    if not isinstance(answer, dict):
        return None
    try:
        found = decode(Content, answer)
        sound = found.parts and all(_is_sound(part) for part in found.parts)
    except (*MALFORMED, ModelError):
        return None
    return found if sound else None


def _is_sound(part: Part) -> bool:
    texts = (part.name, part.quick, part.sha256 or "", part.place or "")
    return all(isinstance(text, str) and len(text) <= 255 for text in texts) and 0 <= part.file_bytes < 1 << 62


def _plain(content: Content) -> dict[str, Any]:
    return asdict(content)
