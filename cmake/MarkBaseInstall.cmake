# Install and export: find_package(markbase CONFIG) gives markbase::markbase and the public headers: libmarkbase.so
# where MARKBASE_SHARED is on, otherwise the rooms as archives of their own, behind the one name. The archives are
# always installed, as markbase::static.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY MARKBASE_ROOMS)
install(TARGETS ${rooms} markbase_options EXPORT markbase_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MARKBASE_SHARED)
  install(TARGETS markbase_shared EXPORT markbase_shared_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET markbase)
  install(TARGETS markbase RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/markbase" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_BINARY_DIR}/generated/markbase/version.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/markbase)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE" DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/markbase)
install(EXPORT markbase_targets NAMESPACE markbase:: DESTINATION ${config_dir})
if(MARKBASE_SHARED)
  install(EXPORT markbase_shared_targets NAMESPACE markbase:: DESTINATION ${config_dir})
endif()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/markbaseConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/markbaseConfig.cmake" INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/markbaseConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/markbaseConfig.cmake" "${PROJECT_BINARY_DIR}/markbaseConfigVersion.cmake"
  DESTINATION ${config_dir})
