import pytest

from worker.fingerprint.visible import count, hiding

UUIDS = ["GPU-5d5ba0d6-aaaa", "GPU-5d5ba0d7-bbbb", "GPU-9f000000-cccc"]


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("0,1,2", 3),
        ("2", 1),
        ("3", 0),
        ("0,3,1", 1),
        ("0,0,1", 1),
        ("0,-1,1", 1),
        (" 0 , 1 ", 2),
        ("GPU-5d5ba0d6", 1),
        ("gpu-9F", 1),
        ("GPU-5d5ba0d", 0),
        ("GPU-5d5ba0d6,GPU-9f", 2),
        ("GPU-5d5ba0d6,0", 1),
        ("MIG-GPU-9f000000-cccc/1/0", 1),
        ("nonsense", 0),
        ("1e9", 0),
        ("٣", 0),
        ("", 0),
    ],
)
def test_a_list_ends_before_the_first_entry_that_names_no_gpu(value: str, left: int) -> None:
    assert count("CUDA_VISIBLE_DEVICES", value, UUIDS) == left


def test_all_is_all() -> None:
    assert count("CUDA_VISIBLE_DEVICES", "all", UUIDS) is None


def test_a_uuid_is_believed_where_the_driver_tells_none() -> None:
    assert count("CUDA_VISIBLE_DEVICES", "GPU-5d5ba0d6", [None]) == 1


def test_only_what_hides_something_is_named() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2", "NVIDIA_VISIBLE_DEVICES": "void", "HIP_VISIBLE_DEVICES": "-1"}

    assert hiding("NVIDIA", environ, UUIDS) == {"NVIDIA_VISIBLE_DEVICES": 0}
    assert hiding("AMD", environ, UUIDS[:1]) == {"HIP_VISIBLE_DEVICES": 0}
    assert hiding("Intel", environ, UUIDS) == {}
