# `cmake --install`: bin/tenon, the libraries, their public headers and a package configuration, so that elsewhere
#   find_package(tenon CONFIG REQUIRED)
#   target_link_libraries(app PRIVATE tenon::engine tenon::zoo)
# is all it takes (examples/embed), and for a plugin
#   find_package(tenon CONFIG REQUIRED COMPONENTS plugin)
#   tenon_add_plugin(aurora SOURCES aurora.cc)
# (examples/out_of_tree_model). tn_layer adds each library to the export set.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tenon)
install(EXPORT tenonTargets NAMESPACE tenon:: DESTINATION ${package_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tenonConfig.cmake.in ${PROJECT_BINARY_DIR}/tenonConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tenonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tenonConfig.cmake ${PROJECT_BINARY_DIR}/tenonConfigVersion.cmake
        ${CMAKE_CURRENT_LIST_DIR}/Plugin.cmake ${CMAKE_CURRENT_LIST_DIR}/plugin_symbols.list
        DESTINATION ${package_dir})
if(TARGET tenon)
  install(TARGETS tenon RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
