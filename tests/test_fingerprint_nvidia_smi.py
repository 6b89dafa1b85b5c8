"""Replays texts in the forms of nvidia-smi; the collected captures are read too where they are at hand."""

import pytest

from tests.shared import CASES, needs_cases
from worker.fingerprint.gpu import Gpus, read_capture

GIB = 1 << 30

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>535.54.03</driver_version>
  <cuda_version>12.2</cuda_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:00:1E.0">
    <product_name>Tesla T4</product_name>
    <persistence_mode>Disabled</persistence_mode>
    <mig_mode><current_mig>N/A</current_mig></mig_mode>
    <mig_devices>None</mig_devices>
    <uuid>GPU-00000000-1111-2222-3333-444444444444</uuid>
    <pci>
      <pci_device_id>1EB810DE</pci_device_id>
      <pci_bus_id>00000000:00:1E.0</pci_bus_id>
      <pci_gpu_link_info>
        <pcie_gen><max_link_gen>3</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
        <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
      </pci_gpu_link_info>
    </pci>
    <fb_memory_usage><total>15360 MiB</total><used>1032 MiB</used></fb_memory_usage>
    <bar1_memory_usage><total>256 MiB</total></bar1_memory_usage>
    <ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
    <power_readings><enforced_power_limit>70.00 W</enforced_power_limit></power_readings>
    <clocks><mem_clock>405 MHz</mem_clock></clocks>
    <max_clocks><mem_clock>5001 MHz</mem_clock></max_clocks>
    <processes><process_info><pid>1</pid></process_info></processes>
  </gpu>
</nvidia_smi_log>
"""

SLICE = """<mig_device><index>{index}</index>
  <device_attributes><shared><multiprocessor_count>{cores}</multiprocessor_count></shared></device_attributes>
  <fb_memory_usage><total>{mib} MiB</total></fb_memory_usage></mig_device>"""

IN_SLICES = (
    XML.replace("Tesla T4", "NVIDIA A100-SXM4-80GB")
    .replace("<current_mig>N/A", "<current_mig>Enabled")
    .replace(
        "<mig_devices>None",
        "<mig_devices>" + SLICE.format(index=0, cores=14, mib=9728) + SLICE.format(index=1, cores=42, mib=40192),
    )
)

QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Mon Apr 24 16:22:39 2023
Driver Version                            : 515.105.01
CUDA Version                              : 11.7

Attached GPUs                             : 2
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        Device Attributes
            Shared
                Multiprocessor count      : 14
                Copy Engine count         : 1
        FB Memory Usage
            Total                         : 4864 MiB
            Used                          : 3 MiB
    GPU UUID                              : GPU-55555555-6666-7777-8888-999999999999
    PCI
        Device Id                         : 0x20B010DE
        Bus Id                            : 00000000:07:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 16x
    FB Memory Usage
        Total                             : 40960 MiB
    Ecc Mode
        Current                           : Enabled
    Power Readings
        Enforced Power Limit              : 400.00 W
    Clocks
        Memory                            : 1215 MHz
    Max Clocks
        Memory                            : 1215 MHz
GPU 00000000:3C:00.0
    Product Name                          : NVIDIA GeForce GTX 1060 6GB
    MIG Mode
        Current                           : N/A
    GPU UUID                              : GPU-77777777-6666-7777-8888-999999999999
    PCI
        Device Id                         : 0x1C0310DE
    FB Memory Usage
        Total                             : 6144 MiB
    Max Clocks
        Memory                            : 4004 MHz
"""

LIST = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-55555555-6666-7777-8888-999999999999)
  MIG 3g.20gb     Device  0: (UUID: MIG-aaaaaaaa-0000-0000-0000-000000000001)
  MIG 1g.5gb      Device  1: (UUID: MIG-aaaaaaaa-0000-0000-0000-000000000002)
