# SystemC 2.3.4 of Debian has no CMake package; SystemC 3 brings one (SystemCLanguage). Either way: target SystemC::systemc.
if(NOT TARGET SystemC::systemc)
  find_package(SystemCLanguage CONFIG QUIET)
  if(NOT TARGET SystemC::systemc)
    find_path(SystemC_INCLUDE_DIR systemc HINTS ENV SYSTEMC_HOME PATH_SUFFIXES include)
    find_library(SystemC_LIBRARY systemc HINTS ENV SYSTEMC_HOME PATH_SUFFIXES lib lib-linux64)
    include(FindPackageHandleStandardArgs)
    find_package_handle_standard_args(SystemC REQUIRED_VARS SystemC_LIBRARY SystemC_INCLUDE_DIR
                                      REASON_FAILURE_MESSAGE "install libsystemc-dev or set SYSTEMC_HOME")
    if(SystemC_FOUND)
      add_library(SystemC::systemc UNKNOWN IMPORTED)
      set_target_properties(SystemC::systemc PROPERTIES IMPORTED_LOCATION "${SystemC_LIBRARY}"
                                                        INTERFACE_INCLUDE_DIRECTORIES "${SystemC_INCLUDE_DIR}")
    endif()
  endif()
endif()
