# The include-direction check must fail on a tree with one wrong include: copies the tree, adds one, runs it.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${SCRATCH}")
file(MAKE_DIRECTORY "${SCRATCH}")
file(COPY "${ROOT}/src" "${ROOT}/include" DESTINATION "${SCRATCH}" FILES_MATCHING PATTERN "*.h" PATTERN "*.cc")
foreach(wrong "src/base/wrong.cc|tensor/tensor.h" "src/backends/cpu/wrong.cc|model/config.h"
              "src/model/wrong.cc|backends/cpu/cpu_backend.h" "src/cli/wrong.cc|runtime/engine_impl.h"
              "src/capi/wrong.cc|runtime/request_state.h"
              "src/backends/ref/wrong.cc|backends/cpu/cpu_backend.h" "include/markbase/wrong.h|base/json.h")
  string(REPLACE "|" ";" pair "${wrong}")
  list(GET pair 0 file)
  list(GET pair 1 included)
  file(WRITE "${SCRATCH}/${file}" "#include \"${included}\"\n")
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${SCRATCH} -P "${ROOT}/tests/architecture/include_direction.cmake"
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE message)
  file(REMOVE "${SCRATCH}/${file}")
  if(result EQUAL 0)
    message(FATAL_ERROR "${file} including ${included} was not noticed")
  endif()
  string(FIND "${message}" "${file}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "the message does not name ${file}: ${message}")
  endif()
endforeach()
