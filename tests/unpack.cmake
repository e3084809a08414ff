# Unpacks the large goldens (*.xz) into the build folder, with xz or Python's lzma.
#   cmake -DFROM=<file.xz> -DTO=<file> [-DXZ=<xz>] [-DPYTHON=<python3>] -P unpack.cmake
if(XZ)
  execute_process(COMMAND "${XZ}" -dc "${FROM}" OUTPUT_FILE "${TO}.part" RESULT_VARIABLE failed)
else()
  execute_process(COMMAND "${PYTHON}" -c
    "import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], 'wb'))"
    "${FROM}" "${TO}.part" RESULT_VARIABLE failed)
endif()
if(failed)
  message(FATAL_ERROR "${FROM}: cannot be unpacked")
endif()
file(RENAME "${TO}.part" "${TO}")
