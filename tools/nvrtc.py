"""Compiles a CUDA kernel with NVRTC, NVIDIA's compiler in one library, with the arguments of nvcc that we use.

python tools/nvrtc.py --library=libnvrtc.so.12 -cubin -arch=sm_80 -std=c++17 -Itf_ops -o move.cubin move.cu
python tools/nvrtc.py --library=libnvrtc.so.12 --list-gpu-code     its version, then what it makes code for

NVRTC has none of the C++ library's headers; those that the kernels include are given here, as far as they need them.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from pathlib import Path

HEADERS = {
    "cstdint": """
        typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;
        typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned uint32_t;
        typedef unsigned long uint64_t; typedef unsigned long uintptr_t;""",
    "cstring": "namespace std { using ::memcpy; }",
    "type_traits": """namespace std {
        template <class A, class B> struct is_same { static constexpr bool value = false; };
        template <class A> struct is_same<A, A> { static constexpr bool value = true; };
        template <class T> struct is_floating_point {
          static constexpr bool value = is_same<T, float>::value || is_same<T, double>::value;
        };
        template <bool B, class T, class F> struct conditional { using type = T; };
        template <class T, class F> struct conditional<false, T, F> { using type = F; };
        }""",
}


class Nvrtc:
    """The library's functions; a failing one ends the program with its message."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise SystemExit(f"{name}: {self._library.nvrtcGetErrorString(code).decode()}")

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def architectures(self) -> list[int]:
        count = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        codes = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", codes)
        return list(codes)

    def compiled(self, source: Path, options: list[str], kind: str) -> bytes:
        """What the compiler makes of a file. `kind`: CUBIN or PTX."""
        program = ctypes.c_void_p()
        texts = [f"#pragma once\n{text}\n" for text in HEADERS.values()]
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), source.name.encode(),
            len(HEADERS), _strings(texts), _strings(list(HEADERS)),
        )  # fmt: skip
        try:
            self.call("nvrtcCompileProgram", program, len(options), _strings(options))
        except SystemExit as error:
            raise SystemExit(f"{self._text(program, 'ProgramLog').decode()}\n{error}") from None
        return self._text(program, kind)

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, text)
        return text.raw


def _strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--library", required=True, help="libnvrtc.so.12 or .13")
    parser.add_argument("--list-gpu-code", action="store_true")
    parser.add_argument("-ccbin", help="has no meaning here: there is no host code")
    parser.add_argument("-cubin", dest="kind", action="store_const", const="CUBIN")
    parser.add_argument("-ptx", dest="kind", action="store_const", const="PTX")
    parser.add_argument("-o", dest="output", type=Path)
    parser.add_argument("source", type=Path, nargs="?")
    options, passed_on = parser.parse_known_args()
    nvrtc = Nvrtc(options.library)
    if options.list_gpu_code:
        print(nvrtc.version(), *(f"sm_{code}" for code in nvrtc.architectures()))
        return 0
    if not (options.kind and options.output and options.source):
        parser.error("-cubin or -ptx, -o and a source are needed")
    options.output.write_bytes(nvrtc.compiled(options.source, passed_on, options.kind))
    return 0


if __name__ == "__main__":
    sys.exit(main())
