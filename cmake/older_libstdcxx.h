// Included before everything in the wheel (tools/build_wheel.py): std::condition_variable::wait as libstdc++ had it before GCC
// 12. It is the only thing of GCC 12's own that the libraries need, and with it they load into GCC 11's, which
// manylinux_2_34 stands for.
__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
