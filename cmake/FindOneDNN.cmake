# oneDNN as target DNNL::dnnl. Not by its own CMake package: the one of Debian 12 refuses to load without the OpenCL
# headers, which serve GPUs only.
if(NOT TARGET DNNL::dnnl)
  find_path(OneDNN_INCLUDE_DIR dnnl.hpp PATH_SUFFIXES include)
  find_library(OneDNN_LIBRARY dnnl)
  include(FindPackageHandleStandardArgs)
  find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR
                                    REASON_FAILURE_MESSAGE "install libdnnl-dev")
  if(OneDNN_FOUND)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${OneDNN_LIBRARY}"
                                                INTERFACE_INCLUDE_DIRECTORIES "${OneDNN_INCLUDE_DIR}")
  endif()
endif()
