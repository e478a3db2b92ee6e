# What `cmake --install` copies, and the Debian packages that CPack makes of the same (tools/scripts/deb.sh). Component `program`:
# what users run; `library` and `development`: libengine.so for programs that use it, and what it takes to compile these;
# `debian` and debian_...: what only packages need.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(doc_folder "${CMAKE_INSTALL_DATAROOTDIR}/doc/engine")
set(debian_library libengine${ENGINE_SOVERSION})

install(TARGETS engine RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
final_rpath(engine "${CMAKE_INSTALL_BINDIR}/engine" program)
install(DIRECTORY "${PROJECT_BINARY_DIR}/share/man" "${PROJECT_BINARY_DIR}/share/bash-completion" "${PROJECT_BINARY_DIR}/share/fish"
  DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}" COMPONENT program)
# Debian's zsh looks for what packages bring in a folder of its own.
install(CODE "
  set(folder site-functions)
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    set(folder vendor-completions)
  endif()
  file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/zsh/\${folder}\" TYPE FILE
    FILES \"${PROJECT_BINARY_DIR}/share/zsh/site-functions/_engine\")" COMPONENT program)
install(DIRECTORY docs DESTINATION "${doc_folder}" COMPONENT program)
install(FILES README.md DESTINATION "${doc_folder}" COMPONENT program)
install(FILES LICENSE CHANGELOG.md DESTINATION "${doc_folder}" COMPONENT licence)  # Debian has names of its own for them

# Licences of what is compiled in, as Debian keeps them; of libraries inside the program as tools/scripts/release.sh has collected them.
set(ENGINE_GLIBC "" CACHE STRING "Oldest glibc on which a program with all other libraries inside runs (tools/scripts/release.sh)")
if(ENGINE_GLIBC)
  install(DIRECTORY "${PROJECT_BINARY_DIR}/licences/" DESTINATION "${doc_folder}/compiled-in" COMPONENT program)
endif()
foreach(package libeigen3-dev libcereal-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev cppzmq-dev)
  if(EXISTS "/usr/share/doc/${package}/copyright")
    install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${doc_folder}/compiled-in" RENAME ${package} COMPONENT program)
    install(FILES "/usr/share/doc/${package}/copyright"
      DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${debian_library}/compiled-in" RENAME ${package} COMPONENT library)
  endif()
endforeach()

# The public interface (docs/api.md).
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/engine")
install(TARGETS engine_api EXPORT engine
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
final_rpath(engine_api "${CMAKE_INSTALL_LIBDIR}/libengine.so.${PROJECT_VERSION}" library)
install(DIRECTORY tools/api/engine DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development FILES_MATCHING PATTERN *.h)
install(EXPORT engine NAMESPACE engine:: FILE engineTargets.cmake DESTINATION "${package_folder}" COMPONENT development)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/engineConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES tools/cmake/engineConfig.cmake "${PROJECT_BINARY_DIR}/generated/engineConfigVersion.cmake"
  DESTINATION "${package_folder}" COMPONENT development)
install(DIRECTORY docs/examples/cpp/ DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/engine-dev/examples" COMPONENT development)
install(FILES docs/api.md DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/engine-dev" COMPONENT development)

# The packages' own files. Dates are the commit's.
set(ENGINE_MAINTAINER "The engine developers <engine@engine.invalid>" CACHE STRING "Who answers for the Debian package: NAME <ADDRESS>")
set(ENGINE_DEBIAN_REVISION 1 CACHE STRING "Number of the Debian package of this version")
set(debian_date "")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} log -1 --format=%cD WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE debian_date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT debian_date)
  string(TIMESTAMP debian_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
endif()
set(debian_inside "")
set(program_overrides "")
if(ENGINE_GLIBC)
  set(debian_inside " All other libraries but the C library are inside the program; their licences are there, too.
")
  set(program_overrides "# For other systems than the one that builds it.\nengine: embedded-library *")
endif()
if(ENGINE_HAS_CUDA STREQUAL "ON")
  string(APPEND debian_inside " NVIDIA's CUDA runtime (libcudart_static) is linked in, under attachment A of the CUDA
 Toolkit's licence: https://docs.nvidia.com/cuda/eula/
")
endif()
set(debian "${PROJECT_BINARY_DIR}/debian")
configure_file(tools/cmake/debian_copyright.in "${debian}/copyright" @ONLY)
configure_file(tools/cmake/debian_changelog.in "${debian}/changelog.Debian" @ONLY)
# engine_debian_files(COMPONENT PACKAGE [OVERRIDES]): what every package has; OVERRIDES: lines for lintian.
function(engine_debian_files component package)
  install(CODE "
    execute_process(COMMAND gzip -9nc \"${debian}/changelog.Debian\" OUTPUT_FILE \"${debian}/changelog.Debian.gz\" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND gzip -9nc \"${PROJECT_SOURCE_DIR}/CHANGELOG.md\" OUTPUT_FILE \"${debian}/changelog.gz\" COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES "${debian}/copyright" "${debian}/changelog.Debian.gz" "${debian}/changelog.gz"
    DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}" COMPONENT ${component} EXCLUDE_FROM_ALL)
  set(debian_package ${package})
  set(debian_overrides "${ARGN}")
  configure_file(tools/cmake/lintian_overrides.in "${debian}/overrides/${package}" @ONLY)
  install(FILES "${debian}/overrides/${package}" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/lintian/overrides"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
set(comment "# CPack writes these scripts, whatever triggers there are.")
engine_debian_files(debian engine "${program_overrides}")
engine_debian_files(debian_library ${debian_library} "${comment}\n${debian_library}: maintscript-calls-ldconfig")
engine_debian_files(debian_development engine-dev)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The engine developers")
set(CPACK_PACKAGE_CONTACT "${ENGINE_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program debian library debian_library development debian_development)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "${ENGINE_DEBIAN_REVISION}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENGINE_PACKAGE_NAME engine)
set(CPACK_DEBIAN_ENGINE_PACKAGE_SUGGESTS "openssh-client")
if(ENGINE_GLIBC)
  # dpkg-shlibdeps would ask for this system's C library, into which the libraries dl, pthread and rt have been merged.
  set(CPACK_DEBIAN_ENGINE_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_ENGINE_PACKAGE_DEPENDS "libc6 (>= ${ENGINE_GLIBC})")
endif()
set(CPACK_DEBIAN_ENGINE_DESCRIPTION
  "data-parallel training of neural networks
Every process runs the same model on its share of the data; the replicas are
synchronized by averaging gradients every step, or parameters every few steps.
On one machine or a few; started by hand, by the program's own launcher, by
SLURM or by MPI.
.
Checkpoints are atomic, a resumed run continues bit for bit, and the program
checks that replicas are identical.")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)  # so that packages of programs depend on the library's
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_LIBENGINE_PACKAGE_NAME ${debian_library})
set(CPACK_DEBIAN_LIBENGINE_PACKAGE_SECTION libs)
file(WRITE "${debian}/triggers" "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBENGINE_PACKAGE_CONTROL_EXTRA "${debian}/triggers")
set(CPACK_DEBIAN_LIBENGINE_DESCRIPTION
  "data-parallel training of neural networks - shared library
For C++ programs: groups of ranks with their collectives, models, and training
as the program engine does it.")
set(CPACK_DEBIAN_ENGINE_DEV_PACKAGE_NAME engine-dev)
set(CPACK_DEBIAN_ENGINE_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_ENGINE_DEV_PACKAGE_DEPENDS
  "${debian_library} (= ${PROJECT_VERSION}-${ENGINE_DEBIAN_REVISION})")
set(CPACK_DEBIAN_ENGINE_DEV_DESCRIPTION
  "data-parallel training of neural networks - development files
Headers, CMake's package and examples for C++ programs that train, predict or
communicate through libengine.")
include(CPack)
cpack_add_component_group(engine)
cpack_add_component_group(libengine)
cpack_add_component_group(engine_dev)
cpack_add_component(program GROUP engine)
cpack_add_component(debian GROUP engine)
cpack_add_component(library GROUP libengine)
cpack_add_component(debian_library GROUP libengine)
cpack_add_component(development GROUP engine_dev)
cpack_add_component(debian_development GROUP engine_dev)
