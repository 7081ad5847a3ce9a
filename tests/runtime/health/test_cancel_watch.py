"""A step that fails at the very moment at which a gradient of it is handed over ends on all ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native_programs import build_env
from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

# In front of the system's: the memory of the result, 5 MiB, takes a second.
SLOW_MEMORY = r"""
#include <sys/syscall.h>
#include <unistd.h>
extern "C" __attribute__((visibility("default"))) int madvise(void* begin, size_t bytes, int advice) noexcept {
  if (bytes == 5 << 20) {
    static const char text[] = "memory comes slowly\n";
    (void)!write(2, text, sizeof(text) - 1);
    usleep(1000000);
  }
  return static_cast<int>(syscall(SYS_madvise, begin, bytes, advice));
}
"""


@pytest.fixture
def slow_memory(tmp_path: Path) -> Path:
    source, library = tmp_path / "slow_memory.cc", tmp_path / "libslow_memory.so"
    source.write_text(SLOW_MEMORY)
    subprocess.run(
        [build_env.find_compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60
    )
    return library


@pytest.mark.skip(
    reason="slows the ops' own memory for results, which is gone (0028); needs another way to hold a kernel"
)
def test_a_step_that_fails_while_a_gradient_is_handed_over(slow_memory: Path) -> None:
    env = {"LD_PRELOAD": str(slow_memory), "SMDDP_BUCKET_BYTES": "64MB"}  # both gradients in one bucket
    job = launch([Path(__file__).with_name("cancelled.py")], 2, timeout=60, env=env).check()
    assert job.output.count("memory comes slowly") >= 4  # in both steps, on both ranks
    told = {rank: job.output.split(f"rank {rank} was told: ")[1].splitlines()[0] for rank in (0, 1)}
    assert "deliberate" in told[0]
    assert "[smddp:step_given_up]" in told[1]
