# Language level, default build type, warnings, sanitizers and ccache, for every target of the tree.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Programs also look for shared libraries where tools/scripts/bundle.sh puts them. As RPATH, not RUNPATH: so it holds for what those
# libraries need in turn.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
add_link_options(LINKER:--disable-new-dtags)

# Where CMake will replace a path on installing it ends it with a colon, and to the loader that is the current folder: whoever can
# write there could give the program its libraries. So what is shipped has its final path from the start, and what is installed, at
# `installed` below the prefix, has none.
function(final_rpath target installed component)
  set(folders "$ORIGIN/../lib")
  if(TARGET gpu_emulator)
    list(APPEND folders "$<TARGET_FILE_DIR:gpu_emulator>")
  endif()
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${folders}" INSTALL_RPATH_USE_LINK_PATH ON)
  install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${installed}\")" COMPONENT ${component})
endfunction()

set(ENGINE_BUILD_TESTS AUTO CACHE STRING "The tests: ON, OFF, or AUTO (if GoogleTest is installed)")
set_property(CACHE ENGINE_BUILD_TESTS PROPERTY STRINGS ON OFF AUTO)
option(ENGINE_WARNINGS_AS_ERRORS "Stop at a compiler warning" OFF)
set(ENGINE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

# The instruction sets that CPU kernels are compiled for, as the list engine_cpu_kernels.
set(ENGINE_CPU_KERNELS all CACHE STRING
  "Instruction sets of the CPU kernels: all, native (the best of this machine for f32), or some of baseline,avx2,avx512,bf16,amx")
function(find_native_kernels result)
  file(READ /proc/cpuinfo cpu)
  set(kernels baseline)
  if(cpu MATCHES " avx2 " AND cpu MATCHES " fma ")
    set(kernels avx2)
    if(cpu MATCHES " avx512f " AND cpu MATCHES " avx512vl " AND cpu MATCHES " avx512bw " AND cpu MATCHES " avx512dq ")
      set(kernels avx512)
    endif()
  endif()
  set(${result} ${kernels} PARENT_SCOPE)
endfunction()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
  set(engine_cpu_kernels baseline)
elseif(ENGINE_CPU_KERNELS STREQUAL "all")
  set(engine_cpu_kernels baseline avx2 avx512 bf16 amx)
elseif(ENGINE_CPU_KERNELS STREQUAL "native")
  find_native_kernels(engine_cpu_kernels)
else()
  string(REPLACE "," ";" engine_cpu_kernels "${ENGINE_CPU_KERNELS}")
  foreach(set ${engine_cpu_kernels})
    if(NOT set MATCHES "^(baseline|avx2|avx512|bf16|amx)$")
      message(FATAL_ERROR "ENGINE_CPU_KERNELS=${ENGINE_CPU_KERNELS}: use all, native, or some of baseline,avx2,avx512,bf16,amx")
    endif()
  endforeach()
  if(("bf16" IN_LIST engine_cpu_kernels AND NOT "avx512" IN_LIST engine_cpu_kernels) OR
     ("amx" IN_LIST engine_cpu_kernels AND NOT "bf16" IN_LIST engine_cpu_kernels) OR NOT engine_cpu_kernels)
    message(FATAL_ERROR "ENGINE_CPU_KERNELS=${ENGINE_CPU_KERNELS}: bf16 needs avx512, and amx needs bf16")
  endif()
endif()

# lld links several times faster. What is shipped is linked by the system's own linker.
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=lld)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

# Headers of the standard library are read once instead of in every file. Off with ccache, which has the
# whole result: a precompiled header carries the path of its build folder and spoils that.
if(CCACHE_PROGRAM)
  option(ENGINE_PRECOMPILE "Precompile the standard library's headers" OFF)
else()
  option(ENGINE_PRECOMPILE "Precompile the standard library's headers" ON)
endif()
set(precompiled_headers <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <filesystem> <fstream>
  <functional> <map> <memory> <mutex> <optional> <span> <sstream> <stdexcept> <string> <string_view>
  <thread> <utility> <vector>)

# engine_precompile(TARGET [HEADERS ...]): what `engine_reuse_precompiled(OTHER TARGET)` then takes over
# in targets with the same flags.
function(engine_precompile target)
  if(ENGINE_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${precompiled_headers} ${ARGN})
  endif()
