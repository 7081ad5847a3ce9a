"""A step that fails at the very moment at which a gradient of it is handed over ends on all ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native_programs import build_env
from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

# In front of the system's: of the blocks of 5 MiB since the program has asked for it, every second one, which is the
# result of a gradient, takes a second.
SLOW_MEMORY = r"""
#include <dlfcn.h>
#include <unistd.h>
#include <atomic>
#include <cstddef>
#define VISIBLE extern "C" __attribute__((visibility("default")))
static std::atomic<int> blocks{-1000};
static void Pause(size_t bytes) {
  if (bytes != 5 << 20 || ++blocks <= 0 || blocks % 2 != 0) return;
  static const char text[] = "memory comes slowly\n";
  (void)!write(2, text, sizeof(text) - 1);
  usleep(1000000);
}
VISIBLE void begin_slow_memory() { blocks = 0; }
VISIBLE int posix_memalign(void** block, size_t alignment, size_t bytes) noexcept {
  Pause(bytes);
  static auto* const real = reinterpret_cast<int (*)(void**, size_t, size_t)>(dlsym(RTLD_NEXT, "posix_memalign"));
  return real(block, alignment, bytes);
}
"""


@pytest.fixture
def slow_memory(tmp_path: Path) -> Path:
    source, library = tmp_path / "slow_memory.cc", tmp_path / "libslow_memory.so"
    source.write_text(SLOW_MEMORY)
    subprocess.run(
        [build_env.find_compiler(), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True, timeout=60
    )
    return library


def test_a_step_that_fails_while_a_gradient_is_handed_over(slow_memory: Path) -> None:
    # Both gradients in one bucket; TensorFlow's own allocator.
    env = {"LD_PRELOAD": str(slow_memory), "SMDDP_BUCKET_BYTES": "64MB", "SMDDP_SHARED_TENSORS": "0"}
    job = launch([Path(__file__).with_name("cancelled.py")], 2, timeout=60, env=env).check()
    assert job.output.count("memory comes slowly") >= 4  # in both steps, on both ranks
    told = {rank: job.output.split(f"rank {rank} was told: ")[1].splitlines()[0] for rank in (0, 1)}
    assert "deliberate" in told[0]
    assert "[smddp:step_given_up]" in told[1]
