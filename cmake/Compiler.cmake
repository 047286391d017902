# Warnings, sanitizers, ccache and linker: one INTERFACE target that every target of ours links.
add_library(tenon_compiler INTERFACE)
target_compile_options(tenon_compiler INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Woverloaded-virtual -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports these falsely inside the standard library's own inlined code.
  target_compile_options(tenon_compiler INTERFACE -Wno-restrict -Wno-stringop-overflow
                         -Wno-array-bounds -Wno-maybe-uninitialized -Wno-dangling-pointer)
endif()
if(TENON_SANITIZE)
  target_compile_options(tenon_compiler INTERFACE -fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(tenon_compiler INTERFACE -fsanitize=${TENON_SANITIZE})
endif()

find_program(TENON_CCACHE ccache)
if(TENON_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TENON_CCACHE})
endif()
find_program(TENON_LLD ld.lld)
if(TENON_LLD)
  target_link_options(tenon_compiler INTERFACE -fuse-ld=lld)
endif()
