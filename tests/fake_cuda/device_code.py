"""The part of elements.h that only a GPU runs, rewritten so that a processor can: asm becomes calls of ptx.h.

The operands stay where the instruction has them, so that an instruction that names them in another order does here
what it would do on a GPU.
"""

from __future__ import annotations

import re

_ASM = re.compile(r'asm(?: volatile)?\("(?P<text>[^"]*)"\s*:(?P<operands>.*?)\);', re.DOTALL)
_OPERAND = re.compile(r'"=?[a-z]"\(([^()]*)\)')
_LOAD = re.compile(r"ld\.global(?:\.v(\d))?\.u32 (?:\{([^}]*)\}|(\S+)), \[(.+)\];")
_STORE = re.compile(r"st\.global\.v(\d)\.u32 \[(.+)\], \{([^}]*)\};")


def rewritten(source: str) -> str:
    """The text of elements.h with the GPU's side of each choice, in C++.

    Raises:
        ValueError: an instruction that is not known here: add it to this file and to ptx.h.
    """
    if "defined(__CUDA_ARCH__)" not in source:
        raise ValueError("elements.h has no code for GPUs alone any more")
    source = source.replace("defined(__CUDA_ARCH__)", "1")
    elements = '#include "compute/cpu/elements.inc"\n'
    source = source.replace(elements, f'{elements}#include "ptx.h"\n')
    return _ASM.sub(_call, source)


def _call(match: re.Match[str]) -> str:
    operands = _OPERAND.findall(match["operands"])
    text = re.sub(r"%(\d+)", lambda number: operands[int(number[1])], match["text"]).strip()
    if text.startswith(("cvt.f32.f16 ", "cvt.rn.f16.f32 ")):
        name, to, value = text.rstrip(";").replace(",", "").split()
        return f"{to} = fake_ptx::{'CvtF32F16' if name == 'cvt.f32.f16' else 'CvtRnF16F32'}({value});"
    if load := _LOAD.fullmatch(text):
        targets = (load[2] or load[3]).split(", ")
        parts = [f"{target} = words.at[{index}];" for index, target in enumerate(targets)]
        return f"const auto words = fake_ptx::LoadGlobal<{load[1] or 1}>({load[4]}); {' '.join(parts)}"
    if store := _STORE.fullmatch(text):
        return f"fake_ptx::StoreGlobal<{store[1]}>({store[2]}, {{{{{store[3]}}}}});"
    raise ValueError(f"an instruction that tests/fake_cuda does not know: {match[0]}")
