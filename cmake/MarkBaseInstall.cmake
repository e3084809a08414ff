# Install and export: find_package(markbase CONFIG) gives markbase::markbase, one static archive set with the
# public headers. The rooms are installed as archives of their own; users link the one name.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY MARKBASE_ROOMS)
install(TARGETS ${rooms} markbase_options EXPORT markbase_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET markbase)
  install(TARGETS markbase RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/markbase" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_BINARY_DIR}/generated/markbase/version.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/markbase)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE" DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/markbase)
install(EXPORT markbase_targets NAMESPACE markbase:: DESTINATION ${config_dir})
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/markbaseConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/markbaseConfig.cmake" INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/markbaseConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/markbaseConfig.cmake" "${PROJECT_BINARY_DIR}/markbaseConfigVersion.cmake"
  DESTINATION ${config_dir})
