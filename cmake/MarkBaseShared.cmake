# libmarkbase.so: the objects of every room in one library that shows the C API and what the C++ headers mark with
# MB_EXPORT, nothing else.
include_guard()

function(markbase_shared_library)
  get_property(rooms GLOBAL PROPERTY MARKBASE_ROOMS)
  set(objects "")
  foreach(room IN LISTS rooms)
    get_target_property(type ${room} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND objects $<TARGET_OBJECTS:${room}>)
    endif()
  endforeach()
  # Before version 1 a minor version may break the binary interface.
  if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  else()
    set(soversion ${PROJECT_VERSION_MAJOR})
  endif()
  set(symbols "${PROJECT_SOURCE_DIR}/cmake/markbase.map")
  add_library(markbase_shared SHARED ${objects})
  set_target_properties(markbase_shared PROPERTIES OUTPUT_NAME markbase EXPORT_NAME shared LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${soversion} LINK_DEPENDS "${symbols}")
  target_link_options(markbase_shared PRIVATE "LINKER:--version-script=${symbols}")
  # The runtime of a sanitizer comes with the program.
  if(NOT MARKBASE_SANITIZE_ADDRESS AND NOT MARKBASE_SANITIZE_THREAD)
    target_link_options(markbase_shared PRIVATE LINKER:-z,defs)
  endif()
  target_link_libraries(markbase_shared PRIVATE markbase_options Threads::Threads ${format_library} ${log_library})
  target_include_directories(markbase_shared INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>")
  # The installed package adds it where C++ is in use: programs in C alone may link this library.
  target_compile_features(markbase_shared INTERFACE $<BUILD_INTERFACE:cxx_std_20>)
endfunction()
