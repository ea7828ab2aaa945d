# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
#
# sok_cuda: the kernels. nvcc comes from SOK_NVCC, the path, or the environment's Python packages.
# With cudart linked statically one library serves machines with and without a GPU.
if(SOK_CUDA STREQUAL "off")
  return()
endif()
find_program(SOK_NVCC NAMES nvcc HINTS ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
if(NOT SOK_NVCC)
  if(SOK_CUDA STREQUAL "on")
    message(FATAL_ERROR "SOK_CUDA=on, but nvcc was not found: install CUDA 12 or 13, or set SOK_NVCC")
  endif()
  message(STATUS "nvcc was not found: building for the CPU only")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${SOK_NVCC})
list(TRANSFORM SOK_CUDA_ARCHS APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
list(GET SOK_CUDA_ARCHS -1 newest)
list(APPEND CMAKE_CUDA_ARCHITECTURES "${newest}-virtual")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)

file(GLOB SOK_CUDA_SOURCES CONFIGURE_DEPENDS cuda/*.cu)
add_library(sok_cuda STATIC ${SOK_CUDA_SOURCES})
target_link_libraries(sok_cuda PUBLIC sok_core PRIVATE CUDA::cudart_static)
target_compile_options(sok_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --extended-lambda -Werror=all-warnings
  -Xcompiler=-Wall,-Wextra,-fvisibility=hidden>)
set_target_properties(sok_cuda PROPERTIES CUDA_RESOLVE_DEVICE_SYMBOLS ON)
