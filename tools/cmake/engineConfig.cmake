# find_package(engine): the target engine::engine, the shared library with its headers. The library needs no other package to
# link: what it is made of is its own affair.
include("${CMAKE_CURRENT_LIST_DIR}/engineTargets.cmake")
