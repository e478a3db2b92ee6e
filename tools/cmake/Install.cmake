# What `cmake --install` copies, and the Debian packages that CPack makes of the same (tools/scripts/deb.sh). Component `program`:
# what users run; `debian`: what only packages need.
include(GNUInstallDirs)
set(doc_folder "${CMAKE_INSTALL_DATAROOTDIR}/doc/engine")

install(TARGETS engine RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
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

# Licences of what is compiled in, as Debian keeps them.
foreach(package libeigen3-dev libcereal-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev cppzmq-dev)
  if(EXISTS "/usr/share/doc/${package}/copyright")
    install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${doc_folder}/compiled-in" RENAME ${package} COMPONENT program)
  endif()
endforeach()

# The package's own files. Dates are the commit's.
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
set(debian_cuda "")
if(ENGINE_HAS_CUDA STREQUAL "ON")
  set(debian_cuda " NVIDIA's CUDA runtime (libcudart_static) is linked in, under attachment A of the CUDA
 Toolkit's licence: https://docs.nvidia.com/cuda/eula/
")
endif()
set(debian "${PROJECT_BINARY_DIR}/debian")
configure_file(tools/cmake/debian_copyright.in "${debian}/copyright" @ONLY)
configure_file(tools/cmake/debian_changelog.in "${debian}/changelog.Debian" @ONLY)
configure_file(tools/cmake/lintian_overrides.in "${debian}/overrides/engine" @ONLY)
install(CODE "
  execute_process(COMMAND gzip -9nc \"${debian}/changelog.Debian\" OUTPUT_FILE \"${debian}/changelog.Debian.gz\" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9nc \"${PROJECT_SOURCE_DIR}/CHANGELOG.md\" OUTPUT_FILE \"${debian}/changelog.gz\" COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES "${debian}/copyright" "${debian}/changelog.Debian.gz" "${debian}/changelog.gz" DESTINATION "${doc_folder}"
  COMPONENT debian EXCLUDE_FROM_ALL)
install(DIRECTORY "${debian}/overrides" DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/lintian" COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The engine developers")
set(CPACK_PACKAGE_CONTACT "${ENGINE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-parallel training of neural networks")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program debian)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "${ENGINE_DEBIAN_REVISION}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENGINE_PACKAGE_NAME engine)
set(CPACK_DEBIAN_ENGINE_PACKAGE_SUGGESTS "openssh-client")
set(CPACK_DEBIAN_ENGINE_DESCRIPTION
  "Every process runs the same model on its share of the data; the replicas are
synchronized by averaging gradients every step, or parameters every few steps.
On one machine or a few; started by hand, by the program's own launcher, by
SLURM or by MPI.
.
Snapshots are atomic, a resumed run continues bit for bit, and the program
checks that replicas are identical.")
include(CPack)
cpack_add_component_group(engine)
cpack_add_component(program GROUP engine)
cpack_add_component(debian GROUP engine)
