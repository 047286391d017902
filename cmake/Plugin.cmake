# Plugins: shared libraries that `--custom-module-dirs` opens, and programs that can open them. Part of the installed package,
# and used by this build too.
set(TENON_PLUGIN_SYMBOLS ${CMAKE_CURRENT_LIST_DIR}/plugin_symbols.list)

# tenon_add_plugin(<name> SOURCES <file>... [LIBS <target>...])
#
# <name>.so from sources of which one says TN_PLUGIN(...). It has our headers and no library of ours: what it uses of tenon is
# found in the program that opens it, so that there is one copy of everything. LIBS: what else it needs.
function(tenon_add_plugin name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_SOURCES OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tenon_add_plugin(${name} SOURCES <file>... [LIBS <target>...]), not: ${ARGN}")
  endif()
  foreach(lib IN LISTS ARG_LIBS)
    if(lib MATCHES "^tenon(::|_)")
      message(FATAL_ERROR "tenon_add_plugin(${name}): ${lib} would be a second copy of what the program has; remove it")
    endif()
  endforeach()
  add_library(${name} MODULE ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX "")
  target_link_libraries(${name} PRIVATE tenon::plugin ${ARG_LIBS})
endfunction()

# tenon_enable_plugins(<target>): for an executable that opens plugins: links all of what plugins may use, used by the program
# itself or not, and exports it.
function(tenon_enable_plugins target)
  list(TRANSFORM TENON_PLUGIN_LAYERS REPLACE "(.+)" "$<TARGET_FILE:tenon::\\1>" OUTPUT_VARIABLE archives)
  list(TRANSFORM TENON_PLUGIN_LAYERS PREPEND tenon:: OUTPUT_VARIABLE libraries)
  target_link_libraries(${target} PRIVATE ${libraries})
  # Their usual place on the command line comes later, and adds nothing more.
  target_link_options(${target} PRIVATE LINKER:--dynamic-list=${TENON_PLUGIN_SYMBOLS} LINKER:--whole-archive ${archives}
                      LINKER:--no-whole-archive)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${TENON_PLUGIN_SYMBOLS})
endfunction()
