"""What a machine is watched with: its sensors and energy counters, looked for once, and what it takes when idle."""

from dataclasses import dataclass, field
from pathlib import Path

from worker.conditions.energy import Idle, measure_idle
from worker.conditions.rapl import Rapl
from worker.conditions.sensors import Sensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Meters:
    """The meters of the machine at `sensors.root`."""

    sensors: Sensors
    rapl: Rapl
    idle: Idle = field(default_factory=Idle)

    @classmethod
    def find(cls, root: Path = Path("/")) -> "Meters":
        """Return what there is; to be called while nothing measures.

        Takes milliseconds, and half a second more where energy is counted: it sleeps to see what idling takes.
        """
        rapl = Rapl.find(root)
        return cls(sensors=Sensors.find(root), rapl=rapl, idle=measure_idle(rapl))
