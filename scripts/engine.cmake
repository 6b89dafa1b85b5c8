# Read by CMake right after the project() of llama-cpp-python, which sets LLAMA_BUILD_COMMON in the cache by force.
# Nothing that we load needs that library. A plain variable outranks the cache.
set(LLAMA_BUILD_COMMON OFF)
