# cpack reads this once for each kind of package: it refuses a build for one machine, and chooses the components.
if(CPACK_TRIREME_MARCH STREQUAL "native")
  message(FATAL_ERROR "This build cannot be packed: TRIREME_MARCH=native made it for the processor of this machine alone. "
                      "Configure a build with -D TRIREME_MARCH=x86-64-v3, as the preset package does, and pack that.")
endif()
set(CPACK_COMPONENTS_ALL trireme)
if(CPACK_TRIREME_HAS_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_GROUPING IGNORE)
else()
  list(APPEND CPACK_COMPONENTS_ALL libraries)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)  # an archive unpacks into a separate folder
endif()
