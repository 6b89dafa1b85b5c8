"""Replays what GPUs tell of one moment, through NVML and in files; there was no GPU here."""

from pathlib import Path
from typing import Any

import pytest

from tests.recorded_nvml import NOT_SUPPORTED, RecordedNvml, Refused, running
from tests.trees import write
from worker import gpu_sensors
from worker.fingerprint.evidence import Notes
from worker.fingerprint.nvml import Nvml
from worker.gpu_sensors import AmdSensor, Counters, IntelSensor, Look, NvmlSensor

GIB = 1 << 30


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ()),
        (0x1, ("idle",)),
        (0x4, ("software power cap",)),
        (0x8 | 0x40, ("hardware slowdown", "hardware thermal slowdown")),
        (0x20, ("software thermal slowdown",)),
        (0x80, ("hardware power brake",)),
        (0x400, ("reliability",)),
        (0x8000, ("reason 0x8000",)),
    ],
)
def test_reasons_are_words(bits: int, words: tuple[str, ...]) -> None:
    assert gpu_sensors.in_words(bits) == words


def test_hostile_names_of_processes_are_made_plain(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/6000/comm": "\x1b[31m" + "x" * 500})

    assert gpu_sensors.process_name(root, 6000) == "[31m" + "x" * 20 + " (6000)"


def sensor_of(nvml: RecordedNvml) -> NvmlSensor:
    return NvmlSensor(Nvml(nvml, Notes()), nvml.devices[0], 0)


def test_a_look_through_nvml_as_replayed() -> None:
    sensor = sensor_of(running())

    assert sensor.look() == Look(
        core_clock_hz=1_590_000_000,
        memory_clock_hz=5_000_000_000,
        power_watts=67.5,
        temperature_c=71,
        memory_used_bytes=2 * GIB,
        reasons=("software power cap",),
    )
    assert (sensor.name, sensor.bus_id) == ("Tesla T4", "0000:00:1e.0")


def test_counters_through_nvml_as_replayed_leave_desktops_out() -> None:
    assert sensor_of(running()).counters() == Counters(
        energy_joules=123.456,
        violation_ns={"power": 0, "thermal": 10, "board limit": 30, "reliability": 50},
        performance_state="P0",
        pids=(11, 13),
    )


def test_before_driver_535_the_reasons_have_another_name() -> None:
    nvml = running(DeviceGetCurrentClocksEventReasons=None, DeviceGetCurrentClocksThrottleReasons=0x40)

    assert sensor_of(nvml).look().reasons == ("hardware thermal slowdown",)


def test_what_a_gpu_does_not_support_is_asked_once() -> None:
    nvml = running(DeviceGetPowerUsage=None)
    sensor = sensor_of(nvml)

    assert [sensor.look().power_watts for _ in range(3)] == [None, None, None]
    assert nvml.calls.count("DeviceGetPowerUsage") == 1


def test_a_library_that_refuses_to_start_means_no_sensors() -> None:
    class Missing(RecordedNvml):
        def _answer(self, name: str, *arguments: Any) -> Any:
            raise Refused(NOT_SUPPORTED)

    sensors, close = gpu_sensors.of_nvml(Missing())
    close()

    assert sensors == []


AMD = {
    "vendor": "0x1002\n",
    "device": "0x744c\n",
    "uevent": "PCI_SLOT_NAME=0000:03:00.0\n",
    "product_name": "AMD Instinct MI210\n",
    "mem_info_vram_total": f"{64 * GIB}\n",
    "mem_info_vram_used": f"{4 * GIB}\n",
    "gpu_busy_percent": "97\n",
    "pp_dpm_sclk": "0: 500Mhz\n1: 1700Mhz *\n",
    "pp_dpm_mclk": "0: 400Mhz\n1: 1600Mhz *\n",
    "power_dpm_force_performance_level": "auto\n",
    "hwmon/hwmon2/power1_average": "250000000\n",
    "hwmon/hwmon2/temp1_input": "61000\n",
    "hwmon/hwmon2/temp2_input": "78000\n",
}


def test_a_card_of_amd_is_looked_at_by_its_files(tmp_path: Path) -> None:
    device = write(tmp_path / "sys/class/drm/card0/device", AMD)
    write(tmp_path, {"sys/class/kfd/kfd/proc/11/pasid": "1\n", "sys/class/kfd/kfd/proc/12/pasid": "2\n"})
    sensor = AmdSensor(device, 0, tmp_path)

    assert sensor.look() == Look(
        core_clock_hz=1_700_000_000,
        memory_clock_hz=1_600_000_000,
        power_watts=250.0,
        temperature_c=78.0,
        memory_used_bytes=4 * GIB,
    )
    assert sensor.counters() == Counters(performance_state="auto", pids=(11, 12))
    assert (sensor.name, sensor.bus_id) == ("AMD Instinct MI210", "0000:03:00.0")
    assert [type(one) for one in gpu_sensors.of_files(tmp_path)] == [AmdSensor]


def test_a_card_that_sleeps_is_not_woken(tmp_path: Path) -> None:
    device = write(tmp_path / "device", AMD | {"power/runtime_status": "suspended\n"})

    assert AmdSensor(device, 0, tmp_path).look() == Look(reasons=("idle",))


def test_a_card_of_intel_is_looked_at_by_its_files(tmp_path: Path) -> None:
    files = {
        "device/vendor": "0x8086\n",
        "device/device": "0xe20b\n",
        "device/uevent": "DRIVER=xe\nPCI_SLOT_NAME=0000:03:00.0\n",
        "device/tile0/gt0/freq0/act_freq": "2850\n",
        "device/tile0/gt0/freq0/throttle/reason_thermal": "1\n",
        "device/tile0/gt0/freq0/throttle/reason_pl1": "0\n",
        "device/hwmon/hwmon4/energy1_input": "5000000\n",
        "device/hwmon/hwmon4/temp2_input": "66000\n",
    }
    card = write(tmp_path / "sys/class/drm/card1", files)
    sensor = IntelSensor(card, 0)

    assert sensor.look() == Look(
        core_clock_hz=2_850_000_000, temperature_c=66.0, reasons=("hardware thermal slowdown",)
    )
    assert sensor.counters().energy_joules == 5.0
    assert sensor.name == "Intel Arc B580"
    assert [type(one) for one in gpu_sensors.of_files(tmp_path)] == [IntelSensor]
