# find_package(@NAME@) gives the target @NAME@::@NAME@: link it, and include "@NAME@.h".
get_filename_component(@NAME@_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET @NAME@::@NAME@)
  add_library(@NAME@::@NAME@ @KIND@ IMPORTED)
  set_target_properties(@NAME@::@NAME@ PROPERTIES
    IMPORTED_LOCATION "${@NAME@_PREFIX}/lib/@FILE@"
@PROPERTY@
    INTERFACE_INCLUDE_DIRECTORIES "${@NAME@_PREFIX}/include")
endif()
set(@NAME@_FOUND TRUE)
