# trireme_library(NAME SOURCES ... DEPS ... TESTS ...): one layer of src/trireme as a static
# library `trireme_NAME`, with its tests as one program `NAME_test`.

add_library(trireme_flags INTERFACE)
target_compile_features(trireme_flags INTERFACE cxx_std_20)
target_include_directories(trireme_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
# -Wno-restrict: g++ 12 warns of std::string's own operator+ (GCC bug 105651).
# -Wno-missing-field-initializers: designated initialisers leave defaults out on purpose.
target_compile_options(trireme_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> -Wno-missing-field-initializers
  $<$<BOOL:${TRIREME_WERROR}>:-Werror>)
if(TRIREME_SANITIZE)
  target_compile_options(trireme_flags INTERFACE
    -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()
if(TRIREME_FUZZ)
  target_compile_options(trireme_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(trireme_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(TRIREME_CCACHE ccache)
# Paths below the checkout are hashed as relative ones, so that checkouts share what they compile.
if(TRIREME_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${TRIREME_CCACHE})
endif()

function(trireme_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;TESTS;TEST_DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "trireme_library(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_SOURCES)
    add_library(trireme_${name} STATIC ${arg_SOURCES})
    target_link_libraries(trireme_${name} PUBLIC trireme_flags ${arg_DEPS})
  else()
    add_library(trireme_${name} INTERFACE)
    target_link_libraries(trireme_${name} INTERFACE trireme_flags ${arg_DEPS})
  endif()
  if(TRIREME_TESTS AND arg_TESTS)
    add_executable(${name}_test ${arg_TESTS})
    target_link_libraries(${name}_test PRIVATE trireme_${name} ${arg_TEST_DEPS} GTest::gmock
      GTest::gtest GTest::gtest_main)
    target_compile_definitions(${name}_test PRIVATE
      TRIREME_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
      TRIREME_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
    gtest_discover_tests(${name}_test DISCOVERY_TIMEOUT 30
      PROPERTIES LABELS ${name} TIMEOUT 60)
  endif()
endfunction()
