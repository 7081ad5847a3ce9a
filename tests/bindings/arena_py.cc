// Test access to the memory of shared tensors, with a clock that the test moves.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include "bindings/bind.h"
#include "ops/allocator/shared_arena.h"

namespace nb = nanobind;

namespace smddp {
namespace {

double g_seconds = 0;

std::unique_ptr<ops::SharedArena> Create(size_t capacity) {
  return ops::SharedArena::Create(capacity, [] { return g_seconds; });
}

// -1: no room.
int64_t Allocate(ops::SharedArena& arena, size_t bytes) {
  const auto* block = static_cast<std::byte*>(arena.Allocate(bytes));
  return block == nullptr ? -1 : block - arena.data();
}

}  // namespace

void BindArena(nb::module_& m) {
  m.def("arena_clock", [](double seconds) { g_seconds = seconds; }, nb::arg("seconds"));
  m.def("arena_create", &Create, nb::arg("capacity"));
  nb::class_<ops::SharedArena>(m, "SharedArena")
      .def("allocate", &Allocate, nb::arg("bytes"))
      .def("free", [](ops::SharedArena& arena, int64_t offset) { arena.Free(arena.data() + offset); })
      .def("owns", [](ops::SharedArena& arena, int64_t offset) { return arena.Owns(arena.data() + offset); })
      .def_prop_ro("address", [](ops::SharedArena& arena) { return reinterpret_cast<uintptr_t>(arena.data()); })
      .def_prop_ro("capacity", &ops::SharedArena::capacity)
      .def_prop_ro("file", &ops::SharedArena::file)
      .def_prop_ro("resident_bytes", &ops::SharedArena::resident_bytes);
}

}  // namespace smddp
