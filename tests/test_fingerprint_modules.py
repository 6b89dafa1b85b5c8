from pathlib import Path

import pytest

from schema.host import MemoryModules
from tests.trees import write
from worker.fingerprint import modules, smbios
from worker.fingerprint.evidence import Notes

GIB = 1 << 30

UDEV = """\
E: DEVPATH=/devices/virtual/dmi/id
E: MEMORY_ARRAY_NUM_DEVICES=4
E: MEMORY_DEVICE_0_PRESENT=0
E: MEMORY_DEVICE_0_LOCATOR=DIMM 0
E: MEMORY_DEVICE_0_BANK_LOCATOR=P0 CHANNEL A
E: MEMORY_DEVICE_1_SIZE=17179869184
E: MEMORY_DEVICE_1_DATA_WIDTH=64
E: MEMORY_DEVICE_1_LOCATOR=DIMM 1
E: MEMORY_DEVICE_1_BANK_LOCATOR=P0 CHANNEL A
E: MEMORY_DEVICE_1_TYPE=DDR5
E: MEMORY_DEVICE_1_SPEED_MTS=5600
E: MEMORY_DEVICE_1_CONFIGURED_SPEED_MTS=5200
E: MEMORY_DEVICE_2_PRESENT=0
E: MEMORY_DEVICE_3_SIZE=17179869184
E: MEMORY_DEVICE_3_DATA_WIDTH=64
E: MEMORY_DEVICE_3_LOCATOR=DIMM 1
E: MEMORY_DEVICE_3_BANK_LOCATOR=P0 CHANNEL B
E: MEMORY_DEVICE_3_TYPE=DDR5
E: MEMORY_DEVICE_3_SPEED_MTS=5600
E: MEMORY_DEVICE_3_CONFIGURED_SPEED_MTS=5200
"""
TWO_DDR5 = MemoryModules(
    source="udev",
    kind="DDR5",
    n_modules=2,
    n_slots=4,
    module_bytes=(16 * GIB, 16 * GIB),
    configured_mts=5200,
    n_channels=2,
    bus_bits=128,
)
DMIDECODE = """\
# dmidecode 3.3
Handle 0x0011, DMI type 16, 23 bytes
Physical Memory Array
\tMaximum Capacity: 64 GB

Handle 0x0012, DMI type 17, 40 bytes
Memory Device
\tArray Handle: 0x0011
\tTotal Width: 72 bits
\tData Width: 64 bits
\tSize: 8192 MB
\tLocator: ChannelA-DIMM0
\tBank Locator: BANK 0
\tType: DDR3
\tSpeed: 1600 MT/s
\tConfigured Clock Speed: 1333 MHz

Handle 0x0013, DMI type 17, 40 bytes
Memory Device
\tData Width: Unknown
\tSize: No Module Installed
\tLocator: ChannelA-DIMM1
\tType: Unknown

Handle 0x0014, DMI type 17, 40 bytes
Memory Device
\tData Width: 64 bits
\tSize: 8 GB
\tLocator: ChannelB-DIMM0
\tBank Locator: BANK 2
\tType: DDR3
\tConfigured Memory Speed: 1333 MT/s

Handle 0x0015, DMI type 17, 40 bytes
Memory Device
\tSize: 16384 kB
\tLocator: SYSTEM ROM
\tType: Flash
"""


def read(root: Path, is_virtual: bool = False) -> MemoryModules | None:
    return modules.read(root, Notes(), is_virtual)


def smbios_device(
    megabytes: int = 16384, speed: int = 3200, kind: int = 0x1A, locator: str = "DIMM 0", bank: str = "P0 CHANNEL A"
) -> bytes:
    """Return a structure of type 17, version 3.3, with its texts."""
    body = bytearray(0x5C)
    body[0:4] = 17, len(body), 0x20, 0
    body[0x0A:0x0C] = (64).to_bytes(2, "little")
    size = megabytes if megabytes < 0x7FFF else 0x7FFF
    body[0x0C:0x0E] = size.to_bytes(2, "little")
    body[0x10], body[0x11], body[0x12] = 1, 2, kind
    body[0x1C:0x20] = megabytes.to_bytes(4, "little")
    short = speed if speed < 0xFFFF else 0xFFFF
    body[0x20:0x22] = short.to_bytes(2, "little")
    body[0x58:0x5C] = speed.to_bytes(4, "little")
    return bytes(body) + locator.encode() + b"\0" + bank.encode() + b"\0\0"


