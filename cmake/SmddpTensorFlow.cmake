# smddp_tensorflow: the headers and flags of the installed TensorFlow. An op library built with it loads into that
# TensorFlow minor only; the loader checks this (smddp_tf/_native/loader.py).

if(SMDDP_TENSORFLOW_DIR)
  add_library(smddp_tensorflow INTERFACE)
  target_include_directories(smddp_tensorflow SYSTEM INTERFACE ${SMDDP_TENSORFLOW_DIR}/include)
  # What tf.sysconfig.get_compile_flags() says on 2.16 to 2.21; importing TensorFlow to ask it is not possible in an
  # isolated build.
  target_compile_definitions(smddp_tensorflow INTERFACE _GLIBCXX_USE_CXX11_ABI=1 EIGEN_MAX_ALIGN_BYTES=64)
  target_link_directories(smddp_tensorflow INTERFACE ${SMDDP_TENSORFLOW_DIR})
  target_link_libraries(smddp_tensorflow INTERFACE "-l:libtensorflow_framework.so.2")
endif()
