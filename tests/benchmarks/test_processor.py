"""Tests of the names of processors."""

from pathlib import Path

import pytest

from benchmarks import processor

AMD = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: {family}
model\t\t: {model}
model name\t: AMD EPYC
flags\t\t: fpu avx2 {flags}

processor\t: 1
model name\t: another
"""


@pytest.mark.parametrize(
    ("family", "model", "flags", "name", "sets"),
    [
        ("23", 1, "", "AMD EPYC, Zen 1", "AVX2"),
        ("23", 49, "", "AMD EPYC, Zen 2", "AVX2"),
        ("25", 1, "", "AMD EPYC, Zen 3", "AVX2"),
        ("25", 17, "avx512f avx512_bf16", "AMD EPYC, Zen 4", "AVX2, AVX-512, AVX-512 bf16"),
        ("26", 2, "avx512f", "AMD EPYC, Zen 5", "AVX2, AVX-512"),
        ("99", 1, "", "AMD EPYC", "AVX2"),
    ],
)
def test_processors_with_the_same_name_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, model: int, flags: str, name: str, sets: str
) -> None:
    monkeypatch.setattr(processor, "CPU_INFO", tmp_path / "cpuinfo")
    processor.CPU_INFO.write_text(AMD.format(family=family, model=model, flags=flags))
    assert processor.processor() == name and processor.instruction_sets() == sets
    assert processor.folder(tmp_path).name.startswith(name.lower().replace(",", "").replace(" ", "-"))


def test_a_processor_limited_to_avx2_is_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "CPU_INFO", tmp_path / "cpuinfo")
    processor.CPU_INFO.write_text(AMD.format(family="26", model=2, flags="avx512f avx512_bf16"))
    whole = processor.machine()
    for name, value in processor.AVX2_ONLY.items():
        assert processor.machine() == whole, "one library may still use newer instructions"
        monkeypatch.setenv(name, value)
    assert processor.machine() == f"{whole}, limited to AVX2" and processor.instruction_sets() == "AVX2"
    assert processor.folder(tmp_path).name.endswith("-cores-limited-to-avx2")
