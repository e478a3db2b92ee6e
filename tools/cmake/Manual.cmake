# Manual pages and completion, which the program itself writes: target `manual`, part of all. Into share/, laid out as installed.
set(manual_date "")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} log -1 --format=%cs WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE manual_date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT manual_date)
  string(TIMESTAMP manual_date "%Y-%m-%d" UTC)  # or SOURCE_DATE_EPOCH
endif()
set(share "${PROJECT_BINARY_DIR}/share")
set(stamp "${PROJECT_BINARY_DIR}/manual.stamp")
set(bash_file "${share}/bash-completion/completions/engine")
set(zsh_file "${share}/zsh/site-functions/_engine")
set(fish_file "${share}/fish/vendor_completions.d/engine.fish")
add_custom_command(OUTPUT "${stamp}"
  COMMAND ${CMAKE_COMMAND} -E rm -rf "${share}"
  COMMAND ${CMAKE_COMMAND} -E make_directory "${share}/man/man1" "${share}/bash-completion/completions"
    "${share}/zsh/site-functions" "${share}/fish/vendor_completions.d"
  COMMAND engine manual "${share}/man/man1" --date ${manual_date}
  COMMAND engine completion bash > "${bash_file}"
  COMMAND engine completion zsh > "${zsh_file}"
  COMMAND engine completion fish > "${fish_file}"
  COMMAND sh -c "gzip -9nf '${share}'/man/man1/*.1"
  COMMAND ${CMAKE_COMMAND} -E touch "${stamp}"
  DEPENDS engine COMMENT "Manual pages and completion" VERBATIM)
add_custom_target(manual ALL DEPENDS "${stamp}")
