"""/proc/cpuinfo as blocks of facts, and the architecture that its words betray."""

import re

Block = dict[str, str]


def parse(content: str) -> list[Block]:
    """Return the blocks of a /proc/cpuinfo; s390's one line per processor is a block of its own."""
    blocks: list[Block] = [{}]
    for line in content.splitlines():
        key, colon, value = line.partition(":")
        if not line.strip() or re.match(r"processor \d", line):
            blocks.append({})
        if colon:
            blocks[-1].setdefault(key.strip(), value.strip())
    return [block for block in blocks if block]


def by_cpu(blocks: list[Block]) -> dict[int, Block]:
    """Return each CPU's own block by its number; empty where the text numbers none."""
    found: dict[int, Block] = {}
    for block in blocks:
        for number in _numbers(block):
            found.setdefault(number, block)
    return found


def shared(blocks: list[Block]) -> Block:
    """Return the facts of blocks that belong to no CPU: old kernels write what all have in common once."""
    facts: Block = {}
    for block in blocks:
        if not _numbers(block):
            facts |= block
    return facts


def _numbers(block: Block) -> list[int]:
    listed = re.fullmatch(r"\d{1,6}", block.get("processor", ""))
    if listed:
        return [int(listed[0])]
    return [int(match[1]) for key in block if (match := re.fullmatch(r"processor (\d{1,6})", key))]


def architecture(blocks: list[Block]) -> str | None:
    """Return the architecture as `uname -m` would name it, guessed from the words that each alone uses."""
    facts = {key.lower(): value for block in reversed(blocks) for key, value in block.items()}
    isa = facts.get("isa", "")
    signs = (
        ("x86_64", "flags" in facts and " lm " in f" {facts['flags']} "),
        ("x86", "flags" in facts),
        ("aarch64", facts.get("cpu architecture") in ("8", "AArch64")),
        ("armv7l", "cpu implementer" in facts or "arm" in facts.get("processor", "").lower()),
        ("s390x", facts.get("vendor_id") == "IBM/S390"),
        ("loongarch64", "loongarch64" in isa),
        (isa[:4].replace("rv", "riscv"), isa.startswith(("rv32", "rv64"))),
        ("mips", "mips" in isa or "MIPS" in facts.get("cpu model", "")),
        ("ppc64" if "POWER" in facts.get("cpu", "") else "ppc", "pvr" in facts.get("revision", "")),
        ("ia64", facts.get("arch") == "IA-64"),
        ("sparc", "sparc" in facts.get("cpu", "").lower()),
    )
    return next((arch for arch, holds in signs if holds), None)
