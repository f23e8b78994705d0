# Finds the libtorch of a Python wheel and imports it as `Torch::Torch` (libtorch_cpu and libc10).
# TorchConfig.cmake is not used: it demands a CUDA toolkit for wheels that were built with CUDA.
#   TRIREME_PYTHON  the interpreter whose torch is used; default: .venv of the source tree

if(NOT TRIREME_PYTHON)
  set(TRIREME_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  if(DEFINED ENV{TRIREME_VENV})
    set(TRIREME_PYTHON $ENV{TRIREME_VENV}/bin/python)
  endif()
endif()
execute_process(
  COMMAND ${TRIREME_PYTHON} -c
    "import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('torch').origin).parent)"
  OUTPUT_VARIABLE Torch_ROOT_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE torch_result ERROR_QUIET)
if(NOT torch_result EQUAL 0)
  set(Torch_ROOT_DIR "")
endif()

find_library(Torch_CPU_LIBRARY torch_cpu PATHS ${Torch_ROOT_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
find_library(Torch_C10_LIBRARY c10 PATHS ${Torch_ROOT_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
find_path(Torch_INCLUDE_DIR ATen/core/Tensor.h PATHS ${Torch_ROOT_DIR}/include NO_DEFAULT_PATH NO_CACHE)
file(GLOB Torch_GOMP_LIBRARY ${Torch_ROOT_DIR}/lib/libgomp*.so*)
find_path(Gloo_INCLUDE_DIR gloo/algorithm.h)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch
  REQUIRED_VARS Torch_CPU_LIBRARY Torch_C10_LIBRARY Torch_INCLUDE_DIR Gloo_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "looked in '${Torch_ROOT_DIR}' of ${TRIREME_PYTHON} - run scripts/setup, or configure with -DTRIREME_TORCH=OFF")

if(Torch_FOUND AND NOT TARGET Torch::Torch)
  add_library(Torch::C10 SHARED IMPORTED)
  set_target_properties(Torch::C10 PROPERTIES IMPORTED_LOCATION ${Torch_C10_LIBRARY})
  add_library(Torch::Torch SHARED IMPORTED)
  set_target_properties(Torch::Torch PROPERTIES
    IMPORTED_LOCATION ${Torch_CPU_LIBRARY}
    INTERFACE_LINK_LIBRARIES "Torch::C10;${Torch_GOMP_LIBRARY}"
    INTERFACE_LINK_OPTIONS "-Wl,--no-as-needed"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;_GLIBCXX_USE_CXX11_ABI=1"
    INTERFACE_INCLUDE_DIRECTORIES
      "${Torch_INCLUDE_DIR};${Torch_INCLUDE_DIR}/torch/csrc/api/include")
endif()
