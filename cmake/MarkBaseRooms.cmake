# One target a room: markbase_room(<folder under src> DEPENDS <rooms> ...) makes markbase_<room> out
# of every *.cc in the folder and links only what its line names, so a wrong include direction fails to
# link and is named by the architecture test.

include_guard()
add_library(markbase_options INTERFACE)
target_compile_options(markbase_options INTERFACE -Wall -Wextra -Wpedantic
  # Floats are added in one order on every machine: nothing may be contracted or reassociated.
  -ffp-contract=off -fno-fast-math)
if(MARKBASE_WERROR)
  target_compile_options(markbase_options INTERFACE -Werror)
endif()
if(MARKBASE_SANITIZE_ADDRESS)
  target_compile_options(markbase_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g)
  target_link_options(markbase_options INTERFACE -fsanitize=address,undefined)
endif()
if(MARKBASE_SANITIZE_THREAD)
  target_compile_options(markbase_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer -g)
  target_link_options(markbase_options INTERFACE -fsanitize=thread)
endif()

set(MARKBASE_ROOM_TARGETS "" CACHE INTERNAL "")

function(markbase_room room)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE_ROOMS;LINKS;PRIVATE_LINKS" ${ARGN})
  string(REPLACE "/" "_" target "markbase_${room}")
  string(REPLACE "markbase_backends_" "markbase_backend_" target "${target}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${room}/*.cc")
  # Kernel bodies are compiled once per instruction set by their own list.
  list(FILTER sources EXCLUDE REGEX "/src/backends/cpu/kernels/")
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE markbase_options)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  # The public headers are C++20: whoever links a room compiles as such.
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope}
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>")
  foreach(dep IN LISTS ARG_DEPENDS)
    target_link_libraries(${target} ${scope} markbase_${dep})
  endforeach()
  foreach(dep IN LISTS ARG_PRIVATE_ROOMS)
    string(REPLACE "backends/" "backend_" dep "${dep}")
    if(sources)
      target_link_libraries(${target} PRIVATE markbase_${dep})
    endif()
  endforeach()
  if(ARG_LINKS)
    target_link_libraries(${target} ${scope} ${ARG_LINKS})
  endif()
  if(ARG_PRIVATE_LINKS AND sources)
    target_link_libraries(${target} ${scope} ${ARG_PRIVATE_LINKS})
  endif()
  set_property(GLOBAL APPEND PROPERTY MARKBASE_ROOMS ${target})
endfunction()

function(markbase_executable name)
  cmake_parse_arguments(ARG "" "SOURCES_IN" "LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${ARG_SOURCES_IN}/*.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE markbase_options ${ARG_LINKS})
  # Argument parsing is all templates and no hot path: it compiles in half the time this way.
  target_compile_options(${name} PRIVATE -O1)
  if(MARKBASE_STATIC)
    # The whole archive of the thread library: its weak symbols would otherwise stay null.
    target_link_options(${name} PRIVATE -static -Wl,--whole-archive -lpthread -Wl,--no-whole-archive)
  endif()
endfunction()

# The libraries users link: every room behind one name. markbase::markbase is the shared one where it is built.
function(markbase_public_library)
  add_library(markbase::static ALIAS markbase_capi)
  if(MARKBASE_SHARED)
    markbase_shared_library()
    add_library(markbase::shared ALIAS markbase_shared)
    add_library(markbase::markbase ALIAS markbase_shared)
  else()
    add_library(markbase::markbase ALIAS markbase_capi)
  endif()
endfunction()
