# Runs on each package's folder before it is packed: compresses changelog and manuals as Debian's policy requires. Their times
# are the last commit's, so that the same sources give the same package.
file(GLOB manuals "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/usr/share/man/man*/*.[1-9]")
file(GLOB documents LIST_DIRECTORIES true "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/usr/share/doc/*")
execute_process(COMMAND git log -1 --format=%cD WORKING_DIRECTORY "${CMAKE_CURRENT_LIST_DIR}"
                OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT date)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
endif()
foreach(folder IN LISTS documents)
  file(WRITE "${folder}/changelog"
       "pinion (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * See apps/CHANGELOG.md in the sources.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  list(APPEND manuals "${folder}/changelog")
endforeach()
# Debian's zsh completion folder.
file(GLOB zsh "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/usr/share/zsh")
foreach(folder IN LISTS zsh)
  file(RENAME "${folder}/site-functions" "${folder}/vendor-completions")
endforeach()
foreach(file IN LISTS manuals)
  execute_process(COMMAND gzip -9nf "${file}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