endfunction()
function(engine_reuse_precompiled target from)
  if(ENGINE_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()

# Files of a target are compiled several at a time: most of a compiler's time goes into headers. So no two files of a
# target may define one name in an unnamed namespace; ENGINE_UNITY=OFF gives each file its own compile command.
option(ENGINE_UNITY "Compile several files of a target at a time" ON)
function(engine_unity target batch)
  if(ENGINE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  endif()
endfunction()

# Kernels rely on fused multiply-add; nothing in the engine may rely on -ffast-math.
# nvcc hands the host's part of a .cu file to the C++ compiler in a form that -Wpedantic does not like.
set(cxx_options -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -ffp-contract=fast)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these falsely inside its own and Eigen's headers (restrict: bug 105651 of GCC).
  list(APPEND cxx_options -Wno-maybe-uninitialized -Wno-psabi -Wno-restrict)
  if(ENGINE_UNITY)  # takes a file that is included by another for a header
    list(APPEND cxx_options -Wno-subobject-linkage)
  endif()
  # The compiler frees memory first at 256 MiB instead of 128: each collection walks the whole of a precompiled header.
  list(APPEND cxx_options "SHELL:--param ggc-min-heapsize=262144")
endif()
if(ENGINE_WARNINGS_AS_ERRORS)
  list(APPEND cxx_options -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")  # at -O1 loops are not vectorized as they ask for
    list(APPEND cxx_options -Wno-error=pass-failed)
  endif()
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>")
option(ENGINE_COVERAGE "Count the lines that run (gcov); for tools/test.sh --coverage" OFF)
if(ENGINE_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic -O1)
  add_link_options(--coverage)
endif()
if(ENGINE_SANITIZE)
  # -O1: half the time to compile, and checks that the optimizer would remove stay.
  add_compile_options(-fsanitize=${ENGINE_SANITIZE} -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${ENGINE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # function: libraries found at run time are called by types of our own, which have their layout.
    # contract: the checks between operations would decide which of them are fused, in each loop
    # otherwise, and equal bits would depend on them.
    add_compile_options(-fno-sanitize=function -ffp-contract=off)
    add_compile_definitions(ENGINE_UNFUSED)
  endif()
endif()

option(ENGINE_FUZZ "Build the fuzz targets, and all else with libFuzzer's counters and sanitizers; needs clang" OFF)
if(ENGINE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "ENGINE_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=address,undefined)
endif()

# engine_library(NAME [FOLDERS a b] [CONTROL c d] [EXCLUDE x.cc] [PRECOMPILE <x.h>] [SEPARATE] LINKS ... PRIVATE_LINKS ...):
# a static library of the .cc files of the folders named (so that a new file needs no entry here), by default of this one, but for
# those that are chosen by hand. The folders after CONTROL have no loops over data: at -Og they compile in half the time.
# PRECOMPILE: headers that nearly all files need. SEPARATE: each file is compiled alone. Includes are written from the root of the
# tree.
function(engine_library name)
  cmake_parse_arguments(arg "SEPARATE" "" "FOLDERS;CONTROL;EXCLUDE;PRECOMPILE;LINKS;PRIVATE_LINKS" ${ARGN})
  if(NOT arg_FOLDERS AND NOT arg_CONTROL)
    set(arg_FOLDERS .)
  endif()
  engine_sources(control FOLDERS ${arg_CONTROL} EXCLUDE ${arg_EXCLUDE})
  engine_sources(sources FOLDERS ${arg_FOLDERS} EXCLUDE ${arg_EXCLUDE})
  set(parts ${name})
  if(NOT arg_FOLDERS)
    add_library(${name} STATIC ${control})
    set(control_part ${name})
  else()
    add_library(${name} STATIC ${sources})
    engine_reuse_precompiled(${name} precompiled)
    if(arg_CONTROL)
      set(control_part ${name}_control)
      list(APPEND parts ${control_part})
      add_library(${control_part} OBJECT ${control})
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:${control_part}>)
    endif()
  endif()
  if(arg_CONTROL)
    engine_optimize(${control_part} ${control_level})
    if(arg_PRECOMPILE)
      engine_precompile(${control_part} ${arg_PRECOMPILE})
    else()
      engine_reuse_precompiled(${control_part} precompiled_control)
    endif()
  endif()
  foreach(part ${parts})
    target_include_directories(${part} PUBLIC "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${part} PUBLIC ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS})
    if(NOT arg_SEPARATE)
      engine_unity(${part} 20)
    endif()
  endforeach()
endfunction()

# engine_sources(RESULT FOLDERS a b EXCLUDE x.cc): their .cc files.
function(engine_sources result)
  cmake_parse_arguments(arg "" "" "FOLDERS;EXCLUDE" ${ARGN})
  set(sources "")
  foreach(folder ${arg_FOLDERS})
    file(GLOB found CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc")
    list(APPEND sources ${found})
  endforeach()
  foreach(pattern ${arg_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "/${pattern}$")
  endforeach()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# The level for code without loops over data. clang takes -Og for -O1 and needs twice as long as
# without optimization; its programs are for checks, and fuzz targets must run fast.
set(control_level -Og)
if(ENGINE_SANITIZE OR (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT ENGINE_FUZZ))
  set(control_level -O0)
endif()

# engine_optimize(TARGET LEVEL): instead of the build type's level; not in Debug.
function(engine_optimize target level)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${level}>")
  endif()
endfunction()

# The headers that all libraries share, precompiled once for each level of optimization.
file(WRITE "${PROJECT_BINARY_DIR}/generated/precompiled.cc" "")
foreach(target precompiled precompiled_control)
  add_library(${target} STATIC EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/generated/precompiled.cc")
  engine_precompile(${target})
endforeach()
engine_optimize(precompiled_control ${control_level})
