# Kernel sources are compiled once per instruction set: kernels/<what>_<isa>.cc includes <what>-inl.h.
# Such units keep everything in unnamed namespaces and use no shared inline or template code, since the
# linker may hand the copy compiled for wide instructions to everyone.
if(MARKBASE_SANITIZE_ADDRESS OR MARKBASE_SANITIZE_THREAD)
  # Checks around every access of unrolled code: more optimisation takes a quarter of an hour a unit.
  set(markbase_isa_level_generic -O0)
  set(markbase_isa_level -O1)
else()
  set(markbase_isa_level_generic -O2)  # -O3 takes minutes to compile and gains nothing here
  set(markbase_isa_level -O3)
endif()
set(markbase_isa_flags_generic ${markbase_isa_level_generic})
set(markbase_isa_flags_avx2 ${markbase_isa_level} -mavx2 -mfma -mf16c)
set(markbase_isa_flags_avxvnni ${markbase_isa_level} -mavx2 -mfma -mf16c -mavxvnni)
set(markbase_isa_flags_avx512 ${markbase_isa_level} -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(markbase_isa_flags_avx512vnni ${markbase_isa_flags_avx512} -mavx512vnni)
set(markbase_isa_flags_amx ${markbase_isa_flags_avx512vnni} -mamx-tile -mamx-int8 -mgfni)

foreach(isa generic avx2 avxvnni avx512 avx512vnni amx)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_${isa}.cc")
  if(sources)
    target_sources(markbase_backend_cpu PRIVATE ${sources})
    # Optimised also in debug builds: intrinsics without optimisation are slower than the tests can bear.
    set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${markbase_isa_flags_${isa}}")
  endif()
endforeach()
