# bench_kernels (not built by default): times single kernels, for tools/bench_kernels.py.
add_executable(bench_kernels EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/bench_kernels.cc")
target_link_libraries(bench_kernels PRIVATE tools)
