// One function per file of this folder; module.cc calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace smddp {

void BindControl(nanobind::module_& m);  // the session's life, plans, process sets, errors
void BindMemory(nanobind::module_& m);   // requests on memory of NumPy or of another framework

}  // namespace smddp
