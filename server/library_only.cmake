# Compile llama.cpp without its common library, which llama-cpp-python builds but does not load. In CMAKE_ARGS:
#     -DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=$PWD/server/library_only.cmake
# CMake reads this file after llama.cpp's `project`; a variable hides the cache entry of llama-cpp-python.
set(LLAMA_BUILD_COMMON OFF)
