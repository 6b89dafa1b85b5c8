"""One host as a driver knows it."""

from dataclasses import dataclass, field

from schema.job import Group


@dataclass(slots=True)
class Place:
    """A host by its label. `uid` is its host_uid once it has answered.

    `node_id` is Ray's name of it now. `is_here`: it has answered and its journals are taken over;
    `is_asked`: an answer is on its way. It is asked again at `ask_at`, having refused `n_refusals` times. `group` is
    what it measures, `begun` which of its jobs have begun (by uid), `given_up` the groups that may still run there
    unheard.
    """

    label: str
    name: str = ""
    uid: str | None = None
    node_id: str | None = None
    is_here: bool = False
    is_asked: bool = False
    n_refusals: int = 0
    ask_at: float = 0.0
    why: str = ""
    group: Group | None = None
    begun: set[str] = field(default_factory=set)
    given_up: list[str] = field(default_factory=list)
