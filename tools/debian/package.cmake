# Debian packages of the installed files; tools/package builds them. pinion: the program; libpinion1: the library, named like
# its SONAME; libpinion-dev: headers and archives. DEBFULLNAME and DEBEMAIL, or -DPINION_PACKAGER="Name <address>", name the
# maintainer; the default address is marked as invalid.
set(packager "Pinion's maintainers <maintainers@pinion.invalid>")
if(NOT "$ENV{DEBEMAIL}" STREQUAL "")
  set(packager "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(PINION_PACKAGER "${packager}" CACHE STRING "who answers for packages, as Debian writes it")

foreach(package IN ITEMS pinion libpinion1 libpinion-dev)
  string(REGEX REPLACE "1$" "" component "${package}")
  install(FILES "${PROJECT_SOURCE_DIR}/tools/debian/copyright" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${package}"
          COMPONENT "${component}" EXCLUDE_FROM_ALL)
endforeach()

install(FILES "${PROJECT_SOURCE_DIR}/tools/debian/libpinion1.lintian-overrides" RENAME libpinion1
        DESTINATION "${CMAKE_INSTALL_DATADIR}/lintian/overrides" COMPONENT libpinion EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pinion)
set(CPACK_PACKAGE_CONTACT "${PINION_PACKAGER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models from Hugging Face folders on the CPU")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL pinion libpinion libpinion-dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/tools/debian/finish.cmake")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# The library that is being packaged belongs to no installed package yet.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/apps/library")
if(CMAKE_CROSSCOMPILING)
  # CPack would ask dpkg for this machine's architecture. The sysroot records the owners of its libraries (tools/setup), and
  # tools/package points dpkg-shlibdeps to it.
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
endif()

set(CPACK_COMPONENT_PINION_DESCRIPTION
    "A command line that chats, generates, serves OpenAI's API over HTTP,\nmeasures and checks itself. Models are read as they are published: no\nconversion, no GPU.")
set(CPACK_DEBIAN_PINION_PACKAGE_NAME pinion)
set(CPACK_DEBIAN_PINION_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PINION_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64")  # `pinion get` loads it

set(CPACK_COMPONENT_LIBPINION_DESCRIPTION "The same as a library, with a C interface.")
set(CPACK_DEBIAN_LIBPINION_PACKAGE_NAME libpinion1)
set(CPACK_DEBIAN_LIBPINION_PACKAGE_SECTION libs)
# Dependencies of programs, and a trigger that renews the linker's cache: CPack's scripts would call ldconfig, against Debian's
# policy.
file(WRITE "${PROJECT_BINARY_DIR}/package/shlibs" "libpinion 1 libpinion1 (>= ${PROJECT_VERSION})\n")
file(WRITE "${PROJECT_BINARY_DIR}/package/triggers" "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBPINION_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/package/shlibs;${PROJECT_BINARY_DIR}/package/triggers")

set(CPACK_COMPONENT_LIBPINION-DEV_DESCRIPTION
    "Headers, archives, and packages for CMake and pkg-config: what builds\nprograms with libpinion, or with its kernels alone.")
set(CPACK_DEBIAN_LIBPINION-DEV_PACKAGE_NAME libpinion-dev)
set(CPACK_DEBIAN_LIBPINION-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBPINION-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBPINION-DEV_PACKAGE_DEPENDS "libpinion1 (= ${PROJECT_VERSION})")
include(CPack)
