import json
from pathlib import Path

import pytest

from tests.trees import write
from worker.fingerprint import board, container
from worker.fingerprint.evidence import Notes
from worker.fingerprint.placeholders import is_placeholder

DMI = "sys/class/dmi/id"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
GUEST, HOST = {"proc/cpuinfo": "flags\t: fpu hypervisor lm\n"}, {"proc/cpuinfo": "flags\t: fpu lm\n"}


def dmi(**names: str) -> dict[str, str]:
    return {f"{DMI}/{name}": f"{value}\n" for name, value in names.items()}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (dmi(sys_vendor="Amazon EC2", product_name="c7g.large"), "Amazon EC2 c7g.large"),
        (dmi(sys_vendor="LENOVO", product_name="Lenovo ThinkStation P620"), "Lenovo ThinkStation P620"),
        (dmi(sys_vendor="To Be Filled By O.E.M.", product_name="Default string"), None),
        (
            dmi(
                sys_vendor="System manufacturer",
                product_name="System Product Name",
                board_vendor="ASUSTeK COMPUTER INC.",
                board_name="ROG STRIX X570-E GAMING",
            ),
            "ASUSTeK COMPUTER INC. ROG STRIX X570-E GAMING",
        ),
        (dmi(product_name="0000000000", board_name="FFFF"), None),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0"}, "Raspberry Pi 5 Model B Rev 1.0"),
        (
            {"proc/cpuinfo": "Hardware\t: BCM2835\nSerial\t: 1\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n"},
            "Raspberry Pi 4 Model B Rev 1.4",
        ),
        ({"proc/cpuinfo": "Hardware\t: Freescale i.MX6\n"}, "Freescale i.MX6"),
        ({"proc/cpuinfo": "model\t: 85\nmodel name\t: Intel(R) Xeon(R)\n"}, None),
    ],
)
def test_boards_are_named_by_firmware_but_not_by_its_placeholders(
    tmp_path: Path, files: dict[str, str], name: str | None
) -> None:
    notes = Notes()

    assert board.product_name(write(tmp_path, files), notes) == name
    assert ("product_name" in notes.sources) == (name is not None)


def test_a_cloud_that_calls_all_its_machines_alike_is_asked_for_the_instance_type(tmp_path: Path) -> None:
    names = dmi(sys_vendor="Microsoft Corporation", product_name="Virtual Machine")
    data = {"ds": {"meta_data": {"imds": {"compute": {"vmSize": "Standard_NC24ads_A100_v4"}}}}}
    azure = write(tmp_path / "a", {**names, "run/cloud-init/instance-data.json": json.dumps(data)})

    assert board.product_name(azure, Notes()) == "Microsoft Corporation Virtual Machine (Standard_NC24ads_A100_v4)"


@pytest.mark.parametrize("odd", ["", "[]", "{", '{"ds": 1}', '{"ds": {"meta_data": {"instance-type": 7}}}', "[" * 9999])
def test_odd_data_of_a_cloud_is_passed_over(tmp_path: Path, odd: str) -> None:
    root = write(tmp_path, {**dmi(product_name="Server"), "run/cloud-init/instance-data.json": odd})

    assert board.product_name(root, Notes()) == "Server"


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (HOST, "none"),
        (GUEST, "unnamed"),
        ({**GUEST, **dmi(sys_vendor="VMware, Inc.", product_name="VMware7,1")}, "vmware"),
        ({**GUEST, CLOCKS: "kvm-clock tsc acpi_pm\n"}, "kvm"),
        ({**GUEST, **dmi(sys_vendor="Amazon EC2", product_name="c7i.large")}, "kvm"),
        ({**GUEST, **dmi(sys_vendor="Microsoft Corporation", product_name="Virtual Machine")}, "hyper-v"),
        ({**HOST, **dmi(sys_vendor="Microsoft Corporation", product_name="Surface Laptop 5")}, "none"),
        ({**HOST, **dmi(sys_vendor="Google", product_name="Morphius")}, "none"),
        ({**HOST, **dmi(sys_vendor="Amazon EC2", product_name="c5.metal")}, "none"),
        (dmi(sys_vendor="Amazon EC2", product_name="c7g.metal"), "none"),
        (dmi(sys_vendor="Amazon EC2", product_name="c7g.large"), "kvm"),
        ({**GUEST, "sys/hypervisor/type": "xen\n"}, "xen"),
        ({**GUEST, "proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2\n"}, "wsl"),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({"proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0"}, "none"),
        ({"proc/sysinfo": "VM00 Control Program: z/VM    7.2.0\n"}, "z/vm"),
        ({"proc/cpuinfo": "CPU implementer\t: 0x41\n"}, None),
        ({}, None),
    ],
)
def test_a_machine_of_its_own_a_virtual_one_and_one_that_does_not_tell_are_three_answers(
    tmp_path: Path, files: dict[str, str], kind: str | None
) -> None:
    notes = Notes()

    assert board.hypervisor(write(tmp_path, files), notes) == kind
    assert ("hypervisor" in notes.sources) == (kind is not None)


