"""Every model computes on the device of its input: shown on a fake accelerator, because a GPU is seldom at hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

backend_registration = pytest.importorskip("torch.utils.backend_registration")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"), reason="needs PyTorch 2.10 or newer"
)
def test_models_train_on_a_fake_accelerator() -> None:
    command = [sys.executable, "-m", "tests.support.accelerator"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    mistake = result["errors"].pop("OnCpu")
    assert "same device" in mistake
    assert result["errors"] == {}
    assert result["trained"] > 80
