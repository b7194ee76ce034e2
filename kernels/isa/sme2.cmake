# sme2.cpp needs GCC 14 or clang 19. If the compiler is older (Debian 12's), an installed clang 19 compiles this one file; its
# object needs no C++ library and links like any other. Without both, the build has no SME2 kernels and prints a note.
include(CheckCXXSourceCompiles)
#
# Some chips have SME2 and no SVE2 (Apple M4). A compiler whose +sme2 brings SVE2 along may use that in the file's
# ordinary functions, so its table then needs both.
set(sme2_march -march=armv8.2-a+dotprod+i8mm+bf16+sme2)
if(PINION_SANITIZE OR PINION_FUZZ)
  set(sme2_last -fno-sanitize=all)  # what a sanitizer adds are calls out of streaming mode
endif()
set(sme2_probe "#include <arm_sme.h>
void f(const signed char* p, void (*g)(int) __arm_streaming __arm_inout(\"za\")) __arm_streaming __arm_inout(\"za\") {
  svint8x4_t b = svld1_x4(svwhilelt_c8(0l, 64l, 4), p);
  svmopa_za32_s8_m(0, svptrue_b8(), svptrue_b8(), svget4(b, 0), svget4(b, 3));
  g(1);
}
int main() { __asm__(\"smstart\"); }
")
set(CMAKE_REQUIRED_FLAGS ${sme2_march})
check_cxx_source_compiles("${sme2_probe}" PINION_COMPILER_HAS_SME2)
check_cxx_source_compiles("#if defined(__ARM_FEATURE_SVE)
#error
#endif
int main() {}" PINION_COMPILER_HAS_SME2_ALONE)
unset(CMAKE_REQUIRED_FLAGS)

if(NOT PINION_COMPILER_HAS_SME2)
  set(sme2_flags ${sme2_march} -std=c++20 -fPIC)
  if(CMAKE_CROSSCOMPILING)
    list(APPEND sme2_flags --target=${CMAKE_LIBRARY_ARCHITECTURE} --sysroot=${CMAKE_SYSROOT})
  endif()
  set(sme2_probe_file "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/sme2_probe.cpp")
  file(WRITE "${sme2_probe_file}" "${sme2_probe}")
  foreach(name clang++-19 clang++-20 clang++-21 clang++)
    find_program(clang NAMES ${name} NO_CACHE)
    if(clang)
      execute_process(COMMAND "${clang}" ${sme2_flags} -c "${sme2_probe_file}" -o /dev/null
                      RESULT_VARIABLE clang_failed OUTPUT_QUIET ERROR_QUIET)
      if(NOT clang_failed)
        set(sme2_clang "${clang}")
        break()
      endif()
    endif()
    unset(clang)
  endforeach()
endif()

if(PINION_COMPILER_HAS_SME2)
  target_sources(pinion_kernels PRIVATE isa/sme2.cpp)
  set_source_files_properties(isa/sme2.cpp PROPERTIES COMPILE_OPTIONS "${sme2_march};${sme2_last}")
elseif(sme2_clang)
  message(STATUS "SME2 kernels: compiled by ${sme2_clang}")
  set(sme2_object "${CMAKE_CURRENT_BINARY_DIR}/sme2.o")
  add_custom_command(
    OUTPUT "${sme2_object}"
    COMMAND "${sme2_clang}" ${sme2_flags} "$<IF:$<CONFIG:Debug>,-O0;-g,-O3;-DNDEBUG>"
            "$<TARGET_PROPERTY:pinion_flags,INTERFACE_COMPILE_OPTIONS>" -Wno-unknown-warning-option ${sme2_last} "-I${PROJECT_SOURCE_DIR}"
            -MD -MF "${sme2_object}.d" -c "${CMAKE_CURRENT_SOURCE_DIR}/isa/sme2.cpp" -o "${sme2_object}"
    DEPENDS isa/sme2.cpp
    DEPFILE "${sme2_object}.d"
    COMMENT "Building sme2.cpp with ${sme2_clang}"
    COMMAND_EXPAND_LISTS VERBATIM)
  target_sources(pinion_kernels PRIVATE "${sme2_object}")
endif()
if(PINION_COMPILER_HAS_SME2 OR sme2_clang)
  target_compile_definitions(pinion_kernels PRIVATE PINION_SME2)
  if(PINION_COMPILER_HAS_SME2 AND NOT PINION_COMPILER_HAS_SME2_ALONE)
    target_compile_definitions(pinion_kernels PRIVATE PINION_SME2_NEEDS_SVE2)
  endif()
else()
  message(STATUS "SME2 kernels: left out, no compiler here knows SME2 (clang 19 does)")
  target_compile_definitions(pinion_kernels PUBLIC PINION_NO_SME2)
endif()
