// The program of all tests in C++. `smddp_native_tests -ltc` lists them, `--help` says how to choose among them.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
