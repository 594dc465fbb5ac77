# Settings that every target of ours shares, and one function per kind of target.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
# All shared libraries of ours sit in one folder, in the build tree and in the wheel.
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_INSTALL_RPATH "$ORIGIN")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

if(TRNSIM_SANITIZE)
  # GCC warns of variables inside std::function that are initialized, once sanitizers have changed the code.
  add_compile_options(-fsanitize=${TRNSIM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined
                      -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${TRNSIM_SANITIZE})
endif()

# trnsim_target(NAME [CXX17]): warnings, include root, language level of one of our own targets.
function(trnsim_target name)
  cmake_parse_arguments(ARG "CXX17" "" "" ${ARGN})
  target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(TRNSIM_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(ARG_CXX17)
    set_target_properties(${name} PROPERTIES CXX_STANDARD 17)
  endif()
endfunction()

# trnsim_proto(NAME FILE.proto): a static library with the generated code, warnings off, include root = build tree.
function(trnsim_proto name file)
  get_filename_component(stem "${file}" NAME_WE)
  file(RELATIVE_PATH rel "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  get_filename_component(dir "${rel}" DIRECTORY)
  set(out "${PROJECT_BINARY_DIR}/generated")
  file(MAKE_DIRECTORY "${out}/${dir}")
  add_custom_command(
    OUTPUT "${out}/${dir}/${stem}.pb.cc" "${out}/${dir}/${stem}.pb.h"
    COMMAND protobuf::protoc --cpp_out "${out}" -I "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/${rel}"
    DEPENDS "${PROJECT_SOURCE_DIR}/${rel}" VERBATIM)
  add_library(${name} STATIC "${out}/${dir}/${stem}.pb.cc" "${out}/${dir}/${stem}.pb.h")
  target_include_directories(${name} SYSTEM PUBLIC "${out}")
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
  target_compile_options(${name} PRIVATE -w)
endfunction()

# trnsim_cpp_test(NAME SOURCES... LIBS ...): one Catch2 program, run by ctest.
function(trnsim_cpp_test name)
  cmake_parse_arguments(ARG "CXX17" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_CXX17)
    trnsim_target(${name} CXX17)
  else()
    trnsim_target(${name})
  endif()
  target_link_libraries(${name} PRIVATE trnsim_catch ${ARG_LIBS})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "TRNSIM_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
endfunction()