def test_what_udev_wrote_down_is_read_without_root(tmp_path: Path) -> None:
    root = write(tmp_path, {"run/udev/data/+dmi:id": UDEV.replace("E: ", "E:")})

    assert read(root) == TWO_DDR5
    assert TWO_DDR5.theoretical_bandwidth_bytes_per_second == 83_200_000_000


def test_the_output_of_udevadm_is_understood_too() -> None:
    both = [modules.from_udev(text) for text in (UDEV, UDEV.replace("E: ", ""))]

    assert both[0] == both[1]
    assert modules.modules("udev", both[0]) == TWO_DDR5


def test_modules_whose_channel_is_not_named_give_no_bandwidth() -> None:
    sockets = UDEV.replace("P0 CHANNEL A", "BANK 0").replace("P0 CHANNEL B", "BANK 1").replace("DIMM 1", "DIMM_A1")
    found = modules.modules("udev", modules.from_udev(sockets))

    assert found
    assert (found.n_modules, found.n_channels, found.bus_bits) == (2, None, None)
    assert found.theoretical_bandwidth_bytes_per_second is None


def test_two_modules_in_one_channel_are_not_twice_as_fast() -> None:
    found = modules.modules("udev", modules.from_udev(UDEV.replace("CHANNEL B", "CHANNEL A")))

    assert found
    assert (found.n_modules, found.n_channels, found.bus_bits) == (2, 1, 64)


def test_channels_of_two_processors_are_told_apart_by_the_other_text() -> None:
    devices = [
        {"SIZE": str(GIB), "LOCATOR": f"CPU{cpu}_DIMM", "BANK_LOCATOR": f"Channel {channel}", "TYPE": "DDR4"}
        for cpu in (0, 1)
        for channel in "ABCD"
    ]
    found = modules.modules("udev", devices)

    assert found
    assert found.n_channels == 8


def test_more_modules_than_a_channel_takes_mean_that_its_name_is_no_channels() -> None:
    devices = [{"SIZE": str(GIB), "BANK_LOCATOR": "Channel 0", "LOCATOR": f"DIMM {n}"} for n in range(4)]
    found = modules.modules("udev", devices)

    assert found
    assert found.n_channels is None


@pytest.mark.parametrize("kind", ["<OUT OF SPEC>", "Unknown", "DRAM", "RAM", ""])
def test_a_type_that_says_nothing_is_none(kind: str) -> None:
    found = modules.modules("udev", modules.from_udev(UDEV.replace("DDR5", kind)))

    assert found
    assert (found.kind, found.n_modules) == (None, 2)


def test_the_slowest_module_sets_the_speed_and_one_that_is_silent_leaves_it_unknown() -> None:
    slower = UDEV.replace("MEMORY_DEVICE_3_CONFIGURED_SPEED_MTS=5200", "MEMORY_DEVICE_3_CONFIGURED_SPEED_MTS=4800")
    silent = UDEV.replace("MEMORY_DEVICE_3_CONFIGURED_SPEED_MTS=5200", "")
    found = [modules.modules("udev", modules.from_udev(text)) for text in (slower, silent)]

    assert [one and one.configured_mts for one in found] == [4800, None]


def test_what_a_hypervisor_makes_up_has_no_channels(tmp_path: Path) -> None:
    found = read(write(tmp_path, {"run/udev/data/+dmi:id": UDEV}), is_virtual=True)

    assert found
    assert (found.n_modules, found.n_channels) == (2, None)