def test_a_guest_is_named_without_the_firmwares_tables_too(tmp_path: Path) -> None:
    files = {**GUEST, CLOCKS: "kvm-clock tsc\n"}
    with_tables = write(tmp_path / "a", {**files, **dmi(sys_vendor="QEMU", product_name="Standard PC")})

    assert board.hypervisor(with_tables, Notes()) == board.hypervisor(write(tmp_path / "b", files), Notes()) == "kvm"


def test_a_container_in_a_virtual_machine_is_both(tmp_path: Path) -> None:
    root = write(tmp_path, {**GUEST, CLOCKS: "tsc kvm-clock\n", ".dockerenv": "", "proc/self/cgroup": "0::/\n"})

    assert (board.hypervisor(root, Notes()), container.read(root, Notes())) == ("kvm", "docker")


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"run/.containerenv": ""}, "podman"),
        ({"run/systemd/container": "lxc\n"}, "lxc"),
        ({".singularity.d/runscript": ""}, "apptainer"),
        ({"proc/self/cgroup": "0::/kubepods.slice/pod1\n", ".dockerenv": ""}, "kubernetes"),
        ({"proc/self/cgroup": "0::/\n", "run/secrets/kubernetes.io/serviceaccount/token": ""}, "kubernetes"),
        ({"proc/self/cgroup": "4:memory:/docker/1f\n"}, "docker"),
        ({"proc/self/cgroup": "0::/system.slice/docker-1f.scope\n"}, "docker"),
        ({"proc/self/cgroup": "0::/system.slice/docker.service\n"}, "none"),
        ({"proc/self/cgroup": "0::/user.slice\n"}, "none"),
        ({}, None),
    ],
)
def test_containers_are_told_apart_and_none_is_not_unknown(
    tmp_path: Path, files: dict[str, str], kind: str | None
) -> None:
    notes = Notes()

    assert container.read(write(tmp_path, files), notes) == kind
    assert ("container" in notes.sources) == (kind is not None)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "None", "Default string", "To Be Filled By O.E.M.", "Not Specified", "N/A", "0"),
        *(
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
        ),
        *("00020003-0004-0005-0006-000700080009", "uninitialized", "System Serial Number", "xxxxxxxx", "0123456789"),
    ],
)
def test_what_vendors_left_as_it_was_stands_for_nothing(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text", ["PF3XYZ12", "c5.large", "4c4c4544-0042-3510-8052-b4c04f4d3332", "10:7b:44:00:00:01", "T14"]
)
def test_what_looks_odd_but_is_a_name_is_kept(text: str) -> None:
    assert not is_placeholder(text)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (dmi(chassis_type="9\n"), "portable"),
        (dmi(chassis_type="10"), "portable"),
        (dmi(chassis_type="31"), "portable"),
        (dmi(chassis_type="3"), "desktop"),
        (dmi(chassis_type="23"), "server"),
        (dmi(chassis_type="12"), "other"),
        (dmi(chassis_type="1"), None),
        (dmi(chassis_type="2"), None),
        (dmi(chassis_type="laptop"), None),
        (dmi(chassis_type="99999"), None),
        ({"proc/device-tree/chassis-type": "laptop\0"}, "portable"),
        ({"proc/device-tree/chassis-type": "embedded\0"}, "other"),
        ({"proc/device-tree/chassis-type": "spaceship\0"}, None),
        ({}, None),
    ],
)
def test_the_case_is_what_the_firmware_calls_it(tmp_path: Path, files: dict[str, str], kind: str | None) -> None:
    notes = Notes()
    assert board.chassis(write(tmp_path, files), notes) == kind
    assert ("chassis" in notes.sources) == (kind is not None)
