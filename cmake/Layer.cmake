# tn_layer(<name> [DEPS <layer>...] [PRIVATE_DEPS <layer>...] [LIBS <target>...])
#
# One folder under src/ = one static library `tenon_<name>` (alias tenon::<name>) from all its *.cc.
# Its include roots are its own headers and those of the layers it declares, nothing else: an undeclared or
# upward include is "No such file", an upward dependency is an error here. PRIVATE_DEPS' headers are
# not passed on (kernels stay private to ops and attention). LIBS (third party) are always private: no
# foreign type appears in a public header.
function(tn_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS;LIBS" ${ARGN})
  list(FIND TENON_LAYERS ${name} own_index)
  if(own_index EQUAL -1)
    message(FATAL_ERROR "tn_layer(${name}): not in TENON_LAYERS")
  endif()
  foreach(dep IN LISTS ARG_DEPS ARG_PRIVATE_DEPS)
    list(FIND TENON_LAYERS ${dep} dep_index)
    if(dep_index EQUAL -1 OR NOT dep_index LESS own_index)
      message(FATAL_ERROR "tn_layer(${name}): may not depend on '${dep}': a layer sees only those above it in TENON_LAYERS")
    endif()
  endforeach()

  # The include root of a layer holds one link, tenon/<name>, so that sources say "tenon/<name>/x.h".
  set(root ${PROJECT_BINARY_DIR}/include_roots/${name})
  file(MAKE_DIRECTORY ${root}/tenon)
  if(NOT EXISTS ${root}/tenon/${name})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/tenon/${name} SYMBOLIC)
  endif()

  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*/*.cc
       ${CMAKE_CURRENT_SOURCE_DIR}/*/*/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cpu/")  # compiled once per ISA by the kernels layer itself
  add_library(tenon_${name} STATIC ${sources})
  add_library(tenon::${name} ALIAS tenon_${name})
  set_target_properties(tenon_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(tenon_${name} PUBLIC $<BUILD_INTERFACE:${root}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(tenon_${name} PRIVATE $<BUILD_INTERFACE:tenon_compiler> ${ARG_LIBS})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(tenon_${name} PUBLIC tenon::${dep})
  endforeach()
  foreach(dep IN LISTS ARG_PRIVATE_DEPS)
    target_link_libraries(tenon_${name} PRIVATE tenon::${dep})
  endforeach()

  # Installed: the library, and the headers directly in the folder (those in subfolders are the layer's own).
  set_target_properties(tenon_${name} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS tenon_${name} EXPORT tenonTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(NOT name IN_LIST TENON_PRIVATE_LAYERS)
    file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
    install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon/${name})
  endif()
endfunction()