def test_dmidecode_is_understood_and_its_flash_is_no_memory() -> None:
    found = modules.modules("dmidecode", modules.from_dmidecode(DMIDECODE))

    assert found == MemoryModules(
        source="dmidecode",
        kind="DDR3",
        n_modules=2,
        n_slots=3,
        module_bytes=(8 * GIB, 8 * GIB),
        configured_mts=1333,
        n_channels=2,
        bus_bits=128,
    )
    assert found.theoretical_bandwidth_bytes_per_second == 1333 * 16 * 10**6


def test_what_vmware_makes_up_is_neither_a_type_nor_a_speed() -> None:
    slot = "Handle 0x01A3, DMI type 17, 34 bytes\nMemory Device\n\tData Width: 32 bits\n\tSize: 4096 MB\n"
    slot += "\tLocator: RAM slot #0\n\tType: DRAM\n\tSpeed: Unknown\n\tConfigured Memory Speed: Unknown\n"
    found = modules.modules(
        "dmidecode", modules.from_dmidecode(slot + "\n" + slot.replace("4096 MB", "No Module Installed"))
    )

    assert found == MemoryModules(source="dmidecode", n_modules=1, n_slots=2, module_bytes=(4 * GIB,))


def test_raw_entries_of_the_firmware_are_read_where_root_lets_us(tmp_path: Path) -> None:
    for number, bank in enumerate(("P0 CHANNEL A", "P0 CHANNEL B")):
        place = tmp_path / f"sys/firmware/dmi/entries/17-{number}"
        place.mkdir(parents=True)
        (place / "raw").write_bytes(smbios_device(megabytes=65536, bank=bank))
    found = read(tmp_path)

    assert found
    assert (found.source, found.kind, found.module_bytes) == ("firmware tables", "DDR4", (64 * GIB, 64 * GIB))
    assert (found.configured_mts, found.n_channels) == (3200, 2)


def test_the_whole_table_is_read_where_there_are_no_entries(tmp_path: Path) -> None:
    place = tmp_path / "sys/firmware/dmi/tables"
    place.mkdir(parents=True)
    other = b"\x04\x06\x00\x00\x01\x02CPU 0\0Maker\0\0"
    empty = smbios_device(megabytes=0, locator="DIMM 1")
    (place / "DMI").write_bytes(other + smbios_device(speed=70_000, kind=0x22) + empty + b"\x7f\x04\x00\x00\0\0")
    found = read(tmp_path)

    assert found
    assert (found.n_modules, found.n_slots, found.kind, found.configured_mts) == (1, 2, "DDR5", 70_000)


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_table_that_is_cut_short_ends_the_reading(cut: int) -> None:
    assert len(list(smbios.memory_devices(smbios_device()[:cut]))) <= 1


def test_a_structure_shorter_than_its_own_head_ends_the_reading() -> None:
    assert list(smbios.memory_devices(b"\x11\x02\0\0\0\0")) == []


def test_memory_controllers_tell_type_and_channels_but_no_speed(tmp_path: Path) -> None:
    place = "sys/devices/system/edac/mc/mc0/dimm"
    files = {
        f"{place}{n}/{name}": value
        for n in (0, 1)
        for name, value in (
            ("size", "16384\n"),
            ("dimm_mem_type", "Registered-DDR4\n"),
            ("dimm_location", f"channel {n} slot 0 \n"),
        )
    }
    found = read(write(tmp_path, files))

    assert found
    assert (found.source, found.kind, found.n_modules, found.n_channels) == ("EDAC", "DDR4", 2, 2)
    assert found.theoretical_bandwidth_bytes_per_second is None


def test_ranks_of_a_memory_controller_are_not_counted_as_modules(tmp_path: Path) -> None:
    place = "sys/devices/system/edac/mc/mc0/dimm0"
    root = write(tmp_path, {f"{place}/size": "8192\n", f"{place}/dimm_location": "csrow 0 channel 1 \n"})
    found = read(root)

    assert found
    assert found.n_modules is None


def test_a_machine_that_describes_no_modules_says_why(tmp_path: Path) -> None:
    notes = Notes()

    assert modules.read(tmp_path, notes) is None
    assert notes.errors[0].startswith("memory_modules: udev wrote nothing")