GPU 1: Tesla T4 (UUID: GPU-00000000-1111-2222-3333-444444444444)
"""

TABLE = """
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.161.08             Driver Version: 535.161.08   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
|=========================================+======================+======================|
|   0  NVIDIA GeForce RTX 3090        On  | 00000000:09:00.0  On |                  N/A |
|  0%   32C    P8              35W / 350W |      7MiB / 24576MiB |      0%      Default |
+-----------------------------------------+----------------------+----------------------+
"""


def test_xml_tells_the_gpu_and_the_greatest_link_not_the_present_one() -> None:
    told = read_capture(XML)
    (gpu,) = told.gpus

    assert (told.status, told.driver, told.runtime) == ("present", "nvidia 535.54.03", "CUDA 12.2")
    assert (gpu.name, gpu.pci_id, gpu.vram_bytes) == ("Tesla T4", "10de:1eb8", 15 * GIB)
    assert (gpu.pcie_max, gpu.max_memory_clock_hz) == ("gen3 x16", 5_001_000_000)
    assert told.uuids == ("GPU-00000000-1111-2222-3333-444444444444",)
    assert told.settings == ("Tesla T4: power limit 70 W, ECC on, persistence off",)


def test_xml_without_a_bus_width_gives_no_bandwidth() -> None:
    assert read_capture(XML).gpus[0].theoretical_bandwidth_bytes_per_second is None


def test_a_card_in_slices_is_its_slices_in_xml() -> None:
    small, large = sorted(read_capture(IN_SLICES).gpus, key=lambda gpu: gpu.vram_bytes or 0)

    assert (small.mig_profile, small.vram_bytes) == ("1g.10gb", 10 * GIB)
    assert (large.mig_profile, large.vram_bytes) == ("3g.40gb", 40 * GIB)
    assert large.name == "NVIDIA A100-SXM4-80GB MIG 3g.40gb"


def test_the_query_in_words_tells_the_same_facts() -> None:
    told = read_capture(QUERY)
    part, card = told.gpus

    assert (told.driver, told.runtime) == ("nvidia 515.105.01", "CUDA 11.7")
    assert (part.name, part.mig_profile, part.vram_bytes) == ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "1g.5gb", 5 * GIB)
    assert (part.pci_id, part.pcie_max) == ("10de:20b0", "gen4 x16")
    assert (card.name, card.vram_bytes, card.max_memory_clock_hz) == (
        "NVIDIA GeForce GTX 1060 6GB",
        6 * GIB,
        4_004_000_000,
    )


def test_the_list_tells_names_slices_and_uuids() -> None:
    told = read_capture(LIST)

    assert [gpu.name for gpu in told.gpus] == [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "Tesla T4",
    ]
    assert len(told.uuids) == 3


def test_the_table_tells_name_and_memory() -> None:
    told = read_capture(TABLE)
    (gpu,) = told.gpus

    assert (gpu.name, gpu.vram_bytes, told.driver) == ("NVIDIA GeForce RTX 3090", 24 * GIB, "nvidia 535.161.08")


@pytest.mark.parametrize(
    ("header", "cuda"),
    [
        ("| NVIDIA-SMI 610.47      Driver Version: 610.47      CUDA UMD Version: 13.3     |", "CUDA 13.3"),
        ("| NVIDIA-SMI 535.161.08  Driver Version: 535.161.08  CUDA Version: 12.2 |", "CUDA 12.2"),
        ("| NVIDIA-SMI 470.10      Driver Version: 470.10      CUDA Version: N/A |", None),
        ("| NVIDIA-SMI 470.10      Driver Version: 470.10      CUDA Version: ERR! |", None),
    ],
)
def test_the_runtimes_version_is_read_under_its_old_and_its_new_label(header: str, cuda: str | None) -> None:
    assert read_capture(header).runtime == cuda
    assert str(read_capture(header).driver).startswith("nvidia ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\xff",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch",
        XML[:700],
        XML.replace("<gpu ", "<!ENTITY a 'b'><gpu "),
        "<nvidia_smi_log>" + "<a>" * 3000 + "</a>" * 3000 + "</nvidia_smi_log>",
        "<nvidia_smi_log></nvidia_smi_log>",
        "[" * 20_000,
        "{" * 20_000,
        "==============NVSMI LOG==============\nGPU 00000000:07:00.0",
        "GPU 0: ",
    ],
)
def test_what_is_no_capture_or_cut_short_is_unknown_and_no_error(text: str) -> None:
    told = read_capture(text)

    assert told.status in ("unknown", "present")
    assert all(gpu.name for gpu in told.gpus)


def test_a_gpu_whose_every_fact_is_refused_still_counts() -> None:
    text = XML.replace("Tesla T4", "[Unknown Error]").replace("15360 MiB", "N/A").replace("5001 MHz", "[N/A]")
    text = text.replace("1EB810DE", "ERR!").replace("<max_link_gen>3", "<max_link_gen>Requested functionality is gone")
    (gpu,) = read_capture(text).gpus

    assert (gpu.vram_bytes, gpu.max_memory_clock_hz, gpu.pci_id, gpu.pcie_max) == (None, None, None, None)


@needs_cases
def test_both_collected_headers_tell_the_runtime() -> None:
    headers = [read_capture((CASES / "G8" / f"smi_header_{age}.txt").read_text()) for age in ("old", "new")]

    assert [told.runtime for told in headers] == ["CUDA 12.2", "CUDA 13.3"]
    assert Gpus() not in headers
